"""Who listens on a port: read from /proc/net/tcp and /proc/PID/fd (proc(5))."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH208

from __future__ import annotations

import os

from . import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STATES = {  # include/net/tcp_states.h of Linux
    "01": "ESTABLISHED",
    "02": "SYN_SENT",
    "03": "SYN_RECV",
    "04": "FIN_WAIT1",
    "05": "FIN_WAIT2",
    "06": "TIME_WAIT",
    "07": "CLOSE",
    "08": "CLOSE_WAIT",
    "09": "LAST_ACK",
    "0A": "LISTEN",
    "0B": "CLOSING",
}


def address(text: str) -> str:
    """The address of one /proc/net/tcp column: hexadecimal words in the machine's byte order."""
    import socket
    import struct

    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def rows(text: str, port: int) -> list[dict[str, Any]]:
    """The sockets of exactly this local port in the text of /proc/net/tcp or tcp6."""
    found: list[dict[str, Any]] = []
    marker = f":{port:04X} "
    for line in text.splitlines()[1:]:
        if marker not in line:
            continue
        fields = line.split()
        local, _, local_port = fields[1].partition(":")
        if int(local_port, 16) == port:
            state = _STATES.get(fields[3], fields[3])
            found.append({"state": state, "address": local, "uid": int(fields[7]), "inode": int(fields[9])})
    return found


def holders(inode: int, pids: list[int]) -> list[int]:
    """Which of these processes have the socket open."""
    wanted = f"socket:[{inode}]"
    found: list[int] = []
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        if any(procfs.link(f"/proc/{pid}/fd/{descriptor}") == wanted for descriptor in descriptors):
            found.append(pid)
    return found


def listeners(
    port: int | None, likely: list[int], everything: list[int]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """([{port, address, inode, pid, pids, uid}] in LISTEN, {state: number of sockets}) of one port.

    The owner is looked for among the `likely` processes, among `everything` only when it is none of them.
    """
    found: list[dict[str, Any]] = []
    states: dict[str, int] = {}
    for name in ("tcp", "tcp6") if port is not None else ():
        text = (procfs.read(f"/proc/net/{name}", 1 << 26) or b"").decode("ascii", "replace")
        for row in rows(text, port or 0):
            states[row["state"]] = states.get(row["state"], 0) + 1
            if row["state"] == "LISTEN":
                pids = holders(row["inode"], likely) or holders(row["inode"], everything)
                owner = {"pid": pids[0] if pids else None, "pids": pids}
                here = {"port": port, "address": address(row["address"])}
                found.append({**here, **owner, "inode": row["inode"], "uid": row["uid"]})
    return found, states
