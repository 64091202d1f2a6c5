"""Arguments with which SGLang would not run as the inventory means: refused before anything is touched."""

from __future__ import annotations

import difflib
import os

from . import secrets
from .errors import UsageError
from .intent import spanned_nodes, speculative_args, wanted_args
from .inventory import Node
from .picture import Picture
from .sglang import speculation

# How near a name must be to one that SGLang has. An option that it calls by yet another name is not so near.
NEAR = 0.88


def refuse_several_nodes(node: Node) -> None:
    """A server over several nodes is not started, nor waited for: that takes all of its nodes at once.

    The first node's ranks wait for the others', and the others never log that they are ready, nor generate
    (entrypoints/engine.py, node_rank >= 1, all versions).
    """
    nodes = spanned_nodes(node.server)
    if nodes > 1:
        raise UsageError(
            f"{node.name}: server '{node.server_name}' has nnodes: {nodes}, and servers over several nodes"
            " are not supported: fixops starts none and waits for none",
            hint="put the fix on each of its nodes (inv push-fix, then inv purge-pycache), start it as you"
            f" do, and look with: inv verify --node {node.name}",
            node=node.name,
        )


def refuse_adjusted_arguments(picture: Picture) -> None:
    """Speculative arguments that SGLang would silently change, or refuse, are refused here."""
    if picture.version is None:
        return
    refuse_mistyped(picture)
    node = picture.node
    found = speculation.normalise(
        picture.version,
        speculative_args(node.server),
        env=secrets.environment_of(node.server, os.environ),
        draft_architectures=picture.draft_architectures,
    )
    if found:
        lines = "; ".join(
            dict.fromkeys(
                each.why
                if each.fatal
                else f"{each.name} {each.requested!r} would become {each.effective!r} ({each.why})"
                for each in found
            )
        )
        raise UsageError(
            f"{node.name}: SGLang {picture.version} would not run with these arguments: {lines}",
            hint=f"set the values it would use in the inventory, server '{node.server_name}'",
            node=node.name,
        )


def refuse_mistyped(picture: Picture) -> None:
    """An argument that this SGLang does not have, and nearly has: its start would end with a usage error.

    Which it has is told by the server that runs, or ran last, if that is of the installed version; else
    nothing is known. A beginning of a name is one to argparse, too.
    """
    boot = picture.boot
    told = picture.effective or (boot.args if boot and boot.args_record == "complete" else {})
    version = (picture.effective or {}).get("version") or (boot.version if boot else None)
    if version != picture.version:
        return
    for name in wanted_args(picture.node.server):
        if any(known.startswith(name) for known in told):
            continue
        near = difflib.get_close_matches(name, told, n=1, cutoff=NEAR)
        if near:
            node, typed, meant = picture.node, name.replace("_", "-"), near[0].replace("_", "-")
            raise UsageError(
                f"{node.name}: SGLang {picture.version} has no argument '{typed}' (did you mean '{meant}'?)",
                hint=f"mend args of server '{node.server_name}' in inventory.yaml",
                node=node.name,
            )
