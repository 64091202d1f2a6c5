"""GPU memory that a simulated rank holds: one file for each rank, read by the practice node's nvidia-smi."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from .procs import living_since, starttime_ticks


def gpu_of(rank: int, base: int, step: int, environ: Mapping[str, str] = os.environ) -> int | None:
    """Physical index of the rank's GPU; CUDA_VISIBLE_DEVICES renumbers.

    None if it shows this process too few.
    """
    logical = base + rank * step
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return logical
    devices = [int(item) for item in visible.split(",") if item.strip().isdigit()]
    return devices[logical] if logical < len(devices) else None


class Holder:
    """This process's entry in `gpus_dir` (None: no file is written)."""

    def __init__(self, gpus_dir: str | None, gpu: int | None, name: str) -> None:
        self.path = Path(gpus_dir) / f"{os.getpid()}.json" if gpus_dir else None
        self._fixed = {
            "pid": os.getpid(),
            "starttime_ticks": starttime_ticks(os.getpid()),
            "gpu": gpu,
            "name": name,
        }

    def others_mib(self) -> int:
        """What living processes besides this one hold of the same GPU."""
        total = 0
        for path in self.path.parent.glob("*.json") if self.path else ():
            with contextlib.suppress(OSError, ValueError, KeyError):
                entry = json.loads(path.read_text(encoding="utf-8"))
                mine = entry["gpu"] == self._fixed["gpu"] and entry["pid"] != os.getpid()
                if mine and living_since(entry["pid"]) == entry["starttime_ticks"]:
                    total += int(entry["used_mib"])
        return total

    def hold(self, used_mib: int) -> None:
        """Say that this process holds `used_mib` MiB of its GPU."""
        if self.path is None:
            return
        beside = self.path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # the practice node is being taken down
            beside.write_text(json.dumps(self._fixed | {"used_mib": used_mib}), encoding="utf-8")
            beside.replace(self.path)

    def release(self) -> None:
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()


def drop(gpus_dir: str | None, pid: int) -> None:
    """Remove the entry of a process that has been killed and so could not do it."""
    if gpus_dir:
        for name in (f"{pid}.json", f"{pid}.tmp"):
            (Path(gpus_dir) / name).unlink(missing_ok=True)
