"""Wait until the GPUs' memory is free again."""

from __future__ import annotations

from . import gpus
from .base import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context


def gpu_wait(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{indices|null, baseline_mib?, slack_mib?, timeout_s, interval_s?, pids_gone?, path?} -> see below.

    Waits until each GPU's memory is back to `baseline_mib` (0) plus `slack_mib` (1024), or below 2 % of its
    total, and none of `pids_gone` holds one. Events {"gpus": [...]} when the memory changes.
    -> {"freed": true|false|null, gpus, holders, device_file_holders, waited_s, why}: null when it cannot be
    told; `device_file_holders` (gpus.py) of memory that stays in use.
    """
    limit = float(params.get("baseline_mib") or 0) + float(params.get("slack_mib") or gpus.DEFAULT_SLACK_MIB)
    timeout_s = float(params.get("timeout_s") or 60)
    began = ctx.now()
    shown: list[Any] = []
    while True:
        found = gpus.query(min(gpus.DEFAULT_TIMEOUT_S, max(1.0, timeout_s)), params.get("path"))
        indices = params.get("indices")
        chosen = [gpu for gpu in found["gpus"] if indices is None or gpu["index"] in indices]
        memory = [gpu["memory_used_mib"] for gpu in chosen]
        if memory != shown:
            ctx.event({"gpus": chosen})
            shown = memory
        freed, why = _freed(found, chosen, indices, limit, set(params.get("pids_gone") or ()))
        waited_s = round(ctx.now() - began, 3)
        untold = freed is None and (found["available"] or found["program"] is None)  # waiting will not help
        if freed or untold or waited_s >= timeout_s:
            outcome = {"freed": freed, "waited_s": waited_s, "why": why}
            files = gpus.device_file_holders() if freed is False else []
            return {**outcome, "gpus": chosen, "holders": found["holders"], "device_file_holders": files}
        if ctx.wait(float(params.get("interval_s") or 0.5)):
            raise OpError("cancelled", "waiting for the GPUs' memory was cancelled")
        ctx.check()


def _freed(
    found: dict[str, Any],
    chosen: list[dict[str, Any]],
    indices: list[int] | None,
    limit: float,
    gone: set[int],
) -> tuple[bool | None, str | None]:
    if not found["available"]:
        return None, found["why"]
    missing = set(indices or ()) - {gpu["index"] for gpu in chosen}
    if missing:
        return None, f"nvidia-smi does not list GPU {', '.join(map(str, sorted(missing)))}"
    unknown = [str(gpu["index"]) for gpu in chosen if gpus.idle(gpu, limit) is None]
    if unknown:
        return None, f"nvidia-smi does not tell the memory in use of GPU {', '.join(unknown)}"
    held = [str(gpu["index"]) for gpu in chosen if not gpus.idle(gpu, limit)]
    left = sorted(gone & {holder["pid"] for holder in found["holders"]})
    if left:
        return False, f"still on the GPUs: {', '.join(map(str, left))}"
    return (False, f"memory still in use on GPU {', '.join(held)}") if held else (True, None)


OPS = {"gpu_wait": gpu_wait}
