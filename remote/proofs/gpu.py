"""Do our ranks hold our GPUs, and nobody else?"""

from __future__ import annotations

from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..intent import our_gpus, uses_no_gpu
from ..picture import Picture

# Driver and display keep a little: up to this much without a holder is no leak (docs: nvidia-smi,
# seen 1 to 600 MiB on idle boards).
IDLE_MIB = 1024


def holders(picture: Picture) -> Check:
    """Every holder of our GPUs is a process of our server, and memory in use has a holder."""
    id, expected = "gpu.holders", "our ranks, and only they, hold the GPUs"
    remedy = f"inv status --node {picture.node.name}"
    if uses_no_gpu(picture.node):
        return skipped(id, expected, "the server runs on the CPU (device: cpu)")
    gpus = picture.section("gpus")
    if not gpus.get("available"):
        return unknown(id, expected, gpus.get("why") or "nvidia-smi is not there", remedy=remedy)
    owned = picture.ownership
    foreign = [each for each in owned.foreign if each.what.startswith("holds")] if owned else []
    if foreign:
        evidence = [Evidence("nvidia-smi", f"pid {f.pid} {f.title} ({f.user}) {f.what}") for f in foreign]
        observed = f"{foreign[0].user}'s pid {foreign[0].pid} ({foreign[0].title}) {foreign[0].what}"
        return failed(id, expected, observed, *evidence, remedy=remedy)
    if owned is None or not gpus.get("holders_known"):
        return unknown(id, expected, gpus.get("why") or "the process list is not available", remedy=remedy)
    members = {member.pid for member in owned.server.members} if owned.server else set()
    stale = {each.process.pid: each for each in owned.stale}
    left = [holder for holder in gpus["holders"] if holder["pid"] in stale]
    if left:
        evidence = [Evidence("nvidia-smi", f"pid {h['pid']}: {stale[h['pid']].why}") for h in left]
        return failed(
            id,
            expected,
            f"stale pid {left[0]['pid']} holds GPU {left[0]['gpu_index']}",
            *evidence,
            remedy=f"inv kill-stale --node {picture.node.name}",
        )
    mine = [holder for holder in gpus["holders"] if holder["pid"] in members]
    visible = our_gpus(picture.node)
    held = {holder["gpu_index"] for holder in mine}
    blank, leaks = [], []
    for board in gpus["gpus"]:
        if visible is not None and board["index"] not in visible:
            continue
        if board["memory_used_mib"] is None:
            blank.append(Evidence("nvidia-smi", f"GPU {board['index']}: memory in use is not reported"))
        elif board["memory_used_mib"] > IDLE_MIB and board["index"] not in held:
            leaks.append(
                Evidence("nvidia-smi", f"GPU {board['index']}: {board['memory_used_mib']} MiB in use")
            )
    if leaks:
        return failed(
            id,
            expected,
            f"{leaks[0].text} without a process of ours",
            *leaks,
            remedy=f"inv free-gpus --node {picture.node.name}",
        )
    if blank:
        return unknown(id, expected, blank[0].text, *blank, remedy=remedy)
    evidence = [
        Evidence("nvidia-smi", f"GPU {h['gpu_index']}: pid {h['pid']} {h['used_mib']} MiB") for h in mine
    ]
    if not mine:
        return failed(
            id, expected, "no process of ours holds a GPU", remedy=f"inv restart --node {picture.node.name}"
        )
    return passed(id, expected, f"{len(mine)} ranks on {len(held)} GPUs", *evidence)
