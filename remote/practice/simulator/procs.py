"""Processes of the simulated server: forked children with SGLang's titles, dying with their parent as
SGLang's do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import setproctitle

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """SIGKILL for this process when its parent ends (utils/common.py: kill_itself_when_parent_died)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the call above
        os.kill(os.getpid(), signal.SIGKILL)


def close_all_but(keep: Iterable[int]) -> None:
    """Close every file descriptor except 0, 1, 2 and `keep`: an end of a pipe left open hides the other end's
    death.
    """
    wanted = {0, 1, 2, *keep}
    for name in Path("/proc/self/fd").iterdir():
        if int(name.name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name.name))


def fork(title: str, run: Callable[[], int], *, keep: Iterable[int], dies_with_parent: bool) -> int:
    """Fork a child that runs `run` and ends with its result; returns the child's pid.

    No thread may be running.
    """
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _child(title, run, keep, parent if dies_with_parent else None)
    return pid


def _child(title: str, run: Callable[[], int], keep: Iterable[int], parent: int | None) -> NoReturn:
    status = 1
    try:
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})
        setproctitle.setproctitle(title)
        if parent is not None:
            die_with_parent(parent)
        close_all_but(keep)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def compute_aside(work: Callable[[], bytes]) -> bytes:
    """Run `work` in a child and return what it returns, so that its memory does not stay with this process.

    Raises ChildProcessError with the child's exit code as first argument when it ended without a result;
    output that the child wrote (usage errors) has then been written.
    """
    reading, writing = os.pipe()

    def run() -> int:
        try:
            data = work()
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 1
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)
        return 0

    pid = os.fork()
    if not pid:
        _child(setproctitle.getproctitle(), run, (writing,), None)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status or not data:
        raise ChildProcessError(status)
    return data


def kill_hard(pids: Iterable[int]) -> None:
    """SIGKILL, as SGLang's kill_process_tree gives its children.

    They are stopped first: else one that is still alive sees another's end and reports a failure, which the
    real ones are too slow for.
    """
    wanted = list(pids)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in wanted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def starttime_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat: start time in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


def living_since(pid: int) -> int | None:
    """Start time of a process that holds what it was given; None if it is gone.

    A zombie has given its memory back, unless other threads of it live (a CUDA context's end waits for them).
    """
    with contextlib.suppress(OSError, IndexError):
        states = [_state(path) for path in Path(f"/proc/{pid}/task").iterdir()]
        if any(state not in (b"Z", b"X") for state in states):
            return starttime_ticks(pid)
    return None


def _state(path: Path) -> bytes:
    """The state letter of a thread (proc(5), field 3)."""
    return path.joinpath("stat").read_bytes().rpartition(b")")[2].split()[0]
