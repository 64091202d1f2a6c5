"""The runbook on a terminal: Markdown, with what was printed shown as it is printed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..runbook import Entry
from .console import console

# How a line of a block begins, and how it looked where it was printed.
_STYLES = {
    "$ ": "heading",
    "FAIL": "fail",
    "????": "unknown",
    "pass": "pass",
    "skip": "skip",
    "error: ": "fail",
    "next:  ": "heading",
    "-     ": "quiet",
    "+": "added",
    "-": "removed",
}
_INDENT = 2


class _Block(CodeBlock):
    """A fenced block without a frame, so that a line of 78 columns stays one line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().splitlines():
            style = next((style for start, style in _STYLES.items() if line.startswith(start)), "")
            yield Padding(Text(line, style=style, overflow="fold"), (0, 0, 0, _INDENT), expand=False)


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text.plain, style="heading")
        yield Text("─" * min(self.text.cell_len, options.max_width), style="quiet")


class _Page(Markdown):
    # Rich's own way of saying how an element is rendered.
    elements = Markdown.elements | {"fence": _Block, "code_block": _Block, "heading_open": _Heading}


def show_page(text: str, entries: Sequence[Entry]) -> None:
    """The whole page, and at its end, where the eye is, its entries."""
    out = console()
    out.print(_Page(text))
    out.print()
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(style="heading", no_wrap=True)
    table.add_column(overflow="fold")
    for entry in entries:
        table.add_row(f"inv runbook {entry.symptom}", entry.title)
    out.print(table)


def show_entry(entry: Entry) -> None:
    out = console()
    heading, _, text = entry.text.partition("\n")
    out.print(_Page(f"{heading}\n\n{entry.title}\n{text}"))
    out.print()
    out.print(Text("inv runbook shows all entries", style="quiet"))
