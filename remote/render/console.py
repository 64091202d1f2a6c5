"""The two consoles: results on stdout, progress and messages on stderr when stdout holds JSON."""

from __future__ import annotations

import json
import os
import sys
from io import TextIOWrapper
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from .. import hints
from ..errors import FixopsError
from ..hints import Given
from ..runbook import of_error

THEME = Theme(
    {
        "pass": "green",
        "fail": "bold red",
        "unknown": "yellow",
        "skip": "dim",
        "changed": "cyan",
        "quiet": "dim",
        "heading": "bold",
        "added": "green",
        "removed": "red",
        "hunk": "cyan",
        # Rich's own has a black background, which a light terminal shows as boxes.
        "markdown.code": "bold cyan",
    }
)


# What this process's command was given: the commands in its hints are completed with it.
_given = Given()


def aim(given: Given) -> None:
    """From here on every hint that is printed is for the nodes, the fix and the inventory of this command."""
    global _given
    _given = given


def next_step(text: str, node: str | None = None) -> str:
    """What to type next, as it must be typed. `node`: the one that the text is about."""
    return hints.complete(text, _given, node)


def console(*, to_stderr: bool = False) -> Console:
    """A console as wide as the terminal, or $COLUMNS, else 100 columns; NO_COLOR is respected.

    Text is text: `[embed, in:3]` is no style and `:100:` no emoji, in a line as in a table's cell. What is to
    have a style is a Text.
    """
    stream = _stream(sys.stderr if to_stderr else sys.stdout)
    width = None if stream.isatty() or "COLUMNS" in os.environ else 100
    return Console(
        file=stream, theme=THEME, highlight=False, markup=False, emoji=False, soft_wrap=False, width=width
    )


def _stream(stream: TextIO) -> TextIO:
    """The same; what its encoding cannot write becomes a question mark, and ends no command."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


def print_json(document: dict[str, Any]) -> None:
    """The one JSON document of a command, on stdout."""
    document = hints.complete_tree(document, _given)
    # JSON has escapes for what the terminal's encoding cannot write.
    as_it_is = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    _stream(sys.stdout).write(json.dumps(document, indent=2, ensure_ascii=not as_it_is) + "\n")
    sys.stdout.flush()


def print_error(error: FixopsError) -> None:
    """What happened, on which node, and what to type next."""
    out = console(to_stderr=True)
    out.print(Text.assemble(("error: ", "fail"), error.message), soft_wrap=True)
    diff = error.data.get("diff")
    if diff:
        print_diff(out, diff)
    if error.hint:
        out.print(Text.assemble(("next:  ", "heading"), error.hint), soft_wrap=True)
    symptom = of_error(error)
    if symptom:
        out.print(Text.assemble(("runbook: ", "quiet"), f"inv runbook {symptom}"), soft_wrap=True)


def print_hanging(out: Console, heading: Text, body: Text) -> None:
    """`heading`, and `body` beside it: its further lines begin where its first one does."""
    table = Table.grid()
    table.add_column(no_wrap=True, width=len(heading))
    table.add_column(overflow="fold")
    table.add_row(heading, body)
    out.print(table)


def print_diff(out: Console, diff: str) -> None:
    """A unified diff in colours; lines are never wrapped, so that it can be copied."""
    for line in diff.splitlines():
        style = ""
        if line.startswith(("+++", "---")):
            style = "heading"
        elif line.startswith("@@"):
            style = "hunk"
        elif line.startswith("+"):
            style = "added"
        elif line.startswith("-"):
            style = "removed"
        out.print(Text(line, style=style), soft_wrap=True)
