"""`inv logs`: the boots in a server's log, of a node or of a local file, and parts of their text.

Only what matters crosses the wire: the lines that the grammar needs, and the lines asked for.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import secrets
from .errors import ExitCode, UsageError
from .node import logs as read
from .node.base import Context, OpError
from .node.state import State
from .observe import procs
from .pending import Pending
from .session import Session
from .sglang import boots, patterns, wrapped
from .sglang.boots import Boot
from .sglang.lines import numbered, segments

Line = tuple[int, str]

LOG_TIMEOUT_S = 300.0
# Of each kind of line of a boot the first half and the last so many: a month of serving is not needed.
MAX_MATCHES = 2000
HEAD_LINES = 10


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

    def count(self) -> int:
        if self.lines < 0:
            raise UsageError(f"--lines {self.lines}: less than none", hint="--lines 0 shows the boots alone")
        return self.lines


@dataclass(frozen=True)
class Logs:
    """`lines`: (1-based number, text) of what was asked for, of the last boot, secrets masked.
    `older_boots`: number of boots before `boots`, which were not read."""

    source: str
    is_file: bool
    path: str
    exists: bool
    boots: tuple[Boot, ...]
    older_boots: int
    lines: tuple[tuple[int, str], ...]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {
            ("file" if self.is_file else "node"): self.source,
            "log": self.path,
            "boots": [boots.boot_json(boot) for boot in self.boots],
            "older_boots": self.older_boots,
            "lines": [{"line": number, "text": text} for number, text in self.lines],
        }


def of_node(session: Session, asked: Asked) -> Logs:
    """The log that the inventory names, read on the node."""
    path = session.node.server.log
    processes = _ask_processes(session)
    reply = session.request("log", _parameters(path, asked), timeout_s=LOG_TIMEOUT_S)
    found = boots.read_lines(_known(reply)) if reply["exists"] else []
    _learn(session, processes, [boot.args for boot in found])
    return _logs(reply, asked, session.secrets.values, source=session.node.name, is_file=False)


def _ask_processes(session: Session) -> Pending:
    """The processes and the boots on record, which tell what must not be shown: asked beside the log."""
    return session.submit("observe", {"sections": {"procs": procs(session.node), "state": {}}})


def _learn(session: Session, processes: Pending, logged: Iterable[Mapping[str, object]]) -> None:
    session.secrets.learn(secrets.on_node(session.node, session.result(processes), logged))


def of_file(path: Path, asked: Asked) -> Logs:
    """A log on the local disk, or from a pipe: the node's own code reads it here. UsageError when it cannot
    be read."""
    here = Context(emit=lambda _: None, state=State, deadline=float("inf"))
    try:
        with _seekable(path) as place:
            reply = read.log(_parameters(str(Path(place).absolute()), asked), here)
    except (OSError, OpError) as error:
        why = f"{path}: {error.strerror}" if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {why}", hint="check the path") from None
    if not reply["exists"]:
        raise UsageError(f"cannot read {path}: {os.strerror(errno.ENOENT)}", hint="check the path")
    return _logs({**reply, "path": str(path)}, asked, (), source=str(path), is_file=True)


@contextmanager
def _seekable(path: Path) -> Iterator[str]:
    """`path` itself, or a temporary copy of what a pipe gives (`--file <(zcat server.log.1.gz)`)."""
    if not (path.is_fifo() or path.is_char_device()):
        yield str(path)
        return
    with path.open("rb") as pipe, tempfile.NamedTemporaryFile(prefix="fixops-log-") as copy:
        shutil.copyfileobj(pipe, copy)
        copy.flush()
        yield copy.name


def _parameters(path: str, asked: Asked) -> dict[str, Any]:
    grep = asked.pattern()
    return {
        "path": path,
        **patterns.wanted(patterns.RARE, [*patterns.DECODE, *([grep] if grep is not None else [])]),
        "boot": "all",
        "head_lines": HEAD_LINES,
        "tail_bytes": max(4096, asked.count() * 1024),
        "max_matches": MAX_MATCHES,
    }


def _logs(
    reply: Mapping[str, Any], asked: Asked, hidden: Collection[str], *, source: str, is_file: bool
) -> Logs:
    if not reply["exists"]:
        return Logs(source, is_file, reply["path"], False, (), 0, ())
    known = _known(reply)
    found = tuple(boots.read_lines(known))
    if asked.grep is not None:
        index = len(patterns.RARE) + len(patterns.DECODE)
        last = found[-1].first_line if found else 1
        matching = [
            (match["line"], match["text"])
            for match in reply["matches"]
            if index in match["patterns"] and match["line"] >= last
        ]
        lines = _last(matching, asked.lines)
    else:
        tail = reply["tail"]
        lines = [
            (number, piece)
            for number, line in numbered(tail["text"], tail["line"])
            for piece in segments(line)
        ]
    shown = _last(wrapped.redact_lines(lines, known, hidden), asked.lines)
    return Logs(source, is_file, reply["path"], True, found, reply["older_boots"], tuple(shown))


def _last(lines: list[Line], count: int) -> list[Line]:
    return lines[max(0, len(lines) - count) :]


def _known(reply: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The numbered lines that the boots are read from. The file's first are among them: a boot begins with
    its first line, whatever that is, and a log that holds nothing else is one boot too."""
    matches = [(match["line"], match["text"]) for match in reply["matches"]]
    if reply["older_boots"]:
        return matches
    head = list(numbered(reply["head"]["text"], reply["head"]["line"]))
    return [*head, *(each for each in matches if each[0] > len(head))]


def follow(session: Session, asked: Asked, say: Any) -> None:
    """New lines as they are written, secrets masked, until interrupted."""
    _learn(session, _ask_processes(session), [])
    state = wrapped.Stream(secrets=frozenset(session.secrets.values))

    def take(event: Mapping[str, Any]) -> None:
        nonlocal state
        if "restarted" in event:  # another file, or the same from its start: what was held is all there is
            say(wrapped.finish(state))
            state = wrapped.Stream(secrets=state.secrets)
        state, text = wrapped.feed(state, event.get("log", ""))
        say(text)

    parameters = {
        "path": session.node.server.log,
        "from_offset": None,
        "lines": asked.count(),
        "follow": True,
    }
    try:
        session.request("tail", parameters, timeout_s=7 * 24 * 3600.0, on_event=take)
    finally:
        say(wrapped.finish(state))
