"""The server that runs, as a picture shows it: which boot it is, where it writes, how far it has come."""

from __future__ import annotations

from dataclasses import dataclass

from .ownership import Process
from .picture import Picture


@dataclass(frozen=True)
class Boot:
    """A server that was started: its process by pid and start time, and its log.

    `offset`: the first byte of the log that is this boot's. `alive`: it still ran when it was looked at.
    """

    boot_id: str
    pid: int
    starttime_ticks: int
    start_time: float
    log: str
    offset: int = 0
    alive: bool = True


def launcher(picture: Picture) -> Process | None:
    """The first process of our server; None where none runs, or the processes could not be read."""
    group = picture.ownership.server if picture.ownership else None
    return group.launcher if group else None


def boot_id(picture: Picture) -> str | None:
    """The boot that this toolkit started and that still runs, by pid and start time."""
    found = launcher(picture)
    if found is None:
        return None
    for boot in (picture.facts.get("state") or {}).get("boots", []):
        if (boot.get("pid"), boot.get("starttime_ticks")) == (found.pid, found.starttime_ticks):
            return str(boot.get("boot_id") or boot.get("id"))
    return None


def boot_of(picture: Picture) -> Boot | None:
    """The running server as a boot that can be waited for, whoever started it."""
    found = launcher(picture)
    if found is None:
        return None
    starts = (picture.facts.get("log") or {}).get("boots") or []
    return Boot(
        boot_id=boot_id(picture) or "",
        pid=found.pid,
        starttime_ticks=found.starttime_ticks,
        start_time=found.start_time,
        log=picture.node.server.log,
        offset=starts[-1]["offset"] if starts else 0,
    )


def log_files(picture: Picture) -> list[str]:
    """The files that the running server has as its standard output and error; empty where that cannot be
    seen, or none runs."""
    found = launcher(picture)
    for process in (picture.facts.get("procs") or {}).get("processes", []):
        if found is not None and process["pid"] == found.pid:
            return list(process.get("log_fds") or [])
    return []


def still_starting(picture: Picture) -> bool:
    """Does the log that was read tell that the running server, whose own it is, has not come up yet?"""
    log = picture.facts.get("log") or {}
    starting = picture.boot is not None and picture.boot.state == "starting"
    return starting and log.get("real_path") in log_files(picture)


def silent_s(picture: Picture) -> float:
    """For how many seconds nothing was written to the log, by the node's clock; 0 where that is not told."""
    now, written = (
        (picture.facts.get("node") or {}).get("time"),
        (picture.facts.get("log") or {}).get("mtime"),
    )
    return max(0.0, now - written) if now is not None and written is not None else 0.0
