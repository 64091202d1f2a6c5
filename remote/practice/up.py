"""Make the practice node, in the state that the incident's node was in."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from packaging.specifiers import SpecifierSet

from remote.errors import RefusedError, UsageError
from remote.practice import build, processes, record, server, ssh_server, wheels
from remote.practice.down import down
from remote.practice.layout import MARKER, Layout
from remote.practice.nvidia_smi import read_holders
from remote.practice.real import environment as real_environment
from remote.practice.real import node as real_node
from remote.practice.real.entry import READY_TIMEOUT_S as REAL_READY_TIMEOUT_S
from remote.practice.record import Record

DEFAULT_VERSION = "0.5.9"
# Later versions read their command line by other means (srt/arg_groups of 0.5.14).
SIMULATED = SpecifierSet(">=0.5.5,<0.5.14")
DEFAULT_GPUS = 8
READY_TIMEOUT_S = 60.0
# What can be brought back on a node that is there.
SSH, SERVER = "SSH server", "server"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Up:
    """`outcome` says what `up` had to do; `server_pid` is None while no server listens."""

    outcome: Literal["made", "already", "repaired"]
    repaired: tuple[str, ...]
    record: Record
    layout: Layout
    server_pid: int | None
    orphans: tuple[int, ...]
    took_s: float


def up(
    layout: Layout,
    *,
    version: str | None = None,
    ssh: ssh_server.Kind | None = None,
    gpus: int | None = None,
    real: bool = False,
    say: Say = lambda _: None,
) -> Up:
    """Make the node, or say what is there already; a node whose SSH server died gets a new one.

    Raises what `plan` does, and the errors of wheels.fetch, ssh_server.start, real.environment.build and
    UnhealthyError.
    """
    begin = time.monotonic()
    planned = plan(layout, version=version, ssh=ssh, gpus=gpus, real=real)
    if planned.there is None:
        make = _real(layout, planned.version, say) if real else _simulated(layout, planned, say)
        made = _make(layout, ssh, make)
        return _describe("made", (), made, layout, begin)
    if planned.broken:
        repaired = _repair(layout, planned.there, planned.broken, say)
        return _describe("repaired", planned.broken, repaired, layout, begin)
    return _describe("already", (), planned.there, layout, begin)


@dataclass(frozen=True)
class Plan:
    """What `up` would do: make a node if none is `there`, else repair what is `broken` of it."""

    there: Record | None
    broken: tuple[str, ...]
    version: str
    gpus: int
    real: bool


def plan(
    layout: Layout,
    *,
    version: str | None = None,
    ssh: ssh_server.Kind | None = None,
    gpus: int | None = None,
    real: bool = False,
) -> Plan:
    """What `up` would do with these wishes. Touches nothing, and asks no package index.

    None stands for 0.5.9, OpenSSH if it is installed, and 8 GPUs, or for what the existing node has. `real`
    is a node with SGLang itself, and no GPUs. Raises RefusedError (other wishes than the existing node's,
    damaged node, not Linux, somebody else's directory), UsageError (a version that cannot be had that way),
    LockedError (being made by another command), and the errors of real.environment.may_build and
    ssh_server.openssh.
    """
    if platform.system() != "Linux":
        raise RefusedError("the practice node needs Linux: it lives from /proc", hint="use a Linux machine")
    there = record.read(layout)
    if there is not None:
        _same_wishes(there, version, ssh, gpus, real=real)
        return Plan(there, _broken(layout, there), there.version, there.gpus, there.real)
    wanted = version or DEFAULT_VERSION
    count = _real_gpus(wanted, gpus) if real else _simulated_gpus(wanted, gpus)
    if ssh == "openssh":
        ssh_server.openssh()
    record.may_claim(layout)
    return Plan(None, (), wanted, count, real)


def _simulated_gpus(version: str, gpus: int | None) -> int:
    """How many GPUs a simulated node gets; an error if there can be no such node."""
    count = DEFAULT_GPUS if gpus is None else gpus
    if not 1 <= count <= 16:
        raise RefusedError(f"a practice node has 1 to 16 GPUs, not {count}", hint="inv practice.up --gpus 8")
    if version not in SIMULATED:
        raise UsageError(
            f"the simulated server knows SGLang 0.5.5 to 0.5.13, not {version}",
            hint=f"SGLang itself on the CPU: inv practice.up --real --sglang {real_environment.VERSIONS[-1]}",
        )
    return count


def _real_gpus(version: str, gpus: int | None) -> int:
    """None; an error if there can be no such node."""
    if gpus is not None:
        raise UsageError("a real practice node has no GPUs", hint="leave --gpus out, or --real")
    real_environment.may_build(version)
    return 0


# What makes everything but the SSH server: called while that comes up, it gives the node's record without it.
Make = Callable[[], Callable[[ssh_server.SshServer], Record]]


def _simulated(layout: Layout, planned: Plan, say: Say) -> Make:
    version, count = planned.version, planned.gpus
    whl = wheels.fetch(version)

    def make() -> Callable[[ssh_server.SshServer], Record]:
        say(f"unpacking {whl.name}")
        build.build(layout, whl, gpus=count)
        say("starting the incident's servers")
        port = _free_port()
        found = _start_servers(layout, port, count)
        return lambda ssh: Record(version, count, port, ssh, found)

    return make


def _real(layout: Layout, version: str, say: Say) -> Make:
    whl = wheels.fetch(version)
    environment = real_environment.build(version, say)

    def make() -> Callable[[ssh_server.SshServer], Record]:
        real_node.make(layout, whl, environment, say)
        say("starting SGLang")
        port = _free_port()
        old = _start_real(layout, port, version)
        return lambda ssh: Record(version, 0, port, ssh, {"old server": old}, real=True)

    return make


def _start_real(layout: Layout, port: int, version: str) -> processes.Known:
    started = server.start(layout, real_node.server_spec(layout, port=port, version=version))
    server.wait_ready(started, timeout_s=REAL_READY_TIMEOUT_S, every_s=0.2)
    return started.process


def _make(layout: Layout, ssh: ssh_server.Kind | None, make: Make) -> Record:
    record.claim(layout)
    connection: Future[ssh_server.SshServer] | None = None
    try:
        with ThreadPoolExecutor(max_workers=1) as beside:
            connection = beside.submit(_start_ssh, layout, ssh)
            finish = make()
            made = finish(connection.result())
        record.write(layout, made)
    except BaseException:
        # Half a node is of no use to anybody: its processes would be left without a record.
        if connection is not None and connection.exception() is None:
            ssh_server.stop(connection.result())
        layout.node_json.write_text("{}", encoding="utf-8")
        down(layout)
        raise
    return made


def _start_ssh(layout: Layout, kind: ssh_server.Kind | None) -> ssh_server.SshServer:
    return ssh_server.start(layout.ssh, kind=kind, path_prefix=[layout.bin], env={MARKER: str(layout.root)})


def _start_servers(layout: Layout, port: int, gpus: int) -> dict[str, processes.Known]:
    """An earlier server's ranks, re-parented to init, and the old server on the port, ready."""
    server.write_settings(layout, layout.simulator_settings, {})
    server.write_settings(layout, layout.first_settings, {"speed": server.FIRST_SPEED})
    # Both come up at once, so neither may mind what the other holds of a GPU by then.
    at_once = {"speed": server.FIRST_SPEED, "memory_is_limited": False}
    small = {"context_mib": 0, "weights_mib": server.ORPHAN_MIB, "draft_mib": 0, "kv_mib": 0, "graph_mib": 0}
    server.write_settings(layout, layout.orphans_settings, {**at_once, **small})
    server.write_settings(layout, layout.old_settings, at_once)
    earlier = server.start(
        layout,
        server.orphans_spec(layout, port=_free_port(), gpus=gpus, settings=layout.orphans_settings),
    ).process
    old = server.start(layout, server.server_spec(layout, port=port, gpus=gpus, settings=layout.old_settings))
    server.wait_ready(old, timeout_s=READY_TIMEOUT_S)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while processes.alive(earlier):
        if time.monotonic() > deadline:
            raise server.failure("the earlier server did not die", layout.orphans_log, 0)
        time.sleep(0.01)
    holders = [holder.pid for holder in read_holders(layout.gpus)]
    left = [pid for pid in holders if processes.session_of(pid) == earlier.pid]
    if len(left) != min(gpus, server.ORPHANS):
        raise server.failure("the earlier server left no orphans", layout.orphans_log, 0)
    found = {"old server": old.process}
    found.update({f"orphan {pid}": entry for pid in left if (entry := processes.known(pid))})
    return found


def _same_wishes(
    there: Record, version: str | None, ssh: ssh_server.Kind | None, gpus: int | None, *, real: bool
) -> None:
    if real and not there.real:
        raise RefusedError(
            "there is a practice node already, a simulated one",
            hint="inv practice.down, then inv practice.up --real again",
        )
    for what, wished, has in (
        ("SGLang", version, there.version),
        ("SSH server", ssh, there.ssh.kind),
        ("number of GPUs", gpus, there.gpus),
    ):
        if wished is not None and wished != has:
            raise RefusedError(
                f"there is a practice node already, its {what} is {has}, not {wished}",
                hint="inv practice.down, then inv practice.up again",
            )


def _broken(layout: Layout, there: Record) -> tuple[str, ...]:
    """What `_repair` has to bring back; RefusedError for a node whose files are damaged."""
    needed = (layout.python,) if there.real else (layout.python, layout.launcher, layout.gpus_json)
    missing = [path for path in needed if not path.exists()]
    if missing:
        raise RefusedError(
            f"the practice node is damaged: {missing[0]} is missing",
            hint="inv practice.down, then inv practice.up",
        )
    if record.ssh_alive(there):
        return ()
    # Without its SSH server the node went down as a whole, as with a reboot of the machine: bring back what
    # a reboot of a real node brings back. A server that was stopped on a node that is up stays stopped.
    went_down = not processes.of(layout) and processes.listener(there.server_port) is None
    return (SSH, SERVER) if went_down else (SSH,)


def _repair(layout: Layout, there: Record, broken: tuple[str, ...], say: Say) -> Record:
    say("starting the SSH server again")
    kept = replace(there, ssh=_start_ssh(layout, there.ssh.kind))
    record.write(layout, kept)
    if SERVER in broken:
        say("starting the server again")
        if there.real:
            _start_real(layout, there.server_port, there.version)
        else:
            spec = server.server_spec(layout, port=there.server_port, gpus=there.gpus)
            server.wait_ready(server.start(layout, spec), timeout_s=READY_TIMEOUT_S)
    return kept


def _describe(
    outcome: Literal["made", "already", "repaired"],
    repaired: tuple[str, ...],
    made: Record,
    layout: Layout,
    begin: float,
) -> Up:
    pid = processes.listener(made.server_port)
    holders = [holder.pid for holder in read_holders(layout.gpus)]
    orphans = tuple(sorted({holder for holder in holders if processes.parent(holder) != pid}))
    return Up(outcome, repaired, made, layout, pid, orphans, time.monotonic() - begin)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
