"""What a server shows from outside, in a form in which two servers can be compared.

A probe's value is plain data without what differs between any two runs: times, pids, ids, texts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remote.node.procs import role
from tests.real.kit import ask, children, state_of, title_of
from tests.sglang.data import read_log
from tests.support import wait_until

# (name, method, path, body): asked of a server that is up and idle, in this order.
GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
REQUESTS: tuple[tuple[str, str, str, Any], ...] = (
    ("health", "GET", "/health", None),
    ("health by POST", "POST", "/health", {}),
    ("health_generate", "GET", "/health_generate", None),
    ("generate", "POST", "/generate", {"text": "Hello", "sampling_params": GREEDY}),
    ("generate, ids", "POST", "/generate", {"input_ids": [72, 101], "sampling_params": GREEDY}),
    ("generate, two", "POST", "/generate", {"text": ["Hello", "Bye"], "sampling_params": GREEDY}),
    ("generate, named", "POST", "/generate", {"text": "Hello", "rid": "mine", "sampling_params": GREEDY}),
    ("generate, nothing given", "POST", "/generate", {"sampling_params": GREEDY}),
    ("generate by GET", "GET", "/generate", None),
    (
        "chat",
        "POST",
        "/v1/chat/completions",
        {"model": "x", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4},
    ),
    ("models", "GET", "/v1/models", None),
    ("get_model_info", "GET", "/get_model_info", None),
    ("model_info", "GET", "/model_info", None),
    ("get_server_info", "GET", "/get_server_info", None),
    ("server_info", "GET", "/server_info", None),
    ("get_load", "GET", "/get_load", None),
    ("flush_cache", "POST", "/flush_cache", None),
    ("flush_cache by GET", "GET", "/flush_cache", None),
    ("nothing there", "GET", "/no_such_path", None),
)


@dataclass(frozen=True)
class Server:
    """A server that somebody started: its launcher, its port, its log."""

    pid: int
    port: int
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def shape(value: Any) -> Any:
    """The keys, and below them only the type; of a list that of its first entry."""
    if isinstance(value, Mapping):
        return {key: shape(item) for key, item in value.items() if key != "simulated"}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None if value is None else type(value).__name__


def timeline(server: Server, running: subprocess.Popen[bytes], timeout_s: float) -> list[str]:
    """What /server_info and /health answer from the start until both are 200: each change once."""
    seen: list[str] = []
    deadline = time.monotonic() + timeout_s
    while not seen or seen[-1] != "server_info 200, health 200":
        assert running.poll() is None, server.text[-2000:]
        assert time.monotonic() < deadline, seen
        now = f"server_info {_status(server.port, '/server_info')}, health {_status(server.port, '/health')}"
        if not seen or now != seen[-1]:
            seen.append(now)
        time.sleep(0.02)
    return seen


def _status(port: int, path: str) -> str:
    try:
        return str(ask(port, "GET", path, timeout_s=40)[0])
    except ConnectionRefusedError:
        return "refused"
    except OSError as error:
        return type(error).__name__


def endpoints(server: Server) -> dict[str, Any]:
    """Status and keys of each reply."""
    found: dict[str, Any] = {}
    for name, method, path, body in REQUESTS:
        status, reply = ask(server.port, method, path, body)
        found[name] = {"status": status, "reply": shape(reply)}
    return found


def processes(server: Server) -> dict[str, Any]:
    """The launcher and its children by title: role, and whether in its session and in its process group."""
    lead = _stat(server.pid)
    found: dict[str, Any] = {"launcher": {"leads its session": lead["sid"] == server.pid}}
    for pid in children(server.pid):
        stat, title = _stat(pid), title_of(pid)
        name = "resource tracker" if "resource_tracker" in title else title
        found[name] = {
            "role": role({"argv": title.split(), "comm": Path(f"/proc/{pid}/comm").read_text().strip()}),
            "same session": stat["sid"] == lead["sid"],
            "same group": stat["pgid"] == lead["pgid"],
        }
    return found


def _stat(pid: int) -> dict[str, int]:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return {"ppid": int(fields[1]), "pgid": int(fields[2]), "sid": int(fields[3])}


def logged(server: Server) -> dict[str, Any]:
    """The log as the grammar reads it."""
    boots = read_log(server.text)
    boot = boots[-1]
    return {
        "boots": len(boots),
        "version": boot.version,
        "record": boot.args_record,
        "arguments": sorted(boot.args or {}),
        "values": {
            name: value
            for name, value in (boot.args or {}).items()
            if name not in ("random_seed", "port", "nccl_port")
        },
        "adjusted": sorted(each.name for each in boot.adjusted),
        "state": boot.state,
        "stage": boot.stage,
        "failure": None if boot.failure is None else boot.failure.code,
        "decode lines": boot.decode is not None,
    }


# What 0.5.9 does when one of its processes is killed: both servers are held to it.
SCHEDULER_KILLED = {"scheduler": "zombie", "launcher": "lives", "detokenizer": "lives", "port": "open"}
LAUNCHER_KILLED = {"scheduler": "gone", "detokenizer": "gone", "port": "closed"}


def scheduler_killed(server: Server, settled_s: float = 3.0) -> dict[str, str]:
    """SIGKILL for the scheduler, and what stands a while later: newer versions end within that time."""
    scheduler, detokenizer = (_child(server, title) for title in ("sglang::scheduler", "sglang::detokenizer"))
    os.kill(scheduler, signal.SIGKILL)
    wait_until(lambda: state_of(scheduler) in ("", "Z"), what="the scheduler's end")
    until = time.monotonic() + settled_s
    wait_until(lambda: time.monotonic() > until or not _open(server.port), settled_s + 5)
    return {
        "scheduler": _fate(scheduler),
        "launcher": _fate(server.pid),
        "detokenizer": _fate(detokenizer),
        "port": "open" if _open(server.port) else "closed",
    }


def launcher_killed(server: Server) -> dict[str, str]:
    """SIGKILL for the launcher alone."""
    scheduler, detokenizer = (_child(server, title) for title in ("sglang::scheduler", "sglang::detokenizer"))
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not _open(server.port), what="the port's release")
    found = {}
    for name, pid in (("scheduler", scheduler), ("detokenizer", detokenizer)):
        with contextlib.suppress(AssertionError):
            wait_until(lambda pid=pid: state_of(pid) in ("", "Z"), 5.0)
        # Who reaps what is left of them is no affair of theirs.
        found[name] = "gone" if state_of(pid) in ("", "Z") else "lives"
    return {**found, "port": "open" if _open(server.port) else "closed"}


def _child(server: Server, title: str) -> int:
    (found,) = (pid for pid in children(server.pid) if title_of(pid).startswith(title))
    return found


def _fate(pid: int) -> str:
    return {"": "gone", "Z": "zombie"}.get(state_of(pid), "lives")


def _open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def differences(real: Any, simulated: Any, at: str = "") -> dict[str, str]:
    """Every place where the two are not alike: what the one has, and what the other."""
    if isinstance(real, dict) and isinstance(simulated, dict):
        found: dict[str, str] = {}
        for key in sorted({*real, *simulated}, key=str):
            where = f"{at}/{key}"
            if key not in simulated:
                found[where] = "only the real one"
            elif key not in real:
                found[where] = "only the simulated one"
            else:
                found.update(differences(real[key], simulated[key], where))
        return found
    if (
        isinstance(real, list)
        and isinstance(simulated, list)
        and real
        and simulated
        and at.startswith("/endp")
    ):
        return differences(real[0], simulated[0], f"{at}[]")
    return {} if real == simulated else {at: f"{_short(real)} really, {_short(simulated)} simulated"}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else text[:117] + "..."
