"""When is a server warm? When long generations take the same time again and again (case 107).

A server right after its start, or after an idle half hour, has been seen 30 % slow: clocks, lazily compiled
kernels, allocators. Three short calls do not change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .measured import Phase

AGREEING = 3
TOLERANCE = 0.03
MAX_RUNS = 12
LIMIT_S = 180.0


def spread(rates: Sequence[float]) -> float | None:
    """How far the last three runs lie apart, as a share of their median; None before three."""
    last = list(rates)[-AGREEING:]
    if len(last) < AGREEING or min(last) <= 0:
        return None
    return (max(last) - min(last)) / median(last)


def settled(rates: Sequence[float]) -> bool:
    """Whether the last three runs agree within 3 %."""
    found = spread(rates)
    return found is not None and found <= TOLERANCE


def rate(phase: Phase) -> float | None:
    """How fast a warm-up run went: verification steps per second of decoding, else output tokens per second.

    Steps and not tokens, because how many tokens a step yields is the draft's luck, not the machine's warmth.
    """
    timed = [request for request in phase.requests if request.decode_s]
    if not timed or len(timed) < len(phase.requests):
        return phase.tokens / phase.elapsed_s if phase.tokens and phase.elapsed_s else None
    seconds = sum(request.decode_s or 0.0 for request in timed)
    if all(request.verify_ct for request in timed):
        return sum(request.verify_ct or 0 for request in timed) / seconds
    return sum((request.completion_tokens or 1) - 1 for request in timed) / seconds
