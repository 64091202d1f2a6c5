"""Who and where the helper is, and which processes are below it."""

# pathlib is not imported on the node: it costs milliseconds of its CPU.
# ruff: noqa: PTH111, PTH117, PTH118

from __future__ import annotations

import os
import sys

from . import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def default_state_dir() -> str:
    """/var/lib/fixops for root, else fixops in $XDG_STATE_HOME or ~/.local/state."""
    if os.geteuid() == 0:
        return "/var/lib/fixops"
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return os.path.join(base, "fixops")


def describe(state_dir: str) -> dict[str, Any]:
    """The answer to "hello". `start_time` in seconds since the epoch, None if /proc does not tell."""
    ticks = (procfs.stat(os.getpid()) or {}).get("starttime_ticks")
    return {
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "pid": os.getpid(),
        "starttime_ticks": ticks,
        "start_time": None if ticks is None else procfs.start_time(ticks),
        "boot_id": procfs.boot_id(),
        "uid": os.geteuid(),
        "user": procfs.user_of(os.geteuid()),
        "hostname": os.uname().nodename,
        "state_dir": state_dir,
        "pycache_prefix": sys.pycache_prefix,
    }


def descendants(ancestor: int) -> list[int]:
    """Processes below `ancestor` now. Detached ones belong to init and are not among them."""
    children: dict[int, list[int]] = {}
    for pid in procfs.pids():
        found = procfs.stat(pid)
        if found is not None:
            children.setdefault(found["ppid"], []).append(pid)
    below: list[int] = []
    waiting = [ancestor]
    while waiting:
        nearest = children.get(waiting.pop(), [])
        below += nearest
        waiting += nearest
    return below
