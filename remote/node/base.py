"""What every operation on the node is written against.

An operation is a function `name(params, ctx)` that takes the request's parameters (plain JSON values),
and returns a dict of plain JSON values. A module offers its operations as

    OPS = {"write_files": write_files, "facts.files": files}

a literal with plain strings as keys: the control side reads the names without importing the module.
An operation that changes the node says so with `changes`:

    @changes
    def write_files(params, ctx): ...

and is refused with kind "not-locked" unless this helper holds the lock of its state directory. Each
request runs in a thread of its own, so an operation keeps nothing in module variables that a second
one could meet. Long operations look at `ctx.cancelled()` (or wait with `ctx.wait`), which also becomes
true when the connection has ended; an operation that changes the node is then given a short time to
come to a clean end, every other one is dropped where it stands. Child processes are killed when the
helper ends unless they were detached (own session, and no longer a descendant of the helper).

Children: standard input, output and error of the helper are /dev/null while operations run, so a child
process never holds the connection open and cannot disturb the replies.
"""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False  # `typing` is not imported on the node: it costs milliseconds of its CPU
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    Op = Callable[[dict[str, Any], "Context"], dict[str, Any]]
    AnyOp = TypeVar("AnyOp", bound=Op)

    class StateLike(Protocol):
        """What the dispatcher needs of state.State(directory): the rest is the operations' own affair."""

        def holds_lock(self) -> bool:
            """Does this helper process hold the lock of the state directory?"""

        def journal(self, entry: dict[str, Any]) -> None:
            """Append one entry to the journal, durably."""

        def close(self) -> None:
            """The helper ends: release the lock if this process holds it."""


KINDS = (
    "precondition",
    "missing",
    "no-space",
    "read-only",
    "permission",
    "compile",
    "locked",
    "not-locked",
    "timeout",
    "cancelled",
    "unsupported",
    "internal",
)


class OpError(Exception):
    """The only error that an operation raises on purpose. `kind` is one of KINDS; `data` is plain JSON.

    Whatever else escapes from an operation is reported as kind "internal" with the place where it happened.
    """

    def __init__(self, kind: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.data = data


def changes(op: AnyOp) -> AnyOp:
    """Mark an operation that changes the node: it needs the lock."""
    op.CHANGES = True  # type: ignore[attr-defined]
    return op


def notes(op: AnyOp) -> AnyOp:
    """Mark an operation that only adds to the journal: it comes to a clean end as one that changes the node
    does, and needs no lock: entries never mix, and what was seen is told after a lock was taken away, too."""
    op.NOTES = True  # type: ignore[attr-defined]
    return changes(op)


class Context:
    """One request's side of the helper."""

    def __init__(
        self,
        *,
        emit: Callable[[dict[str, Any]], None],
        state: Callable[[], StateLike],
        deadline: float,
        cancel: threading.Event | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`emit` sends an event; `state` makes the state when first used; `deadline` is of `monotonic`."""
        self.deadline = deadline
        self.cancel = cancel or threading.Event()
        self._emit = emit
        self._state = state
        self._clock = clock
        self._monotonic = monotonic

    @property
    def state(self) -> Any:
        """The state.State of this helper's state directory (one per helper, made when first asked for)."""
        return self._state()

    def event(self, payload: dict[str, Any]) -> None:
        """Send one event to whoever made the request. Raises OSError when the connection has gone."""
        self._emit(payload)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def remaining_s(self) -> float:
        """Seconds until this operation's deadline, never negative."""
        return max(0.0, self.deadline - self._monotonic())

    def cancelled(self) -> bool:
        """Was the operation cancelled, or has the connection ended?"""
        return self.cancel.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` (and never beyond the deadline); true when cancelled meanwhile."""
        return self.cancel.wait(max(0.0, min(timeout_s, self.remaining_s())))

    def check(self) -> None:
        """Raise OpError "cancelled" or "timeout" when the operation must not go on."""
        if self.cancel.is_set():
            raise OpError("cancelled", "the operation was cancelled")
        if self.remaining_s() <= 0:
            raise OpError("timeout", "the operation's deadline has passed")
