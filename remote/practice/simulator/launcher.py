"""The launcher: starts the other processes, waits until they are ready, serves HTTP, warms up, ends on
signals.
"""

from __future__ import annotations

import http.client
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import children as processes
from . import logs, procs, tracebacks
from .children import Children
from .endpoints import Endpoints
from .frontend import Frontend
from .install import NotInstalled, find_install
from .prepare import SERVER_ARGS, prepare
from .rank import Server
from .settings import SettingsError, load_settings
from .web import WebServer

ORPHANS_FLAG = "--simulate-orphans"


def main(argv: Sequence[str], home: Path) -> int:
    """Run the server; `home` holds this package, `wiring` and simulator.json.

    Returns the exit code if it returns.
    """
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
    if not install.path(SERVER_ARGS).exists():
        sys.stderr.write(
            f"{sys.executable}: No module named sglang.launch_server in {install.root / 'sglang'}\n"
        )
        return 1
    orphans = ORPHANS_FLAG in argv
    argv = [item for item in argv if item != ORPHANS_FLAG]
    if orphans:
        settings = replace(settings, faults=replace(settings.faults, orphans=True))
    logs.raw(
        f"SIMULATED SGLang {install.version} server of the practice node: no GPU and no model behind this\n"
    )
    try:
        server: Server = pickle.loads(procs.compute_aside(lambda: prepare(argv, settings, install, home)))
    except ChildProcessError as error:
        return int(error.args[0])
    # A rank may fail before this process has got round to its handler: until then the signal waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
    started = processes.start(server)
    children = started.children

    def launch_phase_sigquit(_number: int, _frame: object) -> None:
        logs.log("Received sigquit from a child process. It usually means the child failed.")
        processes.end_hard(children)

    signal.signal(signal.SIGQUIT, launch_phase_sigquit)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})
    if settings.faults.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    facts = processes.wait_ready(started)
    if orphans:
        os.kill(os.getpid(), signal.SIGKILL)
    return _serve(server, children, Frontend(server, started.scheduler, started.detokenizer), facts)


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
        processes.watch(children)
    while True:
        signal.pause()


def _handle_signals(server: Server, children: Children, frontend: Frontend) -> None:
    def sigquit(_number: int, _frame: object) -> None:
        logs.log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        processes.end_hard(children)

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
    """sigterm_watchdog (managers/tokenizer_manager.py): wait for open requests, then SIGKILL everything."""
    while True:
        time.sleep(server.settings.drain_s)
        remaining_rids = frontend.remaining()
        if frontend.status == "UnHealthy":
            logs.log("Signal SIGTERM received while health check failed. Force exiting.")
            break
        logs.log(
            f"Gracefully exiting... Remaining number of requests {len(remaining_rids)}. "
            f"Remaining requests {remaining_rids=}."
        )
        if not remaining_rids:
            break
    processes.end_hard(children)


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
    """_wait_and_warmup: ask the own address until it answers, generate a little, say that the server is
    ready.

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
            processes.end_hard(children)
    frontend.status = "Up"
    logs.log("The server is fired up and ready to roll!")
