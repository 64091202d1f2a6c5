"""The GPUs' memory and who holds it, from nvidia-smi under a time limit. Not told is unknown, never free.

Fields as of nvidia-smi's manual page ("--query-gpu", "--query-compute-apps"). In their place it prints
"[N/A]", "[Not Supported]" or "[Insufficient Permissions]"; in a container the list of processes may be empty
while the memory is in use.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH113, PTH118, PTH208

from __future__ import annotations

import os
import re
import signal
import time

from . import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen
    from typing import Any

    from .base import Context

USUAL_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
GPU_FIELDS = ("index", "uuid", "name", "memory.used", "memory.total", "utilization.gpu", "mig.mode.current")
APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
DEFAULT_TIMEOUT_S = 20.0
# What an idle GPU may show as used: driver and display contexts.
DEFAULT_SLACK_MIB = 1024
SLACK_SHARE = 0.02


def find_program(path: str | None) -> str | None:
    """nvidia-smi in `path` (like $PATH); with None in $PATH itself and then in the usual places."""
    places = path.split(os.pathsep) if path is not None else [*os.get_exec_path(), *USUAL_PLACES]
    programs = (os.path.join(place, "nvidia-smi") for place in places if place)
    return next((found for found in programs if os.path.isfile(found) and os.access(found, os.X_OK)), None)


def number(text: str) -> int | None:
    """A plain number of MiB or percent; None for "[N/A]" and its like."""
    match = re.fullmatch(r"(\d+)(?: (?:MiB|%))?", text)
    return int(match.group(1)) if match else None


def parse_gpus(text: str, fields: tuple[str, ...] = GPU_FIELDS) -> tuple[list[dict[str, Any]], list[str]]:
    """(the GPUs, the lines that are none) of --query-gpu with these fields."""
    found: list[dict[str, Any]] = []
    rest: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        after = len(fields) - 3  # the name, third, may hold commas
        if len(cells) < len(fields) or number(cells[0]) is None:
            rest.append(line)
            continue
        row = dict(zip(fields, [*cells[:2], ", ".join(cells[2:-after]), *cells[-after:]]))
        found.append(
            {
                "index": number(row["index"]),
                "uuid": row["uuid"],
                "name": row["name"],
                "memory_used_mib": number(row["memory.used"]),
                "memory_total_mib": number(row["memory.total"]),
                "utilization": number(row["utilization.gpu"]),
                "mig": row.get("mig.mode.current") == "Enabled",
            }
        )
    return found, rest


def parse_holders(text: str, gpus: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    """(the processes on the GPUs, could all lines be understood) of --query-compute-apps."""
    indices = {gpu["uuid"]: gpu["index"] for gpu in gpus}
    found: list[dict[str, Any]] = []
    understood = True
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        if line.startswith("No running processes found"):
            continue
        pid = number(cells[1]) if len(cells) >= len(APP_FIELDS) else None
        understood = understood and pid is not None
        found.append(
            {
                "gpu_index": indices.get(cells[0]),
                "uuid": cells[0],
                "pid": pid,
                "name": ", ".join(cells[2:-1]),
                "used_mib": number(cells[-1]),
            }
        )
    return found, understood


def idle(gpu: dict[str, Any], limit_mib: float) -> bool | None:
    """Is no more in use than an idle GPU shows? None when that is unknown. Utilization is no criterion."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    if used is None:
        return None
    return bool(used <= limit_mib or (total is not None and used < SLACK_SHARE * total))


class _Failed(Exception):
    """nvidia-smi did not answer properly."""


def _ask(program: str, subject: str, fields: tuple[str, ...]) -> Popen[bytes]:
    import subprocess

    return subprocess.Popen(
        [program, f"--query-{subject}={','.join(fields)}", "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )


def _answer(process: Popen[bytes], deadline: float) -> str:
    """What it printed, or _Failed. One that cannot be killed is left: a driver may hold it for ever."""
    import subprocess

    try:
        data, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout
        process.stdout.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            raise _Failed("nvidia-smi hangs and cannot be killed") from None
        raise _Failed("nvidia-smi hangs: no answer within the time limit") from None
    text = data.decode("utf-8", "replace")
    if process.returncode != 0:
        raise _Failed(f"nvidia-smi: exit code {process.returncode}: {text.strip()[:300]}")
    return text


def query(timeout_s: float, path: str | None = None) -> dict[str, Any]:
    """What `gpus` answers, without the device files. `program` is null without nvidia-smi."""
    program = find_program(path)
    result: dict[str, Any] = {"program": program, "available": False, "why": None, "gpus": []}
    result.update(holders=[], holders_known=False)
    if program is None:
        return {**result, "why": "nvidia-smi was not found"}
    deadline = time.monotonic() + timeout_s
    try:
        asked = [_ask(program, "gpu", GPU_FIELDS), _ask(program, "compute-apps", APP_FIELDS)]
    except OSError as error:
        return {**result, "why": f"{program}: {error.strerror}"}
    answers: list[str] = []
    problems: list[str | None] = []
    for process in asked:
        try:
            answers.append(_answer(process, deadline))
            problems.append(None)
        except _Failed as error:
            answers.append("")
            problems.append(str(error))
    text, why = answers[0], problems[0]
    fields: tuple[str, ...] = GPU_FIELDS
    if why and "mig.mode.current" in why:  # drivers before MIG
        fields = GPU_FIELDS[:-1]
        try:
            text, why = _answer(_ask(program, "gpu", fields), deadline), None
        except _Failed as error:
            why = str(error)
    gpus, rest = parse_gpus(text, fields)
    if why is None and (rest or not gpus):
        why = f"nvidia-smi's answer is not understood: {(rest or ['it is empty'])[0][:200]}"
    holders, understood = parse_holders(answers[1], gpus)
    known = why is None and problems[1] is None and understood and accounted_for(gpus, holders)
    return {
        **result,
        "available": why is None,
        "why": why or problems[1],
        "gpus": gpus,
        "holders": [{**holder, **_who(holder["pid"])} for holder in holders],
        "holders_known": known,
    }


def accounted_for(gpus: list[dict[str, Any]], holders: list[dict[str, Any]]) -> bool:
    """Do the listed processes explain the memory in use? In a container others' processes are not listed."""
    if any(holder["gpu_index"] is None for holder in holders):
        return False  # a MIG instance: which GPU it is of is not told
    for gpu in gpus:
        listed = [holder["used_mib"] for holder in holders if holder["gpu_index"] == gpu["index"]]
        if listed and (gpu["memory_used_mib"] is None or None in listed):
            continue
        used = gpu["memory_used_mib"]
        if not idle({**gpu, "memory_used_mib": used and used - sum(listed)}, DEFAULT_SLACK_MIB):
            return False
    return True


def _who(pid: int | None) -> dict[str, Any]:
    """The user of a holder as this machine's /proc shows it; null for a pid of another namespace."""
    uid = None if pid is None else procfs.uid_of(pid)
    return {"user": None if uid is None else procfs.user_of(uid)}


def device_file_holders(prefix: str = "/dev/nvidia") -> list[dict[str, Any]]:
    """[{pid, name, user, path}]: who has /dev/nvidiaN open, as `fuser` shows; only those we may look at."""
    device = re.compile(re.escape(prefix) + r"\d+")
    found: list[dict[str, Any]] = []
    for pid in procfs.pids():
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        opened = {procfs.link(f"/proc/{pid}/fd/{descriptor}") or "" for descriptor in descriptors}
        for path in sorted(filter(device.fullmatch, opened)):
            name = (procfs.stat(pid) or {}).get("comm")
            found.append({"pid": pid, "name": name, **_who(pid), "path": path})
    return found


def gpus(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{timeout_s, path?, device_prefix?} -> what query() answers, and `device_file_holders`.

    Memory in MiB, utilization in percent, null where unknown. `holders_known` false: the list may be short
    of somebody, so an empty one does not mean free; only then the device files are looked at. `path`: where
    to look for nvidia-smi instead of $PATH.
    """
    prefix = params.get("device_prefix") or "/dev/nvidia"
    result = query(float(params.get("timeout_s") or DEFAULT_TIMEOUT_S), params.get("path"))
    return {**result, "device_file_holders": [] if result["holders_known"] else device_file_holders(prefix)}


OPS = {"facts.gpus": gpus}
