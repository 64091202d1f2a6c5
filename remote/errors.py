"""Every error that fixops reports, with its exit code.

An error is one short message: what happened, on which node, and what to type next. The exit codes
are the interface that scripts and the on-call runbook hold on to.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    OK = 0
    BUG = 1
    USAGE = 2
    CONNECT = 3
    LOCKED = 4
    REFUSED = 5
    UNHEALTHY = 6
    CHECK_FAILED = 7
    UNDETERMINED = 8
    INEFFECTIVE = 9
    INTERRUPTED = 130


# On a group of nodes the command's exit code is that of the worst node, in this order.
WORST_FIRST = (
    ExitCode.INTERRUPTED,
    ExitCode.CONNECT,
    ExitCode.BUG,
    ExitCode.UNHEALTHY,
    ExitCode.CHECK_FAILED,
    ExitCode.REFUSED,
    ExitCode.LOCKED,
    ExitCode.USAGE,
    ExitCode.UNDETERMINED,
    ExitCode.INEFFECTIVE,
    ExitCode.OK,
)


def worst(codes: list[ExitCode]) -> ExitCode:
    """The exit code of a group: 3 > 1 > 6 > 7 > 5 > 4 > 8 > 9 > 0."""
    return min(codes, key=WORST_FIRST.index, default=ExitCode.OK)


class FixopsError(Exception):
    """Something the engineer can act on. `hint` is what to type or look at next; `node` is the node that the
    message names: of one without it the command puts the node's name before the message."""

    exit_code = ExitCode.BUG
    code = "bug"

    def __init__(
        self, message: str, *, hint: str = "", node: str | None = None, data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.node = node
        self.data = data or {}


class InternalError(FixopsError):
    """A bug in fixops. Whoever raises it has printed the traceback: nothing else helps to find it."""

    code = "internal"


class NotBegun(FixopsError):
    """Said of the nodes of a group that a command did not come to. It ends with the code of the node at which
    it stopped: this one is the least of all."""

    exit_code = ExitCode.OK
    code = "not-begun"


class UsageError(FixopsError):
    exit_code = ExitCode.USAGE
    code = "usage"


class InventoryError(UsageError):
    code = "inventory"


class BundleError(UsageError):
    code = "bundle"


class ConnectError(FixopsError):
    exit_code = ExitCode.CONNECT
    code = "connect"


class LockedError(FixopsError):
    exit_code = ExitCode.LOCKED
    code = "locked"


class RefusedError(FixopsError):
    """A precondition does not hold. Whoever raises it has changed nothing, or says what it put back."""

    exit_code = ExitCode.REFUSED
    code = "refused"


class UnhealthyError(FixopsError):
    exit_code = ExitCode.UNHEALTHY
    code = "unhealthy"


class InterruptedByUser(FixopsError):
    exit_code = ExitCode.INTERRUPTED
    code = "interrupted"


class NodeError(Exception):
    """An operation on the node failed on purpose: `kind` says how (see remote/node/base.py)."""

    def __init__(self, kind: str, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.data = data or {}
