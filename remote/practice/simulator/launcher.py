"""The launcher: reads the command line, starts the other processes, waits until they are ready, serves HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NoReturn

from . import argspec, holders, logs, procs, scheduler, serverargs, tracebacks
from .channel import Channel, PeerGone
from .dialect import dialect
from .endpoints import Endpoints
from .frontend import Frontend
from .install import Install, NotInstalled, find_install
from .models import Model, fc_width, read_model
from .rank import Server, title_of
from .settings import Settings, SettingsError, load_settings
from .tracebacks import SimulatedError
from .web import WebServer
from .wired import make_plan

ORPHANS_FLAG = "--simulate-orphans"
DESCRIPTION = (
    "SIMULATED SGLang server of the practice node: no GPU and no model. "
    "It takes the flags of the installed SGLang and imitates its processes, log and replies."
)


@dataclass
class Children:
    """Processes that the launcher started: pids by rank, and the detokenizer's."""

    ranks: list[int]
    detokenizer: int
    server: Server

    def kill(self) -> None:
        """SIGKILL all, take their leftovers away, and reap them."""
        pids = [*self.ranks, self.detokenizer]
        procs.kill_hard(pids)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            if not self.server.settings.faults.keep_holder:
                holders.drop(self.server.settings.gpus_dir, pid)


def _draft(values: dict[str, Any]) -> Model | None:
    path = values["speculative_draft_model_path"]
    if values["speculative_algorithm"] is None or path is None:
        return None
    return read_model(path)


def _prepare(argv: Sequence[str], settings: Settings, install: Install, home: Path) -> bytes:
    """Everything that is known before the other processes start, pickled; logs as the launcher does meanwhile."""
    source = install.path("sglang/srt/server_args.py").read_text(encoding="utf-8")
    spec = argspec.read_spec(source)
    parser = argspec.make_parser(spec, "launch_server.py", DESCRIPTION)
    values, _given = argspec.parse(spec, parser, argv)
    try:
        try:
            target = read_model(values["model_path"])
        except (OSError, ValueError):
            path = values["model_path"]
            last = (
                f"OSError: Can't load the configuration of '{path}'. If you were trying to load it from "
                "'https://huggingface.co/models', make sure you don't have a local directory with the same name. Otherwise, make "
                f"sure '{path}' is the correct path to a directory containing a config.json file"
            )
            raise SimulatedError(tracebacks.MODEL_CONFIG_FRAMES, last) from None
        asked = os.environ.get("SGLANG_ENABLE_SPEC_V2")
        effective = serverargs.normalise(
            values,
            target,
            version=install.version,
            source=source,
            gpu_mem_mib=settings.gpu_total_mib,
            spec_v2=None if asked is None else asked.lower() in ("1", "true", "yes"),
        )
    except SimulatedError as error:
        logs.raw(tracebacks.render(install, error.frames, error.last))
        raise SystemExit(1) from None
    for warned in effective.warnings:
        logs.early(warned.message, warned.where)
    logs.log(f"server_args={serverargs.record(effective.values)}")
    draft = _draft(effective.values)
    server = Server(
        install=install,
        spoken=dialect(install.version),
        settings=settings,
        values=effective.values,
        target=target,
        draft=draft,
        draft_fc_width=fc_width(draft, target.hidden_size) if draft else 0,
        plan=make_plan(
            install, target, draft, home / "seen", [Path(place) for place in settings.source_texts]
        ),
        launcher_pid=os.getppid(),
    )
    return pickle.dumps(server)


def _start(server: Server) -> tuple[Children, list[Channel], Channel, Channel]:
    """Fork all ranks and the detokenizer. Returns them, the ranks' ready channels, and rank 0's and the detokenizer's."""
    resource_tracker.ensure_running()
    size = int(server.values["tp_size"])
    dies = not server.settings.faults.orphans
    to_rank, from_launcher = (end.detach() for end in socket.socketpair())
    pairs = [tuple(end.detach() for end in socket.socketpair()) for _ in range(1, size)]
    detokenizer_in, rank_out = os.pipe()
    launcher_in, detokenizer_out = os.pipe()
    ranks, readies = [], []
    for rank in range(size):
        ready_in, ready_out = os.pipe()
        peers = [pair[0] for pair in pairs] if rank == 0 else [pairs[rank - 1][1]]

        def run(rank: int = rank, peers: list[int] = peers, ready_out: int = ready_out) -> int:
            leads = rank == 0
            return scheduler.run_rank(
                server,
                rank,
                [Channel(fd) for fd in peers],
                Channel(ready_out),
                Channel(from_launcher) if leads else None,
                Channel(rank_out) if leads else None,
            )

        keep = [ready_out, *peers, *([from_launcher, rank_out] if rank == 0 else [])]
        ranks.append(procs.fork(title_of(rank, server.values), run, keep=keep, dies_with_parent=dies))
        os.close(ready_out)
        readies.append(Channel(ready_in))
    detokenizer = procs.fork(
        "sglang::detokenizer",
        lambda: scheduler.run_detokenizer(Channel(detokenizer_in), Channel(detokenizer_out)),
        keep=[detokenizer_in, detokenizer_out],
        dies_with_parent=dies,
    )
    for fd in (
        from_launcher,
        detokenizer_in,
        rank_out,
        detokenizer_out,
        *(fd for pair in pairs for fd in pair),
    ):
        os.close(fd)
    return Children(ranks, detokenizer, server), readies, Channel(to_rank), Channel(launcher_in)


def _end_hard(children: Children) -> NoReturn:
    """kill_process_tree(os.getpid()): SIGKILL for the children and for itself."""
    children.kill()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _wait_ready(children: Children, readies: list[Channel]) -> dict[str, Any]:
    """_wait_for_scheduler_ready: rank by rank; returns what rank 0 says. Ends the process when a rank dies."""
    facts: dict[str, Any] = {}
    for rank, ready in enumerate(readies):
        try:
            told = ready.receive()
        except PeerGone:
            logs.log(f"Rank {rank} scheduler is dead. Please check if there are relevant logs.")
            status = os.waitstatus_to_exitcode(os.waitpid(children.ranks[rank], 0)[1])
            logs.log(f"Exit code: {status}")
            frames = (
                (
                    "sglang/srt/entrypoints/engine.py",
                    "_wait_for_scheduler_ready",
                    "data = scheduler_pipe_readers[i].recv()",
                ),
            )
            logs.raw(tracebacks.render(children.server.install, frames, "EOFError"))
            children.kill()
            os._exit(1)
        facts = facts or told
    return facts


def main(argv: Sequence[str], home: Path) -> int:
    """Run the server; `home` holds this package, `wiring` and simulator.json. Returns the exit code if it returns."""
    try:
        settings = load_settings(home)
    except SettingsError as error:
        sys.stderr.write(f"simulator: {error}\n")
        return 2
    try:
        install = find_install(home, settings.version)
    except NotInstalled:
        sys.stderr.write(
            f"{sys.executable}: Error while finding module specification for 'sglang.launch_server' "
            "(ModuleNotFoundError: No module named 'sglang')\n"
        )
        return 1
    orphans = ORPHANS_FLAG in argv
    argv = [item for item in argv if item != ORPHANS_FLAG]
    if orphans:
        settings = replace(settings, faults=replace(settings.faults, orphans=True))
    logs.raw(
        f"SIMULATED SGLang {install.version} server of the practice node: no GPU and no model behind what follows\n"
    )
    try:
        server: Server = pickle.loads(procs.compute_aside(lambda: _prepare(argv, settings, install, home)))
    except ChildProcessError as error:
        return int(error.args[0])
    children, readies, to_rank, from_detokenizer = _start(server)

    def launch_phase_sigquit(_number: int, _frame: object) -> None:
        logs.log("Received sigquit from a child process. It usually means the child failed.")
        _end_hard(children)

    signal.signal(signal.SIGQUIT, launch_phase_sigquit)
    if settings.faults.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    facts = _wait_ready(children, readies)
    if orphans:
        os.kill(os.getpid(), signal.SIGKILL)
    return _serve(server, children, Frontend(server, to_rank, from_detokenizer), facts)


def _serve(server: Server, children: Children, frontend: Frontend, facts: dict[str, Any]) -> int:
    values = server.values
    frontend.start()
    logs.uvicorn(f"Started server process [{os.getpid()}]")
    logs.uvicorn("Waiting for application startup.")
    logs.log("Using fallback token IDs for yes/no (9693/2152)")
    warmup = threading.Thread(target=_warm_up, args=(server, children, frontend), daemon=True)
    warmup.start()
    logs.uvicorn("Application startup complete.")
    try:
        web = WebServer(values["host"], values["port"], Endpoints(frontend, facts))
    except OSError as error:
        address = (values["host"], values["port"], *((0, 0) if ":" in values["host"] else ()))
        reason = os.strerror(error.errno or 0).lower()
        logs.uvicorn(
            f"[Errno {error.errno}] error while attempting to bind on address {address}: {reason}", "ERROR"
        )
        logs.uvicorn("Waiting for application shutdown.")
        warmup.join()
        logs.uvicorn("Application shutdown complete.")
        children.kill()
        os._exit(server.spoken.bind_error_code)
    _handle_signals(server, children, frontend)
    shown = f"[{values['host']}]" if ":" in values["host"] else values["host"]
    logs.uvicorn(f"Uvicorn running on http://{shown}:{values['port']} (Press CTRL+C to quit)")
    threading.Thread(target=web.serve_forever, daemon=True).start()
    if server.spoken.watchdog and not server.settings.faults.hang_on_rank_death:
        _watch(children)
    while True:
        signal.pause()


def _handle_signals(server: Server, children: Children, frontend: Frontend) -> None:
    def sigquit(_number: int, _frame: object) -> None:
        logs.log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        _end_hard(children)

    def sigterm(_number: int, _frame: object) -> None:
        logs.log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        if not frontend.leaving:
            frontend.leaving = True
            threading.Thread(target=_drain, args=(server, children, frontend), daemon=True).start()

    def sigint(_number: int, _frame: object) -> None:
        logs.uvicorn("Shutting down")
        logs.uvicorn(f"Finished server process [{os.getpid()}]")
        children.kill()
        os._exit(0)

    signal.signal(signal.SIGQUIT, sigquit)
    signal.signal(signal.SIGINT, sigint)
    if not server.settings.faults.ignore_sigterm:
        signal.signal(signal.SIGTERM, sigterm)


def _drain(server: Server, children: Children, frontend: Frontend) -> None:
    """sigterm_watchdog (managers/tokenizer_manager.py): wait for requests under way, then SIGKILL everything."""
    while True:
        time.sleep(server.settings.drain_s)
        remaining_rids = frontend.remaining()
        if frontend.status == "UnHealthy":
            logs.log("Signal SIGTERM received while health check failed. Force exiting.")
            break
        logs.log(
            f"Gracefully exiting... Remaining number of requests {len(remaining_rids)}. Remaining requests {remaining_rids=}."
        )
        if not remaining_rids:
            break
    _end_hard(children)


def _watch(children: Children) -> None:
    """SubprocessWatchdog (utils/watchdog.py, 0.5.10): a dead child brings the server down."""
    names = [f"scheduler_{rank}" for rank in range(len(children.ranks))] + ["detokenizer"]

    def look() -> None:
        while True:
            time.sleep(1)
            for name, pid in zip(names, [*children.ranks, children.detokenizer], strict=True):
                with contextlib.suppress(ChildProcessError):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    code = os.waitstatus_to_exitcode(status)
                    if ended and code:
                        logs.log(
                            f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
                        )
                        os.kill(os.getpid(), signal.SIGQUIT)
                        return

    threading.Thread(target=look, daemon=True).start()


def _call(
    server: Server, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
) -> tuple[int, bytes]:
    """One request to this server's own address, never through a proxy."""
    values = server.values
    headers = {"Content-Type": "application/json"}
    if values.get("api_key"):
        headers["Authorization"] = f"Bearer {values['api_key']}"
    connection = http.client.HTTPConnection(values["host"], values["port"], timeout=timeout_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def _warm_up(server: Server, children: Children, frontend: Frontend) -> None:
    """_wait_and_warmup: ask the own address until it answers, generate a little, say that the server is ready.

    As the real one it does not notice when somebody else answers on that address.
    """
    speed = server.settings.speed
    if not server.values["skip_server_warmup"]:
        path = "/model_info" if server.spoken.number >= (0, 5, 7) else "/get_model_info"
        body = {
            "text": "The capital city of France is",
            "sampling_params": {"temperature": 0, "max_new_tokens": 8},
        }
        status, said = 0, b""
        for _ in range(120):
            time.sleep(0.3 * speed)
            try:
                status, said = _call(server, "GET", path, None, 5)
            except OSError:
                continue
            if status == 200:
                break
        if status == 200:
            if server.settings.faults.hang_at == "warmup":
                threading.Event().wait()
            try:
                status, said = _call(server, "POST", "/generate", body, 600)
            except OSError as error:
                status, said = 0, str(error).encode()
        if status != 200 or server.settings.faults.warmup_fails:
            last = f"AssertionError: res=<Response [{status}]>, res.text={said.decode('utf-8', 'replace')!r}"
            frames = (
                (
                    "sglang/srt/entrypoints/http_server.py",
                    "_execute_server_warmup",
                    "assert res.status_code == 200",
                ),
            )
            logs.log(
                f"Initialization failed. warmup error: {tracebacks.render(server.install, frames, last)}"
            )
            _end_hard(children)
    frontend.status = "Up"
    logs.log("The server is fired up and ready to roll!")
