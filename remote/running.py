"""The server that runs, as a picture shows it: which boot it is, where it writes, how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import takewhile

from .checks import Evidence
from .inventory import Node, command
from .ownership import Process
from .picture import Facts, Picture
from .secrets import same_command

# A log's times are local, of a zone that it does not name: the moment that one means is at most so much
# later than if it were UTC (UTC-12 is the last zone).
LAST_ZONE_S = 12 * 3600.0
# What a busy server's /health takes before it fails, of the 20 s that it has (case 046).
PATIENCE_OF_HEALTH_S = 15.0


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


def booted(node: Node, facts: Facts) -> list[tuple[int, int]]:
    """(pid, start in ticks) of the processes that this toolkit started as the node's server.

    Not as another of the inventory's servers: one machine may serve two, each on its own GPUs.
    """
    # A pid and its start name a process within one boot of the kernel only.
    kernel = facts.get("node", {}).get("boot_id")
    return [
        (boot["pid"], boot["starttime_ticks"])
        for boot in facts.get("state", {}).get("boots", [])
        if boot.get("pid") is not None
        and boot.get("kernel_boot_id") == kernel
        and (boot.get("record") or {}).get("server") in (None, node.server_name)
    ]


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


def process_facts(picture: Picture) -> Facts:
    """What the node tells of the running server's first process; empty where none runs."""
    found = launcher(picture)
    processes = (picture.facts.get("procs") or {}).get("processes", [])
    return next((each for each in processes if found is not None and each["pid"] == found.pid), {})


def started_as_meant(picture: Picture) -> bool:
    """Has the running server the inventory's very command line? Then a start anew changes no argument."""
    return bool(same_command(command(picture.node), process_facts(picture).get("argv") or []))


def started_otherwise(picture: Picture) -> list[str]:
    """How the running server was started, where the inventory would start it by other words: a wrapper,
    another interpreter. A start anew may then be another server, or none."""
    argv = process_facts(picture).get("argv") or []
    now, then = (" ".join(takewhile(_is_no_option, words)) for words in (argv, command(picture.node)))
    return [f"it runs as `{now}`, and will be started as `{then}`"] if argv and now != then else []


def _is_no_option(word: str) -> bool:
    return not word.startswith("--")


def log_files(picture: Picture) -> list[str]:
    """The file that the running server has as its standard error, where SGLang logs; empty where that cannot
    be seen, or none runs."""
    return list(process_facts(picture).get("log_fds") or [])


def not_its_own(picture: Picture) -> Evidence | None:
    """Why the log's last boot is not known to be the running server's; None where it is, or none runs.

    The one place that decides whose evidence the log is. What is not the server's says nothing of it, and
    so does a file that it is not seen to write to. Another port, or a start that was over before the server's
    began, in whatever zone its time is: that boot is of another server, which appends to the same file.
    """
    path, boot, first = picture.node.server.log, picture.boot, launcher(picture)
    if first is not None:
        elsewhere = written_elsewhere(picture)
        if elsewhere is not None:
            return elsewhere
        if not log_files(picture):
            return Evidence(
                f"/proc/{first.pid}/fd", f"it cannot be seen where pid {first.pid} writes its log"
            )
    if boot is None or boot.record is None:
        return None
    where, port = f"{path}:{boot.record}", boot.args.get("port")
    if isinstance(port, int) and port != picture.node.server.port:
        return Evidence(where, f"the last boot in {path} is of a server on port {port}")
    latest_s = _latest_s(boot.started_at)
    if first is not None and latest_s is not None and latest_s < first.start_time:
        return Evidence(where, f"the last boot in {path} began {boot.started_at}, long before the server")
    return None


def written_elsewhere(picture: Picture) -> Evidence | None:
    """The running server's real log, if it is not the inventory's: that one is then another boot's."""
    path, written, first = picture.node.server.log, log_files(picture), launcher(picture)
    if first is None or not written or picture.section("log").get("real_path", path) in written:
        return None
    return Evidence(f"/proc/{first.pid}/fd/2", f"the server writes to {written[0]}, not to {path}")


def _latest_s(stamp: str | None) -> float | None:
    """The latest moment that a log's time can mean, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(stamp or "").replace(tzinfo=timezone.utc).timestamp() + LAST_ZONE_S
    except ValueError:
        return None


def still_starting(picture: Picture) -> bool:
    """Does the log that was read tell that the running server, whose own it is, has not come up yet?"""
    starting = picture.boot is not None and picture.boot.state == "starting"
    return starting and launcher(picture) is not None and not_its_own(picture) is None


def silent_s(picture: Picture) -> float:
    """For how many seconds nothing was written to the log, by the node's clock; 0 where that is not told."""
    now, written = (
        (picture.facts.get("node") or {}).get("time"),
        (picture.facts.get("log") or {}).get("mtime"),
    )
    return max(0.0, now - written) if now is not None and written is not None else 0.0


def came_up(picture: Picture) -> bool:
    """Does it generate, though the log was read, or /health asked, when it did not yet?"""
    http = picture.facts.get("http") or {}
    generate, health = http.get("generate") or {}, http.get("health") or {}
    starting = picture.boot is not None and picture.boot.state == "starting"
    early = health.get("status") != 200 and (health.get("elapsed_s") or 0.0) < PATIENCE_OF_HEALTH_S
    return generate.get("status") == 200 and (starting or early)
