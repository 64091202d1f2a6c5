"""GPU memory that a simulated rank holds: one file for each rank, read by the practice node's nvidia-smi."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from .procs import starttime_ticks


def gpu_of(rank: int, base: int, step: int, environ: Mapping[str, str] = os.environ) -> int:
    """Physical index of the rank's GPU; CUDA_VISIBLE_DEVICES renumbers."""
    logical = base + rank * step
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = [int(item) for item in visible.split(",") if item.strip().isdigit()]
    return devices[logical] if logical < len(devices) else logical


class Holder:
    """This process's entry in `gpus_dir` (None: no file is written)."""

    def __init__(self, gpus_dir: str | None, gpu: int, name: str) -> None:
        self.path = Path(gpus_dir) / f"{os.getpid()}.json" if gpus_dir else None
        self._fixed = {
            "pid": os.getpid(),
            "starttime_ticks": starttime_ticks(os.getpid()),
            "gpu": gpu,
            "name": name,
        }

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
        with contextlib.suppress(OSError):
            (Path(gpus_dir) / f"{pid}.json").unlink()
