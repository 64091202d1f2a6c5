"""End processes: named by pid and start time, asked first, killed last, and looked at again."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import procfs, procs
from .base import OpError, changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .base import Context

ORPHANS_TERM_S = 10.0
SETTLE_S = 1.0
LONGEST_NAP_S = 0.1


class _Target:
    """One process that was named, and what became of it."""

    def __init__(self, pid: int, ticks: int) -> None:
        self.pid = pid
        self.ticks = ticks
        found = procfs.stat(pid)
        self.same = found is not None and found["starttime_ticks"] == ticks
        process = {**found, "argv": procfs.argv(pid)} if found else {"argv": [], "comm": "?"}
        self.title = procs.title(process) if self.same else None
        self.role = procs.role(process) if self.same else None
        self.ended_by = "none"
        self.sent: str | None = None
        self.left: str | None = None if self.same or found is None else "changed"
        self.handle = _pidfd(pid) if self.alive() else None
        if self.handle is not None and not self.alive():  # it ended between the look and the handle
            self.close()

    def alive(self) -> bool:
        return procfs.alive(self.pid, self.ticks)

    def signal(self, number: int) -> None:
        """Send it to this process and no other; what happened is kept in `sent` and `left`."""
        if not self.alive():
            return
        try:
            if self.handle is not None:
                signal.pidfd_send_signal(self.handle, number)  # type: ignore[attr-defined,unused-ignore]
            else:
                os.kill(self.pid, number)
            self.sent = {signal.SIGTERM: "TERM", signal.SIGKILL: "KILL"}.get(number, self.sent)  # type: ignore[call-overload]
        except ProcessLookupError:
            return
        except PermissionError:
            self.left = "permission"

    def settle(self) -> None:
        """Say how it stands now."""
        if self.left == "changed":
            return
        if self.alive():
            self.left = self.left or ("unkillable" if self.sent == "KILL" else None)
        else:
            found = procfs.stat(self.pid)
            self.left = "zombie" if found and found["starttime_ticks"] == self.ticks else None

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def _pidfd(pid: int) -> int | None:
    """A handle that means this process whatever becomes of its number; None before Python 3.9, Linux 5.3."""
    with contextlib.suppress(AttributeError, OSError):
        return int(os.pidfd_open(pid))  # type: ignore[attr-defined,unused-ignore]
    return None


def wait_for_end(targets: Iterable[_Target], deadline: float, ctx: Context) -> list[_Target]:
    """Wait until they have ended or the deadline (time.monotonic) is there; those that live on."""
    import select

    living = [target for target in targets if target.alive()]
    nap_s = 0.005
    while living and time.monotonic() < deadline and not ctx.cancelled():
        poll = select.poll()
        for target in living:
            if target.handle is not None:
                poll.register(target.handle, select.POLLIN)
        poll.poll(1000 * min(nap_s, max(0.0, deadline - time.monotonic())))
        nap_s = min(2 * nap_s, LONGEST_NAP_S)
        living = [target for target in living if target.alive()]
    return living


def _ask(targets: list[_Target]) -> None:
    for target in targets:
        target.signal(signal.SIGTERM)
        found = procfs.stat(target.pid)
        if found and found["state"] in ("T", "t"):
            target.signal(signal.SIGCONT)  # a stopped process acts on SIGTERM only when it goes on


@changes
def terminate(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{processes: [{pid, starttime_ticks}], term_timeout_s, kill_timeout_s} -> {processes: [...]}.

    SIGTERM to the launchers among them first, in the given order, which take their children along; then to
    what is left of the others; SIGKILL to what is still there after that.
    -> [{pid, starttime_ticks, title, ended_by: "TERM|KILL|none", left}]. ended_by: the last signal that was
    sent to it or, for what ended with its launcher, to that; "none": it had ended before, or lives on. left:
    null, "zombie" (ended, its parent did not take notice), "unkillable", "permission", "changed" (the pid
    is another process by now, which was not touched). OpError "precondition" before anything is sent: a
    pid is this helper, one of its ancestors or init. OpError "cancelled" with `processes`.
    """
    wanted = [(int(process["pid"]), int(process["starttime_ticks"])) for process in params["processes"]]
    protected = {0, 1, os.getpid(), *procfs.ancestors(os.getpid())}
    own = sorted({pid for pid, _ in wanted} & protected)
    if own:
        raise OpError("precondition", f"not to be ended: {own} is this helper, an ancestor of it or init")
    term_s = float(params.get("term_timeout_s") or 0)
    targets = [_Target(pid, ticks) for pid, ticks in wanted]
    try:
        living = [target for target in targets if target.handle is not None or target.alive()]
        launchers = [target for target in living if target.role == "launcher"]
        if launchers:
            _ask(launchers)
            deadline = time.monotonic() + term_s
            wait_for_end(launchers, deadline, ctx)
            settled = min(deadline, time.monotonic() + SETTLE_S)
            _credit(living, wait_for_end(living, settled, ctx), "TERM")
            term_s = min(term_s, ORPHANS_TERM_S)
        rest = [target for target in living if target.alive() and target.role != "launcher"]
        if rest and not ctx.cancelled():
            _ask(rest)
            # A launcher that ignores SIGTERM has had its time; its children get theirs.
            wait_for_end(rest, time.monotonic() + term_s, ctx)
        still = [target for target in living if target.alive()]
        _credit(living, still, "TERM")
        if still and not ctx.cancelled():
            for target in still:
                target.signal(signal.SIGKILL)
            left = wait_for_end(still, time.monotonic() + float(params.get("kill_timeout_s") or 5), ctx)
            _credit(still, left, "KILL")
        for target in targets:
            target.settle()
        result = [
            {
                "pid": target.pid,
                "starttime_ticks": target.ticks,
                "title": target.title,
                "ended_by": target.ended_by,
                "left": target.left,
            }
            for target in targets
        ]
    finally:
        for target in targets:
            target.close()
    if ctx.cancelled() and any(target.alive() for target in targets):
        raise OpError("cancelled", "ending processes was cancelled", processes=result)
    return {"processes": result}


def _credit(before: list[_Target], living: list[_Target], by: str) -> None:
    """Those that ended since, ended by this."""
    for target in before:
        if target not in living and target.ended_by == "none":
            target.ended_by = by


OPS = {"terminate": terminate}
