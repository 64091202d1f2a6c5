"""What a fault does to the practice node's processes; each step first notes in the journal what heals it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from remote.errors import RefusedError, UnhealthyError
from remote.practice import journal, processes, server, spawn
from remote.practice.build import FIXED
from remote.practice.file_steps import Breaking, Step, pristine, write
from remote.practice.journal import Running
from remote.practice.layout import Layout
from remote.practice.models import WRONG_LAYER_IDS
from remote.practice.nvidia_smi import read_holders
from remote.practice.processes import Known

WAIT_S = 30.0
Until = Literal["ready", "gone", "ranks"]


def running(port: int) -> Running:
    """The server that listens on the node's port. RefusedError if none does."""
    pid = processes.listener(port)
    process = None if pid is None else processes.known(pid)
    if process is None:
        raise RefusedError(
            "no server listens on the practice node's port", hint="inv start, or inv practice.heal"
        )
    proc = Path(f"/proc/{process.pid}")
    environ = proc.joinpath("environ").read_bytes().split(b"\0")
    how = spawn.Spec(
        argv=[os.fsdecode(each) for each in proc.joinpath("cmdline").read_bytes().split(b"\0")[:-1]],
        env=dict(os.fsdecode(each).split("=", 1) for each in environ if b"=" in each),
        cwd=str(proc.joinpath("cwd").readlink()),
        log=str(proc.joinpath("fd", "1").readlink()),
    )
    return Running(process, how)


def ranks(server_pid: int) -> list[Known]:
    """The scheduler processes of a server, by rank."""
    titled = [(processes.title(pid), pid) for pid in processes.children(server_pid)]
    found = [processes.known(pid) for text, pid in sorted(titled) if text.startswith("sglang::scheduler")]
    return [each for each in found if each is not None]


def signalled(number: signal.Signals, *, rank: int | None = None) -> Step:
    """Send a signal to the launcher, or to one rank, and wait until a deadly one has done its work."""

    def step(at: Breaking) -> None:
        now = running(at.record.server_port)
        victim = now.process if rank is None else ranks(now.process.pid)[rank]
        processes.send(victim, number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            _wait(lambda: not processes.alive(victim), f"pid {victim.pid} did not end")

    return step


def restarted(
    *,
    faults: dict[str, Any] | None = None,
    arguments: Sequence[str] = (),
    without: str | None = None,
    log: str | None = None,
    until: Until = "ready",
    kill_rank: int | None = None,
) -> Step:
    """The same server again: misbehaving (simulator/settings.py), with more arguments, `without` a word of
    its command line, or short of a rank.
    """

    def step(at: Breaking) -> None:
        now = running(at.record.server_port)
        processes.end(session(at.layout, now.process.pid))
        env = server.quick(at.layout, now.how.env)
        if faults:
            env["FIXOPS_SIMULATOR_FAULTS"] = json.dumps(faults)
        written = str(at.layout.log.with_name(log)) if log else now.how.log
        kept = [word for word in now.how.argv if word != without]
        wanted = replace(now.how, argv=[*kept, *arguments], env=env, log=written)
        new = start(at, wanted, until=until)
        if kill_rank is not None:
            victim = ranks(new.pid)[kill_rank]
            processes.send(victim, signal.SIGKILL)
            _wait(lambda: not processes.alive(victim), f"rank {kill_rank} did not end")

    return step


def unanswered(at: Breaking) -> None:
    """A request that gets no answer. A scheduler that hangs does so from its first request on, and until then
    /health may still be answered."""
    connection = http.client.HTTPConnection("127.0.0.1", at.record.server_port, timeout=1.0)
    body = json.dumps({"text": "Hello", "sampling_params": {"max_new_tokens": 8}})
    try:
        connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
        connection.getresponse()
    except TimeoutError:
        return
    finally:
        connection.close()
    raise UnhealthyError("the server answered, which it was not to do", hint="inv practice.heal")


def second(at: Breaking) -> None:
    """Another server, small and ready, on a port of its own and on the same GPUs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    spec = server.server_spec(at.layout, port=port, gpus=at.record.gpus, settings=at.layout.orphans_settings)
    # Its settings leave it no room for tokens: it serves, and must not be asked anything.
    argv, log = [*spec.argv, "--skip-server-warmup"], str(at.layout.log.with_name("second-server.log"))
    start(at, replace(spec, argv=argv, log=log))


def left_behind(at: Breaking) -> None:
    """The launcher dies, its ranks live on with their memory, re-parented to init."""
    now = running(at.record.server_port)
    processes.end(session(at.layout, now.process.pid))
    env = server.quick(at.layout, now.how.env)
    spec = replace(now.how, argv=[*now.how.argv, "--simulate-orphans"], env=env)
    launcher = processes.known(spawn.detached([spec])[0])
    if launcher is not None:
        journal.save_started(at.folder, launcher)
        _wait(lambda: not processes.alive(launcher), "the launcher did not die")


def stranger(argv: Callable[[Layout], Sequence[str]], *, gpu: int | None = None, used_mib: int = 0) -> Step:
    """A process that is not a server of ours: on a GPU if `gpu` is given."""

    def step(at: Breaking) -> None:
        log = str(at.layout.log.with_name("stranger.log"))
        spec = spawn.Spec(list(argv(at.layout)), server.environment(at.layout), "/", log)
        process = processes.known(spawn.detached([spec])[0])
        if process is None:
            raise server.failure("the stranger ended at once", Path(log), 0)
        journal.save_started(at.folder, process)
        if gpu is not None:
            entry = {
                "pid": process.pid,
                "starttime_ticks": process.starttime_ticks,
                "gpu": gpu,
                "used_mib": used_mib,
                "name": spec.argv[0],
            }
            write(at, at.layout.holders / f"{process.pid}.json", json.dumps(entry).encode())

    return step


def beside(at: Breaking) -> None:
    """An earlier server's ranks are left beside the one that runs."""
    running(at.record.server_port)
    spec = server.orphans_spec(
        at.layout, port=at.record.server_port, gpus=at.record.gpus, settings=at.layout.orphans_settings
    )
    launcher = start(at, spec, until="gone")
    if not any(processes.session_of(holder.pid) == launcher.pid for holder in read_holders(at.layout.gpus)):
        raise RefusedError("the GPUs' memory has no room for another server's ranks", hint="inv kill-stale")


def port_taken(at: Breaking) -> None:
    """Something that is not SGLang listens where the server did."""
    now = running(at.record.server_port)
    processes.end(session(at.layout, now.process.pid))
    words = ["-m", "http.server", "--bind", "127.0.0.1", str(at.record.server_port)]
    stranger(lambda layout: [str(layout.python), *words])(at)
    _wait(lambda: processes.listener(at.record.server_port) is not None, "nothing listened on the port")


def older_than_files(at: Breaking) -> None:
    """A server that was started before the fix, and kept its port when the fix was deployed.

    Truly so: it starts on the wheel's files and the wrong layer ids, which are replaced under it.
    """
    deployed = _deployed(at)
    if not deployed:
        raise RefusedError(
            "the fix is not on the node, so no server can be older than it", hint="inv deploy-fix"
        )
    config = at.layout.draft / "config.json"
    fixed = {path: path.read_bytes() for path in [*deployed, config]}
    for path in fixed:
        journal.save_path(at.folder, path)
    for path in deployed:
        path.write_bytes(pristine(at, str(path.relative_to(at.layout.site_packages))))
    content = json.loads(fixed[config])
    content["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(WRONG_LAYER_IDS)
    config.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    try:
        restarted(log="old-server.log")(at)
    finally:
        for path, text in fixed.items():
            path.write_bytes(text)


def _deployed(at: Breaking) -> list[Path]:
    changed = []
    for name in FIXED:
        path = at.layout.site_packages / name
        if path.exists() and path.read_bytes() != pristine(at, name):
            changed.append(path)
    return changed


def session(layout: Layout, leader: int) -> list[Known]:
    """The node's processes in the session of this process, the leader included."""
    return [
        each
        for each in processes.of(layout)
        if each.pid == leader or processes.session_of(each.pid) == leader
    ]


def start(at: Breaking, wanted: spawn.Spec, *, until: Until = "ready") -> Known:
    """Start a server for the fault, and wait until it is ready, or gone, or has ranks at least."""
    launched = server.start(at.layout, wanted)
    journal.save_started(at.folder, launched.process)
    if until == "ready":
        server.wait_ready(launched, timeout_s=WAIT_S)
    elif until == "gone":
        _wait(lambda: not processes.alive(launched.process), "the server did not fail")
    else:
        _wait(lambda: bool(ranks(launched.process.pid)), "the server started no ranks")
    return launched.process


def _wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise UnhealthyError(f"{what} within {WAIT_S:.0f} s", hint="inv practice.heal")
        time.sleep(0.01)
