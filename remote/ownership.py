"""Whose process is it? Decides from facts what is our server, what is stale, and what is foreign.

A process is named by pid and start time. Only a process that is ours to signal may be ended; the
reason is part of the answer. Never by name alone: a title says what a process is, not whose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Facts = Mapping[str, Any]

# Roles of what a server starts for a while (remote/node/procs.py).
_COME_AND_GO = ("member", "resource-tracker")
# Said of a process that is foreign for where it is.
AWAY = " (in a container, or under another root)"


@dataclass(frozen=True)
class Process:
    pid: int
    starttime_ticks: int
    title: str
    role: str | None
    user: str | None
    uid: int | None
    ppid: int
    sid: int
    state: str
    start_time: float
    # A zombie whose other threads live: a stuck one, which still holds what it had.
    threads_live: bool = False
    # Its network namespace and its root directory, None where that is not told.
    net: str | None = None
    root: str | None = None

    @property
    def alive(self) -> bool:
        return self.state not in ("Z", "X")

    @property
    def gone(self) -> bool:
        """It holds nothing any more, and no signal is of use: only its parent has not looked yet."""
        return not self.alive and not self.threads_live


@dataclass(frozen=True)
class Group:
    """The processes of one server: one session, or one tree where the starter made no session. `here`:
    whether they have our network and our root directory; elsewhere a port number means another port, and
    a path another file."""

    launcher: Process | None
    members: tuple[Process, ...]
    port: int | None
    here: bool = True

    @property
    def alive(self) -> tuple[Process, ...]:
        return tuple(member for member in self.members if member.alive)

    def ranks(self) -> tuple[Process, ...]:
        return tuple(member for member in self.alive if member.role == "scheduler")


@dataclass(frozen=True)
class Stale:
    process: Process
    why: str


@dataclass(frozen=True)
class Foreign:
    """Somebody else's: never touched. `what` is what it holds: a GPU (`gpu`, -1 for one that is not told), or
    our port."""

    pid: int | None
    title: str
    user: str
    what: str
    gpu: int | None = None

    def __str__(self) -> str:
        return f"pid {self.pid} {self.title} of {self.user} {self.what}"


@dataclass(frozen=True)
class Ownership:
    server: Group | None
    stale: tuple[Stale, ...]
    foreign: tuple[Foreign, ...]
    others: tuple[Group, ...]
    port_holder: Process | None
    port_held: bool

    def to_end(self) -> list[Process]:
        """What must go before a start: the server itself, then what is stale. Launchers first."""
        members = list(self.server.members) if self.server else []
        members += [each.process for each in self.stale if each.process not in members]
        return sorted(members, key=lambda process: process.role != "launcher")


def processes_of(facts: Facts) -> list[Process]:
    return [
        Process(
            pid=raw["pid"],
            starttime_ticks=raw["starttime_ticks"],
            title=raw["title"],
            role=raw["role"],
            user=raw["user"],
            uid=raw["uid"],
            ppid=raw["ppid"],
            sid=raw["sid"],
            state=raw["state"],
            start_time=raw["start_time"],
            threads_live=bool(raw.get("threads_alive_of_zombie")),
            net=raw.get("net"),
            root=raw.get("root"),
        )
        for raw in facts.get("processes", [])
    ]


def assess(
    procs: Facts,
    gpus: Facts,
    *,
    port: int,
    our_uid: int,
    our_gpus: frozenset[int] | None,
    booted: Iterable[tuple[int, int]] = (),
) -> Ownership:
    """Sort the node's SGLang processes, the port's holder and the GPUs' holders.

    `our_gpus` are the indices that our server uses, None for all of the node's, empty for a server on the
    CPU. `booted` are (pid, start ticks) of servers that this toolkit started: they are ours on any port.
    """
    listeners = procs.get("listeners", [])
    holder_pids = {each["pid"] for each in listeners if each.get("pid") is not None}
    booted_set = set(booted)
    processes = _with_other_launchers(processes_of(procs), holder_pids, booted_set)
    by_pid = {process.pid: process for process in processes}
    argv_of = {raw["pid"]: raw.get("argv") or [] for raw in procs.get("processes", [])}
    # To a server that uses no GPU it is all the same who holds one: only its port can be in the way.
    without = our_gpus is not None and not our_gpus
    gpu_pids = set() if without else _gpu_pids(gpus, our_gpus)
    us = procs.get("self") or {}
    groups = _groups(processes, argv_of, holder_pids, port, us)

    server: Group | None = None
    stale: list[Stale] = []
    others: list[Group] = []
    ours: set[int] = set()
    # A server whose rank we see on our port beats one that only says it wants the port.
    for group in sorted(groups, key=lambda group: not holder_pids & {m.pid for m in group.members}):
        reason = _claim(group, port, our_uid, booted_set, by_pid, gpu_pids, holder_pids)
        if reason is None:
            others.append(group)
            continue
        ours.update(member.pid for member in group.members)
        if server is None and group.launcher is not None and group.port == port:
            server = group
        else:
            stale += [Stale(member, reason) for member in group.members if not member.gone]

    holder = next((by_pid[pid] for pid in holder_pids if pid in by_pid), None)
    foreign = _foreign_port(listeners, by_pid, ours, port)
    foreign += [] if without else _foreign_holders(gpus, by_pid, ours, our_gpus)
    away = {process.pid for process in processes if not _in_our_world(process, us)}
    foreign = [replace(each, what=each.what + AWAY) if each.pid in away else each for each in foreign]
    return Ownership(
        server=server,
        stale=tuple(stale),
        foreign=tuple(foreign),
        others=tuple(others),
        port_holder=holder,
        port_held=bool(listeners),
    )


def news(before: Ownership, now: Ownership, ends: Iterable[Process]) -> str | None:
    """What a plan that was made for `before`, and ends `ends`, does not know of `now`; None for nothing.

    Another server, another listener on the port, or one more process to end. One that has gone is no news,
    and neither is what comes and goes beside a server's own processes (compilers, for one).
    """
    was, first = _launcher_of(before), _launcher_of(now)
    if _names([was]) != _names([first]):
        return f"pid {first.pid} is the server now" if first else "the server has gone"
    if (before.port_held, _names([before.port_holder])) != (now.port_held, _names([now.port_holder])):
        return (
            f"pid {now.port_holder.pid} listens now" if now.port_holder else "another listener has the port"
        )
    to_end = now.to_end() if _names([was]) & _names(ends) else [each.process for each in now.stale]
    known = _names(before.to_end())
    new = [p for p in to_end if p.role not in _COME_AND_GO and not _names([p]) <= known]
    return f"pid {new[0].pid} {new[0].title} is there now" if new else None


def _launcher_of(owned: Ownership) -> Process | None:
    return owned.server.launcher if owned.server else None


def _names(processes: Iterable[Process | None]) -> set[tuple[int, int]]:
    """What tells a process from every other one: its pid and start."""
    return {(each.pid, each.starttime_ticks) for each in processes if each is not None}


def _with_other_launchers(
    processes: Sequence[Process], holder_pids: set[int], booted: set[tuple[int, int]]
) -> list[Process]:
    """A launcher, however it was started (by another `command` of the inventory, by a wrapper of somebody's
    own): who listens on the port and has SGLang's ranks for children, and who was booted here and runs no
    launcher itself."""
    by_pid = {process.pid: process for process in processes}
    parents = {process.ppid for process in processes if process.role in ("scheduler", "detokenizer")}
    above = {
        up.pid for process in processes if process.role == "launcher" for up in _ancestors(process, by_pid)
    }
    found = holder_pids & parents
    found |= {p.pid for p in processes if (p.pid, p.starttime_ticks) in booted and p.pid not in above}
    return [
        replace(process, role="launcher")
        if process.pid in found and process.role in (None, "member")
        else process
        for process in processes
    ]


def _groups(
    processes: Sequence[Process],
    argv_of: Mapping[int, list[str]],
    holder_pids: set[int],
    port: int,
    us: Facts,
) -> list[Group]:
    """One group per server: by session, and inside a session by launcher where it has several."""
    by_pid = {process.pid: process for process in processes}
    buckets: dict[tuple[str, int], list[Process]] = {}
    for process in processes:
        if process.role is not None:
            buckets.setdefault(_family(process, by_pid), []).append(process)
    # What lost its parent joins the launcher of its own session, when there is exactly one.
    for key in [key for key in buckets if key[0] == "session"]:
        homes = [k for k in buckets if k[0] == "launcher" and by_pid[k[1]].sid == key[1]]
        if len(homes) == 1:
            buckets[homes[0]] += buckets.pop(key)
    groups = []
    for key, members in buckets.items():
        launcher = by_pid.get(key[1]) if key[0] == "launcher" else None
        # A zombie launcher serves nobody: what is left of its server are orphans.
        alive_launcher = launcher if launcher is not None and launcher.alive else None
        if holder_pids & {member.pid for member in members}:
            listening: int | None = port
        else:
            listening = _argv_port(argv_of.get(launcher.pid, [])) if launcher else None
        here = all(_in_our_world(member, us) for member in members)
        groups.append(Group(alive_launcher, tuple(members), listening, here))
    return groups


def _in_our_world(process: Process, us: Facts) -> bool:
    """Not in a container or a chroot, as far as that is told."""
    pairs = (process.net, us.get("net")), (process.root, us.get("root"))
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _family(process: Process, by_pid: Mapping[int, Process]) -> tuple[str, int]:
    """What a process belongs to: its launcher; a living program that runs SGLang within itself (sgl.Engine);
    or its session, when the parent is lost."""
    if process.role == "launcher":
        return "launcher", process.pid
    top = process
    for parent in _ancestors(process, by_pid):
        if parent.role == "launcher":
            return "launcher", parent.pid
        if parent.role is None:
            # SGLang's launcher and its children share a session: an init that adopted one has its own.
            if parent.alive and parent.sid == top.sid:
                return "program", parent.pid
            break
        top = parent
    return "session", process.sid


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> Iterator[Process]:
    seen = {process.pid}
    parent = by_pid.get(process.ppid)
    while parent is not None and parent.pid not in seen:
        yield parent
        seen.add(parent.pid)
        parent = by_pid.get(parent.ppid)


def _argv_port(argv: Sequence[str]) -> int | None:
    """`--port N` or `--port=N`; SGLang's own default is 30000 (server_args.py, all versions)."""
    for index, word in enumerate(argv):
        value = None
        if word == "--port" and index + 1 < len(argv):
            value = argv[index + 1]
        elif word.startswith("--port="):
            value = word.split("=", 1)[1]
        if value is not None:
            return int(value) if value.isdigit() else None
    return 30000


def _gpu_pids(gpus: Facts, our_gpus: frozenset[int] | None) -> set[int] | None:
    """Who holds a GPU of ours; None when the node does not tell."""
    if not gpus.get("holders_known"):
        return None
    ours = (None, *our_gpus) if our_gpus is not None else None
    return {each["pid"] for each in gpus.get("holders", []) if ours is None or each["gpu_index"] in ours}


def _claim(
    group: Group,
    port: int,
    our_uid: int,
    booted: set[tuple[int, int]],
    by_pid: Mapping[int, Process],
    gpu_pids: set[int] | None,
    port_pids: set[int],
) -> str | None:
    """Why this group is ours to end, or None when it is not."""
    if any((member.pid, member.starttime_ticks) in booted for member in group.members):
        return "started by fixops"
    if not group.here or not _runs_as(group, our_uid):
        return None
    if group.launcher is not None:
        return f"serves port {port}" if group.port == port else None
    if any(_family(member, by_pid)[0] == "program" for member in group.members):
        return None
    pids = {member.pid for member in group.members}
    if gpu_pids is not None and not pids & (gpu_pids | port_pids):
        # It holds neither a GPU of ours nor our port: it is in nobody's way.
        return None
    return "its launcher is gone"


def _runs_as(group: Group, uid: int) -> bool:
    """By SGLang's own processes: a compiler that one of them ran for a moment may have ended before its user
    could be read, and what is setuid has another one."""
    own = [member for member in group.members if member.role not in ("member", "resource-tracker")]
    return {member.uid for member in own or group.members} - {None} == {uid}


def _foreign_port(
    listeners: Sequence[Facts], by_pid: Mapping[int, Process], ours: set[int], port: int
) -> list[Foreign]:
    found = []
    for listener in listeners:
        pid = listener.get("pid")
        if pid in ours:
            continue
        process = by_pid.get(pid) if pid is not None else None
        found.append(
            Foreign(
                pid=pid,
                title=process.title if process else "a process that is not visible to us",
                user=(process and process.user) or f"uid {listener.get('uid', '?')}",
                what=f"listens on port {port}",
            )
        )
    return found


def _foreign_holders(
    gpus: Facts, by_pid: Mapping[int, Process], ours: set[int], our_gpus: frozenset[int] | None
) -> list[Foreign]:
    found = []
    for holder in gpus.get("holders", []):
        pid, index = holder.get("pid"), holder.get("gpu_index")
        if pid is None or pid in ours:
            continue
        if our_gpus is not None and index is not None and index not in our_gpus:
            continue
        process = by_pid.get(pid)
        if process is not None and not process.alive:
            continue  # a zombie holds nothing that a signal would free; the GPU check sees the memory
        used = holder.get("used_mib")
        amount = f"{used} MiB" if used is not None else "memory"
        found.append(
            Foreign(
                pid=pid,
                title=process.title if process else holder.get("name") or "unknown",
                user=(process.user or "unknown")
                if process
                else "not visible (another container or namespace?)",
                what=f"holds {amount} of GPU {index if index is not None else '?'}",
                gpu=-1 if index is None else index,
            )
        )
    return found
