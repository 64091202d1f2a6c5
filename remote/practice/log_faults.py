"""Faults in the server's log: lines that are not there, or are another boot's."""

from __future__ import annotations

from collections.abc import Callable

from remote.errors import RefusedError
from remote.practice.fault import Fault, follows
from remote.practice.file_steps import Breaking, Step, remove
from remote.practice.server import READY


def _rewritten(change: Callable[[bytes], bytes]) -> Step:
    """Change the text of the log in place, because a server writes to it.

    For the same reason it cannot be put back: healing starts the server again, with a new boot in that log.
    """

    def step(at: Breaking) -> None:
        path = at.layout.log.resolve()
        before = path.read_bytes() if path.exists() else b""
        after = change(before)
        if after == before:
            raise RefusedError("the log has no such line", hint="inv logs")
        at.layout.restart_due.touch()
        with path.open("r+b") as file:
            file.write(after)
            file.truncate()

    return step


def _without_rank(log: bytes) -> bytes:
    lines = log.splitlines(keepends=True)
    return b"".join(line for line in lines if not (b" TP1]" in line and b"capture: draft input" in line))


def _without_beginning(log: bytes) -> bytes:
    before, ready, after = log.rpartition(READY)
    return (before.rpartition(b"\n")[2] + ready + after) if ready else log


def _with_another_boot(log: bytes) -> bytes:
    """The record of the last boot once more, and why that server did not come up."""
    record = next((line for line in reversed(log.splitlines(keepends=True)) if b"server_args=" in line), b"")
    error = b"OSError: [Errno 98] error while attempting to bind on address: address already in use\n"
    return log + record + b"Traceback (most recent call last):\n" + error if record else log


LOGS = (
    Fault(
        "log-rank-silent",
        "One rank did not log its capture",
        "takes the lines of rank 1 about its capture out of the log",
        ("log.capture",),
        (_rewritten(_without_rank),),
    ),
    Fault(
        "log-beginning-gone",
        "The log has lost its beginning",
        "cuts the log off before its ready line, as a rotation by copying and truncating does",
        ("log.capture",),
        (_rewritten(_without_beginning),),
        undetermined=("log.capture",),
    ),
    Fault(
        "log-other-boot",
        "The log's last lines are of another server",
        "adds a second start to the log, which failed because the port was taken",
        ("log.boot", "log.errors"),
        (_rewritten(_with_another_boot),),
        also=follows("fail", "the last boot in the log captured nothing", "log.capture"),
    ),
    Fault(
        "log-gone",
        "There is no log",
        "takes the log's name away: the server writes on to a file without one",
        ("log.boot", "log.capture", "log.errors"),
        (remove(lambda at: at.log),),
        undetermined=("log.boot", "log.capture", "log.errors"),
    ),
)
