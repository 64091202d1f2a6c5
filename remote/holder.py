"""Who holds a node's lock, in words: for the error, for `inv unlock` and for the journal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .clock import utc

ALIVE = {True: "still running", False: "no longer running", None: "may be running"}


def told(holder: Mapping[str, Any]) -> str:
    """As far as the lock's file tells: after a full disk or a power loss it may be empty or anything."""
    if "unreadable" in holder:
        return f"an unknown holder ({holder['unreadable']})"
    doing = f" ({holder['command']})" if holder.get("command") else ""
    since = holder.get("since")
    when = f" since {utc(since)}" if isinstance(since, int | float) else ""
    return f"{holder.get('who') or 'somebody'}{doing}{when}"
