"""What went wrong on the node, in the engineer's words: operation error -> FixopsError."""

from __future__ import annotations

from .errors import FixopsError, LockedError, NodeError, RefusedError
from .holder import told

_HINTS = {
    "no-space": "free space there (df -h), then run the command again",
    "read-only": "the file system is mounted read-only: remount it, or patch the image it comes from",
    "permission": "set `sudo: true` for this node in the inventory, or log in as the files' owner",
    "precondition": "somebody changed the file meanwhile: run the command again to see the new plan",
    "compile": "nothing was moved into place; see the bundle's edits (docs/fixes.md)",
    "missing": "look at that path on the node, and for it in the inventory",
    "unsupported": "look at that path on the node, and for it in the inventory",
    "timeout": "run `inv status` to see what state the node is in",
}


def translate(error: NodeError, node: str, op: str) -> FixopsError:
    """LockedError for a lock that is held or was taken away (`inv unlock --yes`), RefusedError where a
    precondition or the machine forbids it."""
    if error.kind == "locked":
        holder = error.data.get("holder") or {}
        return LockedError(
            f"{node} is locked by {told(holder)}",
            hint=f"wait with --wait, or look at it with: inv unlock --node {node}",
            node=node,
            data={"holder": holder},
        )
    if error.kind == "not-locked":
        return LockedError(
            f"{node}: the lock was taken away from this command: it stops here, and what it did stays",
            hint=f"ask who did it, inv history --node {node} tells; then the command again",
            node=node,
        )
    # Without a path it is a request that this helper does not know: ours to mend.
    if error.kind in _HINTS and (error.kind != "unsupported" or "path" in error.data):
        return RefusedError(f"{node}: {error.message}", hint=_HINTS[error.kind], node=node, data=error.data)
    return FixopsError(
        f"{node}: the operation '{op}' failed: {error.message}",
        hint="this is a bug in fixops: please report it with this message",
        node=node,
        data=error.data,
    )
