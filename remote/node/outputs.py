"""Where a process's output ends: in its own files, or behind a pipe (`2>&1 | tee server.log`)."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import os
import stat as stat_bits

from . import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Programs that write all that they read. Behind another one, such as grep, a part of it would be missing.
_COPIERS = ("tee", "cat", "ts", "rotatelogs", "cronolog")
_WRITABLE = os.O_WRONLY | os.O_RDWR


def log_files(pid: int, processes: dict[int, dict[str, Any]]) -> list[str]:
    """The regular files that a server's log ends in. `processes`: all, as procs.table() has them.

    Its standard error: there SGLang's logger writes (configure_logger, all versions). A file that is only
    its standard output (`>> a.log 2>> b.log`) holds none of its records, and may hold an older boot's.
    """
    files, pipes = _ends(pid, ("2",))
    followed: set[str] = set()
    while pipes - followed:
        new = pipes - followed
        followed |= new
        for reader in _readers(new, processes):
            more, behind = _ends(reader, _written(reader))
            files, pipes = files | more, pipes | behind
    return sorted(files)


def _readers(pipes: set[str], processes: dict[int, dict[str, Any]]) -> list[int]:
    """The copying programs that have one of these pipes as their standard input."""
    copying = [pid for pid, process in processes.items() if process["comm"] in _COPIERS]
    return [pid for pid in copying if procfs.link(f"/proc/{pid}/fd/0") in pipes]


def _written(pid: int) -> list[str]:
    """The descriptors that a process can write to. What it complains of is none of what it copies."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    return [number for number in descriptors if number != "2" and _flags(pid, number) & _WRITABLE]


def _flags(pid: int, descriptor: str) -> int:
    """How it was opened (proc(5), fdinfo): `flags:` in octal."""
    for line in (procfs.read(f"/proc/{pid}/fdinfo/{descriptor}", 4096) or b"").splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8)
    return 0


def _ends(pid: int, descriptors: list[str] | tuple[str, ...]) -> tuple[set[str], set[str]]:
    """(regular files, pipes) behind these descriptors."""
    files, pipes = set(), set()
    for descriptor in descriptors:
        path = f"/proc/{pid}/fd/{descriptor}"
        try:
            mode, target = os.stat(path).st_mode, os.readlink(path)
        except OSError:
            continue
        if stat_bits.S_ISREG(mode):
            files.add(target)
        elif stat_bits.S_ISFIFO(mode):
            pipes.add(target)
    return files, pipes
