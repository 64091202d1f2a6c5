"""Wait until the GPUs' memory is back. What is not reported is unknown, never free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import UnhealthyError
from .intent import our_gpus, uses_no_gpu
from .ownership import Foreign, Process
from .picture import Picture
from .plan import Action, free_action
from .proofs.gpu import IDLE_MIB
from .strangers import refuse_stale, refuse_strangers
from .work import Done, Work

FREE_TIMEOUT_S = 60.0


def to_free(picture: Picture) -> Action:
    """What there is to wait for: memory in use on our GPUs while no server of ours is up.

    RefusedError where somebody else is seen to hold some, or a stale process does: it would not come back.
    """
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
    refuse_strangers(picture.node, strangers(picture))
    refuse_stale(picture)
    return Action("free-gpus", True, "wait until the GPUs' memory is back")


def to_free_beside(picture: Picture, to_end: Sequence[Process]) -> Action:
    """What there is to wait for once these processes have ended, whoever else holds the GPUs."""
    others = strangers(picture)
    if not to_end or not others:
        return free_action(to_end, picture, restart=True)
    left, named = (
        ours_alone(picture),
        f"not waited for, as it is not ours to end: {'; '.join(map(str, others))}",
    )
    if not left:
        return Action("free-gpus", False, named)
    return Action(
        "free-gpus", True, f"wait for the memory of GPU {', '.join(map(str, sorted(left)))}; {named}"
    )


def strangers(picture: Picture) -> list[Foreign]:
    """Somebody else's processes that hold our GPUs."""
    return [each for each in (picture.ownership.foreign if picture.ownership else ()) if each.gpu is not None]


def ours_alone(picture: Picture) -> frozenset[int] | None:
    """Our GPUs that nobody else is seen to hold: their memory comes back. None: all of the node's."""
    visible, held = our_gpus(picture.node), {each.gpu for each in strangers(picture)}
    if not held:
        return visible
    if -1 in held:
        return frozenset()  # which of them it holds is not told
    boards = picture.section("gpus")["gpus"]
    return frozenset(visible if visible is not None else (each["index"] for each in boards)) - held


def free_gpus(
    work: Work, action: Action, indices: frozenset[int] | None, *, beside: Sequence[Foreign] = ()
) -> Done:
    """Wait for the memory of these GPUs, None for all of the node's. Who holds others is told `beside` it.

    UnhealthyError when it stays in use after its processes have ended.
    """
    id, detail, node = action.id, action.detail, work.session.node
    if not action.would_change:
        return Done(id, False, detail)
    work.reporter.begin(id, detail)
    reply = work.change(
        "gpu_wait",
        {
            "indices": sorted(indices) if indices is not None else None,
            "slack_mib": IDLE_MIB,
            "timeout_s": FREE_TIMEOUT_S,
            "interval_s": 1.0,
        },
        action=id,
        detail=detail,
        timeout_s=FREE_TIMEOUT_S + 60.0,
        on_event=lambda event: work.reporter.progress(_memory(event.get("gpus", []))),
    )
    memory = _memory(reply["gpus"])
    if reply["freed"] is False:
        held = [f"GPU {g['index']}: {g['memory_used_mib']} MiB" for g in reply["gpus"] if _busy(g)]
        raise UnhealthyError(
            f"{node.name}: memory is still in use after {reply['waited_s']:.0f} s: {'; '.join(held)}, "
            f"{held_by(reply)}",
            hint="have its holder ended, by its owner where it is not ours"
            if reply["holders"]
            else "nvidia-smi -r resets an idle GPU; a holder in another container must end there",
            node=node.name,
            data={"reason": "gpu-in-use"},
        )
    if reply["freed"] is None:
        detail = f"unknown: {reply['why']}"
        work.reporter.done(id, detail, changed=True)
        return Done(id, True, detail)
    detail = f"memory back after {reply['waited_s']:.1f} s: {memory}"
    detail += "".join(f"; not ours to end: {each}" for each in beside)
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
