"""Processes in our way: somebody else's are named and never touched, an earlier server's must end first."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import RefusedError
from .inventory import Node
from .ownership import Foreign, Ownership
from .picture import Picture
from .sglang.adjustments import from_argv
from .sglang.modelpath import same_path


def owned_of(picture: Picture) -> Ownership:
    """Whose the node's processes are. RefusedError where they could not be read."""
    node = picture.node
    if picture.ownership is None:
        raise RefusedError(
            f"{node.name}: the processes could not be read",
            hint=f"inv status --node {node.name}",
            node=node.name,
        )
    return picture.ownership


def refuse_foreign(picture: Picture) -> None:
    """Somebody else's process on our port or GPUs."""
    refuse_strangers(picture.node, owned_of(picture).foreign)


def refuse_stale(picture: Picture) -> None:
    """What an earlier server left on our GPUs or port: beside it nothing starts, and no memory is free."""
    node, stale = picture.node.name, owned_of(picture).stale
    if stale:
        pids = ", ".join(str(each.process.pid) for each in stale[:8]) + (", ..." if len(stale) > 8 else "")
        raise RefusedError(
            f"{node}: {len(stale)} stale processes are in the way, pid {pids}: {stale[0].why}",
            hint=f"inv kill-stale --node {node}, or inv restart --node {node}, which ends them too",
            node=node,
            data={"reason": "gpu-in-use"},
        )


def instead(picture: Picture) -> str | None:
    """What is there where our server is not: somebody else's listener on its port, or a server of its model
    on another port, which may be the one that is meant. None where nothing is."""
    owned = owned_of(picture)
    listens = [each for each in owned.foreign if each.gpu is None]
    if listens:
        return str(listens[0])
    stale = {each.process.pid for each in owned.stale}
    processes = (picture.facts.get("procs") or {}).get("processes", [])
    for each in processes:
        given = from_argv(each.get("argv") or [])
        ours = same_path(str(given.get("model_path")), picture.node.server.model_path)
        if each["role"] == "launcher" and each["pid"] not in stale and ours:
            where = f" on port {given['port']}" if "port" in given else ""
            return f"a server of this model runs{where}, pid {each['pid']}: is `port` in the inventory right?"
    return None


def refuse_strangers(node: Node, foreign: Sequence[Foreign]) -> None:
    """RefusedError where there are any."""
    if foreign:
        named = "; ".join(map(str, foreign))
        listens = any(each.gpu is None for each in foreign)
        reason = "port-foreign" if listens else "gpu-foreign"
        raise RefusedError(
            f"{node.name}: in the way, and not ours to end: {named}",
            hint="ask its owner to end it, or choose another port or CUDA_VISIBLE_DEVICES in the inventory"
            + ("; if that is the server which is meant, set `port` and `log`" if _is_sglang(foreign) else ""),
            node=node.name,
            data={"reason": reason, "foreign": [vars(each) for each in foreign]},
        )


def _is_sglang(foreign: Sequence[Foreign]) -> bool:
    return any("sglang" in each.title for each in foreign)
