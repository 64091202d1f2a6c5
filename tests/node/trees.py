"""Process trees as a server makes and leaves them: children, orphans, zombies, what cannot be killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remote.node import procfs
from tests.node.kit import end, spawned, ticks
from tests.support import wait_until

TITLES = ("sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer")
CHILD = "import setproctitle, sys, time; setproctitle.setproctitle(sys.argv[1]); time.sleep(600)"
TRACKER = "from multiprocessing.resource_tracker import main; import time; time.sleep(600)"
LAUNCHER = f"""
import signal, socket, subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", {CHILD!r}, title]) for title in {TITLES!r}]
children.append(subprocess.Popen([sys.executable, "-B", "-c", {TRACKER!r}]))
listener = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
def stop(*_):
    listener.close()
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
    sys.exit(0)
if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, stop)
print("up", flush=True)
while True:
    time.sleep(600)
"""


class Tree:
    """A launcher and its children: title -> pid."""

    def __init__(self, launcher: subprocess.Popen[str], children: dict[str, int]) -> None:
        self.launcher = launcher
        self.children = children
        self.started = {pid: ticks(pid) for pid in (launcher.pid, *children.values())}

    def named(self, *pids: int) -> list[dict[str, int]]:
        return [{"pid": pid, "starttime_ticks": self.started[pid]} for pid in pids or self.started]

    def kill_launcher_only(self) -> None:
        """As SIGKILL of the launcher does: the children go on, re-parented."""
        self.launcher.kill()
        self.launcher.wait()


def children_of(pid: int) -> list[int]:
    found = (procfs.stat(other) for other in procfs.pids())
    return [process["pid"] for process in found if process is not None and process["ppid"] == pid]


@contextlib.contextmanager
def server_tree(directory: Path, port: int, *more: str, **options: Any) -> Iterator[Tree]:
    """`python -m sglang.launch_server --port PORT` with three titled children and a resource tracker."""
    package = directory / "sglang"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(LAUNCHER)
    argv = [sys.executable, "-m", "sglang.launch_server", "--port", str(port), *more]
    with spawned(argv, cwd=directory, **options) as launcher:

        def titles() -> dict[str, int]:
            found = {" ".join(procfs.argv(pid)): pid for pid in children_of(launcher.pid)}
            return {
                ("tracker" if "resource_tracker" in title else title): pid for title, pid in found.items()
            }

        wait_until(lambda: {*TITLES, "tracker"} <= set(titles()), what="the children's titles")
        tree = Tree(launcher, titles())
        try:
            yield tree
        finally:
            for pid, started in tree.started.items():
                if pid != launcher.pid:
                    end(pid, started)


HALF_DEAD = """
import ctypes, setproctitle, sys, threading, time
setproctitle.setproctitle(sys.argv[1])
def live_on():
    print("up", flush=True)
    time.sleep(600)
threading.Thread(target=live_on).start()
ctypes.CDLL(None).pthread_exit(None)  # ends this thread only: the leader is a zombie, the other one lives
"""


@contextlib.contextmanager
def half_dead(title: str) -> Iterator[subprocess.Popen[str]]:
    """A zombie leader whose thread lives on, as `ps` shows with Zl."""
    with spawned([sys.executable, "-c", HALF_DEAD, title]) as process:
        wait_until(lambda: (procfs.stat(process.pid) or {}).get("state") == "Z")
        yield process


HOLDER = """
import ctypes, json, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
                         stdout=subprocess.PIPE)
child.stdout.readline()
SEIZE, TRACE_EXIT = 0x4206, 0x40
assert libc.ptrace(SEIZE, child.pid, 0, TRACE_EXIT) == 0, ctypes.get_errno()
print("up", flush=True)
print(json.dumps(child.pid), flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def unkillable() -> Iterator[int]:
    """A process that SIGKILL does not end: a debugger holds it at its exit, as a driver does in state D."""
    with spawned([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE) as debugger:
        assert debugger.stdout is not None
        assert debugger.stdin is not None
        pid = int(json.loads(debugger.stdout.readline()))
        started = ticks(pid)
        try:
            yield pid
        finally:
            debugger.stdin.close()
            debugger.wait()
            end(pid, started)
