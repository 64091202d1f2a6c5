"""Wait until the GPUs' memory is back. What is not reported is unknown, never free."""

from __future__ import annotations

from typing import Any

from .errors import UnhealthyError
from .intent import our_gpus, uses_no_gpu
from .picture import Picture
from .plan import Action, Plan
from .proofs.gpu import IDLE_MIB
from .work import Done, Work

FREE_TIMEOUT_S = 60.0


def to_free(picture: Picture) -> Action:
    """What there is to wait for: memory in use on our GPUs while no server of ours is up."""
    if uses_no_gpu(picture.node):
        return Action("free-gpus", False, "the server uses no GPU")
    owned = picture.ownership
    if owned is not None and owned.server is not None and owned.server.launcher is not None:
        return Action("free-gpus", False, f"the server, pid {owned.server.launcher.pid}, holds them")
    boards = picture.section("gpus").get("gpus", [])
    visible = our_gpus(picture.node)
    ours = [board for board in boards if visible is None or board["index"] in visible]
    if ours and all(board["memory_used_mib"] is not None and not _busy(board) for board in ours):
        return Action("free-gpus", False, f"free: {_memory(ours)}")
    return Action("free-gpus", True, "wait until the GPUs' memory is back")


def free_gpus(work: Work, plan: Plan) -> Done:
    """UnhealthyError when memory stays in use after its processes have ended."""
    action = plan.action("free-gpus")
    if not action.would_change:
        return Done(action.id, False, action.detail)
    return wait_free(work, detail=action.detail)


def wait_free(work: Work, *, detail: str, timeout_s: float = FREE_TIMEOUT_S) -> Done:
    id = "free-gpus"
    node = work.session.node
    if uses_no_gpu(node):
        return Done(id, False, "the server uses no GPU")
    work.reporter.begin(id, detail)
    visible = our_gpus(node)
    reply = work.change(
        "gpu_wait",
        {
            "indices": sorted(visible) if visible is not None else None,
            "slack_mib": IDLE_MIB,
            "timeout_s": timeout_s,
            "interval_s": 1.0,
        },
        action=id,
        detail=detail,
        timeout_s=timeout_s + 60.0,
        on_event=lambda event: work.reporter.progress(_memory(event.get("gpus", []))),
    )
    memory = _memory(reply["gpus"])
    if reply["freed"] is False:
        held = [f"GPU {g['index']}: {g['memory_used_mib']} MiB" for g in reply["gpus"] if _busy(g)]
        raise UnhealthyError(
            f"{node.name}: memory is still in use after {reply['waited_s']:.0f} s: {'; '.join(held)}, "
            f"{held_by(reply)}",
            hint="nvidia-smi -r resets an idle GPU; a holder in another container must end there",
            node=node.name,
            data={"reason": "gpu-in-use"},
        )
    if reply["freed"] is None:
        detail = f"unknown: {reply['why']}"
        work.reporter.done(id, detail, changed=True)
        return Done(id, True, detail)
    detail = f"memory back after {reply['waited_s']:.1f} s: {memory}"
    work.reporter.done(id, detail, changed=True)
    return Done(id, True, detail)


def held_by(reply: dict[str, Any]) -> str:
    """Whom nvidia-smi lists; without any, who has the devices open (case 061)."""
    listed = [f"pid {each['pid']} {each['name']} on GPU {each['gpu_index']}" for each in reply["holders"]]
    if listed:
        return f"held by {'; '.join(listed)}"
    opened = [f"pid {each['pid']} {each['name']} ({each['user']})" for each in reply["device_file_holders"]]
    if opened:
        return f"no process is listed; the devices are open in {', '.join(sorted(set(opened)))}"
    return "and no process is listed: held by the driver, or in another container"


def _busy(gpu: dict[str, Any]) -> bool:
    return gpu["memory_used_mib"] is not None and gpu["memory_used_mib"] > IDLE_MIB


def _memory(gpus: list[dict[str, Any]]) -> str:
    used = [gpu["memory_used_mib"] for gpu in gpus]
    known = [each for each in used if each is not None]
    if not known:
        return "memory in use not reported"
    return f"{len(gpus)} GPUs, {sum(known)} MiB in use" + (" (some not reported)" if None in used else "")
