"""A stand-in for nvidia-smi: answers for simulated GPUs from processes that really live.

Runs on the practice node as a script of its own (standard library only) with the GPUs' directory as its first
argument. A simulated scheduler holds memory by a file `holders/<pid>.json` there: {pid, starttime_ticks, gpu,
used_mib, name}. A file whose process is gone, or is another one by now, does not count: memory comes back as
with a real driver. `gpus.json` lists the GPUs, `faults/*.json` the faults that are switched on.

Spelling, units and exit codes are those of the real tool's manual page and of its answers as users reported
them ("[N/A]", "[Not Supported]", "[Insufficient Permissions]", exit 9 without a driver, 15 off the bus).
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

UNITS = {
    "memory.used": "MiB",
    "memory.total": "MiB",
    "memory.free": "MiB",
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "used_memory": "MiB",
    "used_gpu_memory": "MiB",
    "power.draw": "W",
}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "used_gpu_memory": "used_memory",
}

# Answers in place of any other: what the tool prints, and its exit code.
BROKEN = {
    "driver": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
        "latest NVIDIA driver is installed and running.\n",
        9,
    ),
    "lost": (
        "Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost. Reboot the system to "
        "recover this GPU\n",
        15,
    ),
    "no-devices": ("No devices were found\n", 6),
    "garbage": ("\x00\x1b[31m7f 45 4c 46\ufffd, , ,\nindex\n,,,\n", 0),
}


class Refused(Exception):
    """The stand-in does not know this; the text says what it does know."""


@dataclass(frozen=True)
class Holder:
    pid: int
    gpu: int
    used_mib: int
    name: str


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    name: str
    bus_id: str
    total_mib: int
    used_mib: int
    utilization: int
    mig: str


@dataclass(frozen=True)
class Node:
    driver: str
    gpus: tuple[Gpu, ...]
    holders: tuple[Holder, ...]
    faults: dict[str, Any] = field(default_factory=dict)


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5), field 22), None if it is gone.

    A zombie has given its memory back and counts as gone, unless other threads of it live.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in {b"Z", b"X"} and not _living_threads(pid):
            return None
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _living_threads(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        if (
            int(thread.name) != pid
            and thread.joinpath("stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
        ):
            return True
    return False


def read_holders(gpus_dir: Path) -> tuple[Holder, ...]:
    """The living holders by GPU and pid; a half-written or foreign file is passed over."""
    found = []
    for path in gpus_dir.joinpath("holders").glob("*.json"):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            pid = int(entry["pid"])
            if start_ticks(pid) == int(entry["starttime_ticks"]):
                name = _argv0(pid) or str(entry["name"])
                found.append(Holder(pid, int(entry["gpu"]), int(entry["used_mib"]), name))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(sorted(found, key=lambda holder: (holder.gpu, holder.pid)))


def sweep(gpus_dir: Path) -> None:
    """Remove the files of holders that are gone, as a driver takes a dead process's memory back."""
    for path in gpus_dir.joinpath("holders").glob("*.json"):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            if start_ticks(int(entry["pid"])) != int(entry["starttime_ticks"]):
                path.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            continue


def _argv0(pid: int) -> str:
    raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    return raw.split(b"\0")[0].decode("utf-8", "replace").strip()


def read_faults(gpus_dir: Path) -> dict[str, Any]:
    """All faults that are switched on, merged: {text, leak_mib, utilization, processes, answer}."""
    merged: dict[str, Any] = {}
    for path in sorted(gpus_dir.joinpath("faults").glob("*.json")):
        for key, value in json.loads(path.read_text(encoding="utf-8")).items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def read_node(gpus_dir: Path) -> Node:
    """GPUs, living holders and faults, from the directory's files."""
    stored = json.loads(gpus_dir.joinpath("gpus.json").read_text(encoding="utf-8"))
    faults = read_faults(gpus_dir)
    holders = read_holders(gpus_dir)
    gpus = []
    for entry in stored["gpus"]:
        index = int(entry["index"])
        held = sum(holder.used_mib for holder in holders if holder.gpu == index)
        used = int(entry["idle_mib"]) + held + int(faults.get("leak_mib", {}).get(str(index), 0))
        gpus.append(
            Gpu(
                index=index,
                uuid=entry["uuid"],
                name=entry["name"],
                bus_id=entry["bus_id"],
                total_mib=int(entry["total_mib"]),
                used_mib=min(used, int(entry["total_mib"])),
                utilization=int(faults.get("utilization", {}).get(str(index), 0)),
                mig=entry.get("mig", "Disabled"),
            )
        )
    return Node(stored["driver_version"], tuple(gpus), holders, faults)


def gpu_row(node: Node, gpu: Gpu) -> dict[str, str]:
    """Every field that --query-gpu knows, as text without unit."""
    row = {
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        "index": str(gpu.index),
        "count": str(len(node.gpus)),
        "uuid": gpu.uuid,
        "name": gpu.name,
        "pci.bus_id": gpu.bus_id,
        "driver_version": node.driver,
        "serial": "[N/A]",
        "memory.total": str(gpu.total_mib),
        "memory.used": str(gpu.used_mib),
        "memory.free": str(gpu.total_mib - gpu.used_mib),
        "utilization.gpu": str(gpu.utilization),
        "utilization.memory": "0",
        "mig.mode.current": gpu.mig,
        "compute_mode": "Default",
        "persistence_mode": "Enabled",
        "pstate": "P8",
        "temperature.gpu": "30",
        "power.draw": "[N/A]",
    }
    text = node.faults.get("text", {})
    row.update(text.get("*", {}))
    row.update(text.get(str(gpu.index), {}))
    return row


def process_rows(node: Node) -> list[tuple[int, dict[str, str]]]:
    """(GPU index, every field that --query-compute-apps knows) for each process that the tool would list."""
    shown = node.faults.get("processes")
    rows = []
    for holder in node.holders:
        gpu = next((g for g in node.gpus if g.index == holder.gpu), None)
        if gpu is None or shown == "hidden":
            continue
        row = {
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
            "uuid": gpu.uuid,
            "name": gpu.name,
            "pci.bus_id": gpu.bus_id,
            "serial": "[N/A]",
            "pid": str(holder.pid),
            "process_name": holder.name,
            "used_memory": str(holder.used_mib),
        }
        if shown is not None:
            row.update({"pid": shown, "process_name": shown, "used_memory": shown})
        rows.append((gpu.index, row))
    return rows


def csv(rows: list[dict[str, str]], fields: list[str], known: set[str], modifiers: set[str]) -> str:
    """Rows as the real tool's --format=csv[,noheader][,nounits]."""
    names = [ALIASES.get(name, name) for name in fields]
    for given, name in zip(fields, names, strict=True):
        if name not in known:
            raise Refused(f'Field "{given}" is not a valid field to query.\n')
    lines = []
    if "noheader" not in modifiers:
        lines.append(", ".join(f"{f} [{UNITS[f]}]" if f in UNITS else f for f in fields))
    for row in rows:
        cells = []
        for name in names:
            value = row[name]
            unit = "" if "nounits" in modifiers or value.startswith("[") else UNITS.get(name, "")
            cells.append(f"{value} {unit}".rstrip())
        lines.append(", ".join(cells))
    return "".join(f"{line}\n" for line in lines)


def table(node: Node) -> str:
    """What the bare command prints: a short table, headed as simulated."""
    lines = [f"SIMULATED NVIDIA-SMI    driver {node.driver}    no GPU behind this: fixops practice node", ""]
    for gpu in node.gpus:
        row = gpu_row(node, gpu)
        used, total = (
            v if v.startswith("[") else v + "MiB" for v in (row["memory.used"], row["memory.total"])
        )
        lines.append(f"| {gpu.index:>3}  {gpu.name:<44} | {used:>9} / {total:>9} | {gpu.utilization:>3}% |")
    lines += ["", "| Processes:"]
    listed = process_rows(node)
    for index, row in listed:
        lines.append(
            f"| {index:>3}  {row['pid']:>9}  C  {row['process_name']:<40.40} {row['used_memory']:>7}MiB |"
        )
    if not listed and node.faults.get("processes") is None:
        lines.append("|  No running processes found")
    return "\n".join(lines) + "\n"


def answer(node: Node, argv: list[str]) -> str:
    """What the tool prints for these arguments; Refused for what the stand-in does not know."""
    options: dict[str, str] = {}
    rest = list(argv)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        if name in {"-q", "--query", "-x", "-l", "--loop", "dmon", "pmon", "topo", "mig"}:
            raise Refused(
                f"{name} is not supported by this stand-in: use --query-gpu or --query-compute-apps\n"
            )
        if name in {"-i", "--id", "--format", "--query-gpu", "--query-compute-apps"}:
            options[name.lstrip("-")] = value if joined or not rest else rest.pop(0)
        elif name in {"-L", "--list-gpus", "-h", "--help", "--version"}:
            options[name.lstrip("-")[0]] = ""
        else:
            raise Refused(
                f"Invalid combination of input arguments: {name}. Please run 'nvidia-smi -h' for help.\n"
            )
    if "h" in options:
        return f"{__doc__}\n"
    if "v" in options:
        return f"NVIDIA-SMI version  : simulated\nDRIVER version      : {node.driver}\n"
    chosen = _chosen(node, options.get("i", options.get("id")))
    if "L" in options or "l" in options:
        return "".join(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})\n" for gpu in chosen)
    if "query-gpu" not in options and "query-compute-apps" not in options:
        return table(Node(node.driver, chosen, node.holders, node.faults))
    modifiers = set(options.get("format", "").split(","))
    if "csv" not in modifiers:
        raise Refused('"--format=" switch is missing or is not csv, e.g. --format=csv,noheader,nounits\n')
    if "query-gpu" in options:
        rows = [gpu_row(node, gpu) for gpu in chosen]
        known = set(gpu_row(node, node.gpus[0]))
        return csv(rows, _fields(options["query-gpu"]), known, modifiers)
    indices = {gpu.index for gpu in chosen}
    listed = [row for index, row in process_rows(node) if index in indices]
    known = {"timestamp", "uuid", "name", "pci.bus_id", "serial", "pid", "process_name", "used_memory"}
    return csv(listed, _fields(options["query-compute-apps"]), known, modifiers)


def _fields(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _chosen(node: Node, wanted: str | None) -> tuple[Gpu, ...]:
    if wanted is None:
        return node.gpus
    names = _fields(wanted)
    chosen = tuple(g for g in node.gpus if {str(g.index), g.uuid, g.bus_id} & set(names))
    if len(chosen) != len(names):
        raise Refused("No devices were found\n")
    return chosen


def main(argv: list[str]) -> int:
    """`nvidia_smi.py GPUS_DIR [arguments of nvidia-smi]`; returns the exit code."""
    sweep(Path(argv[0]))
    node = read_node(Path(argv[0]))
    broken = node.faults.get("answer")
    if broken == "hang":
        # As on a node with a stuck driver; whoever calls the tool must bring the time limit.
        while True:
            time.sleep(3600)
    if broken is not None:
        text, code = BROKEN[broken]
        sys.stdout.buffer.write(text.encode("utf-8"))
        return code
    try:
        sys.stdout.write(answer(node, argv[1:]))
        sys.stdout.flush()
    except Refused as refused:
        sys.stdout.write(str(refused))
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
