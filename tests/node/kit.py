"""What the tests of the operations on the node share: a context, and processes that end with the test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from remote.node import procfs
from remote.node.base import Context
from remote.node.state import State
from tests.support import wait_until

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
# A process that looks like one of SGLang's: its title is set as SGLang sets it.
TITLED = """
import setproctitle, sys, time
setproctitle.setproctitle(sys.argv[1])
print("up", flush=True)
time.sleep(600)
"""
# A process that has to be killed.
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


class Probe:
    """A context whose events are kept, with its own state directory."""

    def __init__(self, state_dir: Path, timeout_s: float = 60.0) -> None:
        self.events: list[dict[str, Any]] = []
        self.cancel = threading.Event()
        self.state = State(str(state_dir))
        self.ctx = Context(
            emit=self.events.append,
            state=lambda: self.state,
            deadline=time.monotonic() + timeout_s,
            cancel=self.cancel,
        )


def now_ns(folder: Path) -> int:
    """The file system's time now, later than all that was done before."""
    time.sleep(0.02)  # its clock has ticks of up to 10 ms
    (folder / "clock").write_text("")
    at = (folder / "clock").stat().st_ctime_ns
    time.sleep(0.02)
    return at


def led_to(link: Path, target: str) -> None:
    """The link leads elsewhere, in one step, as `ln -sfn` and `mv -T` do."""
    beside = link.with_name("beside")
    beside.symlink_to(target)
    beside.replace(link)


@contextlib.contextmanager
def spawned(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child process that printed its first line; killed and reaped at the end."""
    defaults = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **{**defaults, **options})
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def titled(title: str, **options: Any) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A process that renamed itself."""
    return spawned([sys.executable, "-c", TITLED, title], **options)


def unprivileged(modules: str, code: str, *args: str) -> Any:
    """Run `code` in a process that permission bits bind (root becomes nobody); its output, parsed as JSON.

    `modules` of remote.node are imported before: nobody may be unable to read this interpreter's library.
    """
    drop = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})" if os.geteuid() == 0 else "pass"
    text = (
        f"import base64, hashlib, json, os, pwd, shutil, subprocess, sys, time, zlib\n"
        f"import importlib.util, marshal, select, signal, socket, warnings, sre_compile\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"from remote.node import {modules}\n"
        f"from remote.node.base import OpError\n"
        f"from tests.node.kit import Probe\n{drop}\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-W", "ignore", "-c", text, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ticks(pid: int) -> int:
    found = procfs.stat(pid)
    assert found is not None
    return int(found["starttime_ticks"])


def named(pid: int) -> dict[str, int]:
    """A process as operations name it."""
    return {"pid": pid, "starttime_ticks": ticks(pid)}


def end(pid: int, starttime_ticks: int) -> None:
    """End a process that is nobody's child here, if it is still the same."""
    if procfs.alive(pid, starttime_ticks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not procfs.alive(pid, starttime_ticks), what=f"the end of {pid}")
