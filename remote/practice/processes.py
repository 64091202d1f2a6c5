"""The processes of one practice node: which they are, and how they are ended.

A process belongs to a practice node by evidence only: the pid and start time in the node's own records, the
node's directory as marker in its environment, or code of the node's own interpreter environment mapped into
it (a process title written over the environment cannot hide that), or an SSH server with the node's
configuration. A shell or an editor that merely stands in the directory does not belong to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from remote.practice.layout import MARKER, Layout
from remote.practice.nvidia_smi import start_ticks


@dataclass(frozen=True)
class Known:
    """One process, told from a later one of the same pid by its start time (clock ticks since boot)."""

    pid: int
    starttime_ticks: int


def known(pid: int) -> Known | None:
    """The process that has this pid now; None if there is none (a zombie is none)."""
    ticks = start_ticks(pid)
    return None if ticks is None else Known(pid, ticks)


def alive(process: Known) -> bool:
    return start_ticks(process.pid) == process.starttime_ticks


def title(pid: int) -> str:
    """The command line as ps shows it, empty if the process is gone."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .rstrip(b"\0")
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def session_of(pid: int) -> int:
    """The session's id, 0 if the process is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def children(pid: int) -> list[int]:
    """Direct children, by pid."""
    return [other for other in _pids() if parent(other) == pid]


def of(layout: Layout) -> list[Known]:
    """Every living process that belongs to the practice node, this one and its ancestors excepted."""
    spared = set(_lineage(os.getpid()))
    found = {entry for entry in _recorded(layout) if alive(entry)}
    marker = f"{MARKER}={layout.root}".encode()
    environment = os.fsencode(layout.environment)
    for pid in _pids():
        if _marked(pid, marker) or _maps_code_of(pid, environment) or _serves_ssh(pid, layout):
            entry = known(pid)
            if entry is not None:
                found.add(entry)
    return sorted((entry for entry in found if entry.pid not in spared), key=lambda entry: entry.pid)


def listener(port: int) -> int | None:
    """The pid that listens on this TCP port of any local address, None if there is none that we may see."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                cells = line.split()
                if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{cells[9]}]")
    for pid in _pids():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if inodes and str(descriptor.readlink()) in inodes:
                        return pid
    return None


def end(
    processes: Iterable[Known], *, term_timeout_s: float = 3.0, kill_timeout_s: float = 5.0
) -> list[Known]:
    """SIGTERM, wait, SIGKILL, wait; returns what still lives. Stopped processes are continued."""
    left = [entry for entry in processes if alive(entry)]
    for number, timeout_s in ((signal.SIGTERM, term_timeout_s), (signal.SIGKILL, kill_timeout_s)):
        for entry in left:
            send(entry, number)
            send(entry, signal.SIGCONT)
        deadline = time.monotonic() + timeout_s
        while left and time.monotonic() < deadline:
            time.sleep(0.01)
            left = [entry for entry in left if alive(entry)]
    return left


def send(process: Known, number: int) -> bool:
    """Signal exactly this process; False if it is gone or not ours to signal."""
    if not alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _pids() -> Iterator[int]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path object for each of a thousand pids is slow
        if entry.isdigit():
            yield int(entry)


def _lineage(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        pid = parent(pid)


def _marked(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _serves_ssh(pid: int, layout: Layout) -> bool:
    """An SSH server with this node's configuration (its environment is that of whoever started it)."""
    text = title(pid)
    if f"{layout.ssh}{os.sep}" not in text:
        return False
    first = text.split()[0]
    return first == "sshd:" or Path(first).name == "sshd" or "remote.practice.asyncssh_server" in text


def _maps_code_of(pid: int, directory: bytes) -> bool:
    """Is an executable file below `directory` mapped into the process? (proc(5): address perms ... path)"""
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False
    if directory not in maps:
        return False
    rows = (line.split(None, 5) for line in maps.splitlines())
    return any(len(row) == 6 and b"x" in row[1] and row[5].startswith(directory + b"/") for row in rows)


def _recorded(layout: Layout) -> Iterator[Known]:
    """What the node's own files name: node.json, the toolkit's boot records, the GPUs' holders."""
    for entry in _entries(layout.node_json, "processes"):
        yield from _as_known(entry)
    for path in [*layout.state_dir.glob("boots/*/boot.json"), *layout.holders.glob("*.json")]:
        for entry in _entries(path, None):
            yield from _as_known(entry)


def _entries(path: Path, key: str | None) -> list[object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    if key is None:
        return [content]
    listed = content.get(key) if isinstance(content, dict) else None
    return listed if isinstance(listed, list) else []


def _as_known(entry: object) -> Iterator[Known]:
    if isinstance(entry, dict):
        pid, ticks = entry.get("pid"), entry.get("starttime_ticks")
        if isinstance(pid, int) and isinstance(ticks, int):
            yield Known(pid, ticks)
