"""What could make the figures lie: each is looked for, shown, and says which figures it spoils.

A guard is "ok", "shown" (worth knowing, spoils nothing), "spoils" or "unknown" (could not be looked at).
"""

from __future__ import annotations

from collections.abc import Callable

from . import load, replies, server
from .kinds import ACCEPT, BOTH, SPEED, Guard, Seen, cached_share

__all__ = ["ACCEPT", "BOTH", "GUARDS", "SPEED", "Guard", "Seen", "cached_share", "look"]

# In the order in which they are shown.
GUARDS: tuple[Callable[[Seen], Guard], ...] = (
    replies.complete,
    replies.failed,
    replies.early,
    replies.repeating,
    replies.maximal,
    replies.constant,
    load.settled,
    load.idle,
    load.cached,
    load.others,
    load.queued,
    load.graphs,
    load.generator,
    load.clock,
    server.same_boot,
    server.right_server,
    server.changing,
    server.definition,
    server.simulated,
)


def look(seen: Seen) -> list[Guard]:
    """What each guard says."""
    return [guard(seen) for guard in GUARDS]
