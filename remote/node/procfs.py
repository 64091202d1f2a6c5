"""Single facts of single processes, read from /proc (proc(5)). Nothing here raises on a process that ends."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
DEAD = ("Z", "X", "x")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read(path: str, limit: int = 1 << 20) -> bytes | None:
    """The content of a file of /proc; None when it cannot be read (any more)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = []
        while limit > 0:
            piece = os.read(handle, min(limit, 65536))
            if not piece:
                break
            pieces.append(piece)
            limit -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(handle)


def link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def root(pid: int | str) -> str | None:
    """The root directory that a process has, as "DEVICE:INODE": another one in a container or a chroot."""
    try:
        info = os.stat(f"/proc/{pid}/root")
    except OSError:
        return None
    return f"{info.st_dev}:{info.st_ino}"


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid: int, thread: int | None = None) -> dict[str, Any] | None:
    """What /proc/PID/stat tells, None when there is no such process (or it is hidden from us)."""
    text = read(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat", 4096)
    if not text:
        return None
    head, _, tail = text.rpartition(b")")  # the name may hold spaces and brackets
    fields = tail.split()
    return {
        "pid": pid,
        "comm": head.partition(b"(")[2].decode("utf-8", "replace"),
        "state": fields[0].decode(),
        "ppid": int(fields[1]),
        "pgid": int(fields[2]),
        "sid": int(fields[3]),
        "kernel": bool(int(fields[6]) & _KERNEL_THREAD),
        "starttime_ticks": int(fields[19]),
    }


def argv(pid: int) -> list[str]:
    """The command line; empty for a zombie and a kernel thread. A rewritten title is its first item."""
    text = (read(f"/proc/{pid}/cmdline") or b"").rstrip(b"\0")
    return text.decode("utf-8", "replace").split("\0") if text else []


def living_threads(pid: int) -> bool:
    """Has a zombie leader threads that still live? They keep its memory and its GPU context."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    states = (stat(pid, int(thread)) for thread in threads)
    return any(found is not None and found["state"] not in DEAD for found in states)


def alive(pid: int, starttime_ticks: int) -> bool:
    """Does the process that started then still run? A zombie does only if one of its threads does."""
    found = stat(pid)
    if found is None or found["starttime_ticks"] != starttime_ticks:
        return False
    return found["state"] not in DEAD or living_threads(pid)


def ancestors(pid: int) -> list[int]:
    """The parents of a process, nearest first."""
    chain: list[int] = []
    found = stat(pid)
    while found and found["ppid"] > 0 and found["ppid"] not in chain:
        chain.append(found["ppid"])
        found = stat(found["ppid"])
    return chain


def boot_id() -> str:
    """Changes with every boot of the kernel (random(4))."""
    return (read("/proc/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip()


def epoch_of_boot() -> float:
    """Seconds since the epoch at which start times count 0. /proc/uptime may be a container's own."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def start_time(starttime_ticks: int) -> float:
    return round(epoch_of_boot() + starttime_ticks / TICKS_PER_S, 3)


def user_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def uid_of(pid: int) -> int | None:
    """The effective user. /proc/PID's owner would be root for a process that forbids core dumps."""
    for line in (read(f"/proc/{pid}/status", 4096) or b"").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[2])
    return None
