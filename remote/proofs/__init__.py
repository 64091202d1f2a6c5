"""Every claim about a node, proven or not: picture in, checks out. One file per kind of claim."""

from __future__ import annotations

from collections.abc import Callable

from ..checks import Check, unknown
from ..intent import spanned_nodes
from ..picture import Picture, Unreadable
from . import bytecode, config, draft, gpu, health, log, process, server_args, source, wired

Proof = Callable[[Picture], Check]

# What one node of a server over several cannot show: its ranks are some of all, and only the first node
# serves: the others answer /health with 200 whatever happens, and know no /generate (engine.py, node_rank).
OF_THE_WHOLE = ("process.ranks", "log.capture", "health.http", "health.generate")

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
        check = PROOFS[id](picture)
        return _in_part(check, picture) if id in OF_THE_WHOLE else check
    except Unreadable as reason:
        return unknown(id, "evidence", reason.message, remedy=f"inv verify --node {picture.node.name}")


def _in_part(check: Check, picture: Picture) -> Check:
    """Unknown where the node serves only a part of the server, with what it shows."""
    nodes = spanned_nodes(picture.node.server)
    if nodes == 1 or check.verdict == "skip":
        return check
    return unknown(
        check.id,
        check.expected,
        f"one of {nodes} nodes of the server, which does not show the whole; here: {check.observed}",
        *check.evidence,
        remedy="ask the server itself, on its first node",
    )
