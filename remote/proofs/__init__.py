"""Every claim about a node, proven or not: picture in, checks out. One file per kind of claim."""

from __future__ import annotations

from collections.abc import Callable

from ..checks import Check, unknown
from ..picture import Picture, Unreadable
from . import bytecode, config, draft, gpu, health, log, process, server_args, source, wired

Proof = Callable[[Picture], Check]

# In the order in which a person asks: is it there, is it what runs, does it work.
PROOFS: dict[str, Proof] = {
    "source.file": source.file,
    "source.state": source.state,
    "source.compiles": source.compiles,
    "source.behaviour": source.behaviour,
    "bytecode.fresh": bytecode.fresh,
    "config.values": config.values,
    "config.draft": draft.fits,
    "wiring.eager": wired.eager,
    "wiring.graph": wired.graph,
    "wiring.overlap": wired.overlap,
    "process.single": process.single,
    "process.owner": process.owner,
    "process.ranks": process.ranks,
    "process.after_fix": process.after_fix,
    "gpu.holders": gpu.holders,
    "args.effective": server_args.effective,
    "log.boot": log.boot,
    "log.capture": log.capture,
    "log.errors": log.errors,
    "health.http": health.http,
    "health.generate": health.generate,
}


def prove(picture: Picture, only: list[str] | None = None) -> list[Check]:
    """One check per claim. What the node could not tell is `unknown`, never `pass`."""
    return [_one(id, picture) for id in (only or list(PROOFS))]


def _one(id: str, picture: Picture) -> Check:
    try:
        return PROOFS[id](picture)
    except Unreadable as reason:
        return unknown(id, "evidence", reason.message, remedy=f"inv verify --node {picture.node.name}")
