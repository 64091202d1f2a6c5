"""Do our ranks hold our GPUs, and nobody else?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        why = gpus.get("why") or "nvidia-smi is not there"
        return unknown(id, expected, why, Evidence("nvidia-smi", why), remedy=remedy)
    owned = picture.ownership
    foreign = [each for each in owned.foreign if each.what.startswith("holds")] if owned else []
    if foreign:
        evidence = [Evidence("nvidia-smi", f"pid {f.pid} {f.title} ({f.user}) {f.what}") for f in foreign]
        observed = f"{foreign[0].user}'s pid {foreign[0].pid} ({foreign[0].title}) {foreign[0].what}"
        return failed(id, expected, observed, *evidence, remedy=remedy)
    leaks = _unexplained(picture)
    if not leaks and (owned is None or not gpus.get("holders_known")):
        why = gpus.get("why") or "the process list is not whole"
        return unknown(id, expected, why, *(_opened(picture) or [_in_use(picture)]), remedy=remedy)
    stale = {each.process.pid: each for each in owned.stale} if owned else {}
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
    members = {member.pid for member in owned.server.members} if owned and owned.server else set()
    mine = [holder for holder in gpus["holders"] if holder["pid"] in members]
    held = {holder["gpu_index"] for holder in mine}
    leaks = leaks or _without_us(picture, held)
    if leaks:
        remedy = f"inv free-gpus --node {picture.node.name}"
        return failed(id, expected, leaks[0].text, *leaks, *_opened(picture), remedy=remedy)
    blank = _blank(picture)
    if blank:
        return unknown(id, expected, blank[0].text, *blank, remedy=remedy)
    evidence = [
        Evidence("nvidia-smi", f"GPU {h['gpu_index']}: pid {h['pid']} {h['used_mib']} MiB") for h in mine
    ]
    if not mine:
        restart = f"inv restart --node {picture.node.name}"
        return failed(id, expected, "no process of ours holds a GPU", _in_use(picture), remedy=restart)
    return passed(id, expected, f"{len(mine)} ranks on {len(held)} GPUs", *evidence)


def _boards(picture: Picture) -> list[Mapping[str, Any]]:
    """The boards that are the server's."""
    visible = our_gpus(picture.node)
    boards = picture.section("gpus")["gpus"]
    return [board for board in boards if visible is None or board["index"] in visible]


def _listed(picture: Picture, index: int) -> list[Mapping[str, Any]]:
    return [each for each in picture.section("gpus")["holders"] if each["gpu_index"] == index]


def _unexplained(picture: Picture) -> list[Evidence]:
    """Boards whose listed processes hold less than is in use: a leak, or somebody whom the list conceals.

    Told only where the list shows somebody on the board, and how much each one holds: an empty list is what
    a container has, and says nothing.
    """
    found = []
    for board in _boards(picture):
        listed = [each["used_mib"] for each in _listed(picture, board["index"])]
        used = board["memory_used_mib"]
        if listed and None not in listed and used is not None and used - sum(listed) > IDLE_MIB:
            text = f"GPU {board['index']}: {used - sum(listed)} MiB are in use that no listed process holds"
            found.append(Evidence("nvidia-smi", text))
    return found


def _opened(picture: Picture) -> list[Evidence]:
    """Who has the devices open besides our server: looked at where the list is not whole (case 061)."""
    owned = picture.ownership
    ours = {member.pid for member in owned.server.members} if owned and owned.server else set()
    return [
        Evidence(each["path"], f"open in pid {each['pid']} {each['name']} (user {each['user']})")
        for each in picture.section("gpus").get("device_file_holders", [])
        if each["pid"] not in ours
    ]


def _without_us(picture: Picture, held: set[int]) -> list[Evidence]:
    """Boards whose memory is in use, and not by a rank of ours."""
    return [
        Evidence(
            "nvidia-smi",
            f"GPU {board['index']}: {board['memory_used_mib']} MiB in use without a process of ours",
        )
        for board in _boards(picture)
        if (board["memory_used_mib"] or 0) > IDLE_MIB and board["index"] not in held
    ]


def _in_use(picture: Picture) -> Evidence:
    """What nvidia-smi tells of our boards, in one line."""
    boards = _boards(picture)
    used = ", ".join(f"GPU {board['index']}: {_mib(board['memory_used_mib'])} in use" for board in boards)
    pids = [f"pid {each['pid']}" for board in boards for each in _listed(picture, board["index"])]
    return Evidence(
        "nvidia-smi", f"{used or 'none of our GPUs'}; listed there: {', '.join(pids) or 'nobody'}"
    )


def _mib(used: float | None) -> str:
    return "an unknown amount" if used is None else f"{used} MiB"


def _blank(picture: Picture) -> list[Evidence]:
    """What nvidia-smi does not tell of our boards."""
    found = []
    for board in _boards(picture):
        if board["memory_used_mib"] is None:
            found.append(f"GPU {board['index']}: memory in use is not reported")
        if any(each["pid"] is None for each in _listed(picture, board["index"])):
            found.append(f"GPU {board['index']}: the pid of a holder is not told")
    return [Evidence("nvidia-smi", text) for text in found]
