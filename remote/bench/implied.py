"""From the accept length to the draft's accuracy per step, and back.

If each draft step is right with probability p, independently, the target accepts the steps before the first
wrong one and adds a token of its own: with k steps that is 1 + p + ... + p^k = (1 - p^(k+1)) / (1 - p) tokens
per verification. A chain only: with topk above 1 the draft is a tree, and the formula says nothing.
"""

from __future__ import annotations

_HALVINGS = 60


def expected_accept_len(p: float, steps: int) -> float:
    """Tokens per verification for per-step acceptance `p` (0 to 1) and `steps` draft steps."""
    return float(sum(p**power for power in range(steps + 1)))


def step_acceptance(accept_len: float, steps: int) -> float | None:
    """The p for which `expected_accept_len` is `accept_len`; 0 or 1 beyond its ends, None without steps.

    A request's own accept length can lie a little above steps + 1: its first token needs no verification.
    """
    if steps < 1:
        return None
    low, high = 0.0, 1.0
    if accept_len <= 1:
        return low
    if accept_len >= steps + 1:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if expected_accept_len(middle, steps) < accept_len:
            low = middle
        else:
            high = middle
    return (low + high) / 2
