"""`inv logs`: the boots in a server's log, of a node or of a local file, and parts of their text.

Only what matters crosses the wire: the lines that the grammar needs, and the lines asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ExitCode, UsageError
from .session import Session
from .sglang import boots, patterns
from .sglang.boots import Boot

LOG_TIMEOUT_S = 300.0
# Of each kind of line the first and the last so many: what a month of serving logged is not needed.
MAX_MATCHES = 2000
BLOCK = 1 << 20


@dataclass(frozen=True)
class Asked:
    """Which text is wanted besides the boots: lines that match `grep`, else the last `lines`."""

    grep: str | None = None
    lines: int = 40

    def pattern(self) -> str | None:
        if self.grep is not None:
            try:
                re.compile(self.grep)
            except re.error as error:
                raise UsageError(
                    f"--grep {self.grep}: not a regular expression: {error}", hint="quote it"
                ) from None
        return self.grep


@dataclass(frozen=True)
class Logs:
    """`lines`: (1-based number or None, text) of what was asked for, of the last boot."""

    source: str
    is_file: bool
    path: str
    exists: bool
    boots: tuple[Boot, ...]
    lines: tuple[tuple[int | None, str], ...]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {
            ("file" if self.is_file else "node"): self.source,
            "log": self.path,
            "boots": [boots.boot_json(boot) for boot in self.boots],
            "lines": [{"line": number, "text": text} for number, text in self.lines],
        }


def of_node(session: Session, asked: Asked) -> Logs:
    """The log that the inventory names, read on the node."""
    path = session.node.server.log
    grep = asked.pattern()
    wanted = [*patterns.LINES, *([grep] if grep is not None else [])]
    reply = session.request(
        "log",
        {
            "path": path,
            "patterns": wanted,
            "boot": "all",
            "tail_bytes": max(4096, asked.lines * 1024),
            "max_matches": MAX_MATCHES,
        },
        timeout_s=LOG_TIMEOUT_S,
    )
    if not reply["exists"]:
        return Logs(session.node.name, False, path, False, (), ())
    known = [(match["line"], match["text"]) for match in reply["matches"]]
    found = tuple(boots.read_lines(known))
    if grep is not None:
        last = found[-1].first_line if found else 1
        index = len(patterns.LINES)
        lines = [
            (m["line"], m["text"]) for m in reply["matches"] if index in m["patterns"] and m["line"] >= last
        ]
    else:
        tail = reply["tail"]
        first = tail["line"]
        texts = tail["text"].splitlines()
        lines = [(first + number, text) for number, text in enumerate(texts)]
    return Logs(session.node.name, False, path, True, found, tuple(lines[-asked.lines :]))


def of_file(path: Path, asked: Asked) -> Logs:
    """A log on the local disk, read the same way and without a node. UsageError when it cannot be."""
    grep = asked.pattern()
    wanted = re.compile(grep) if grep is not None else None
    lines: list[tuple[int | None, str]] = []

    def watched() -> Iterator[tuple[int, str]]:
        for number, line in _numbered(path):
            if wanted is None or wanted.search(line):
                lines.append((number, line))
                if len(lines) > 2 * asked.lines:
                    del lines[: -asked.lines]
            yield number, line

    try:
        found = tuple(boots.read_lines(patterns.select(watched())))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check the path") from None
    return Logs(str(path), True, str(path), True, found, tuple(lines[-asked.lines :]))


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a line longer than a block comes in pieces with one number."""
    number = 1
    with path.open("rb") as file:
        while line := file.readline(BLOCK):
            yield number, line.decode("utf-8", "replace").rstrip("\n")
            number += line.endswith(b"\n")


def follow(session: Session, asked: Asked, say: Any) -> None:
    """New lines as they are written, until interrupted."""
    session.request(
        "tail",
        {"path": session.node.server.log, "from_offset": None, "lines": asked.lines, "follow": True},
        timeout_s=7 * 24 * 3600.0,
        on_event=lambda event: say(event.get("log", "")),
    )
