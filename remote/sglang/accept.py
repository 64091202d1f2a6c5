"""Accept length and accept rate.

Accept **length** (tokens per verification, the target's own one included) means the same in all versions.
"accept rate" has meant four things; we use one of our own everywhere, the share of the proposed draft
tokens that were accepted, (accept_len - 1) / (num_draft_tokens - 1), and name the server's definition
wherever its figure is shown. Read in the wheels of 0.5.3 to 0.5.23 (see `LOGGED` and `META_INFO`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from . import versions

OUR_RATE = "(accept_len - 1) / (num_draft_tokens - 1)"


@dataclass(frozen=True)
class Definition:
    """A definition of "accept rate". `since`: the first version that uses it, of those that were read."""

    since: str
    formula: str


# scheduler_metrics_mixin.py, from 0.5.15 scheduler_components/metrics_reporter.py. None before.
LOGGED = (
    Definition("0.5.3.post3", "accept_len / (num_steps + 1)"),
    Definition("0.5.6", "accept_len / num_draft_tokens"),
    Definition("0.5.11", OUR_RATE),
)
# tokenizer_manager.py, `spec_accept_rate` of `meta_info`. None before.
META_INFO = (
    Definition("0.5.3.post3", "(accept_len - 1) / num_steps"),
    Definition("0.5.6", OUR_RATE),
)


def definition(version: str, where: tuple[Definition, ...]) -> Definition | None:
    """The server's definition in `LOGGED` or `META_INFO`; None where that version reports no rate."""
    fitting = [each for each in where if versions.at_least(version, each.since)]
    return fitting[-1] if fitting else None


def accept_rate(accept_len: float | None, num_draft_tokens: int | None) -> float | None:
    """Our accept rate, 0 to 1; None without speculation or with nothing to accept."""
    if accept_len is None or num_draft_tokens is None or num_draft_tokens < 2:
        return None
    return (accept_len - 1) / (num_draft_tokens - 1)


@dataclass(frozen=True)
class Combined:
    """Accept lengths of several ranks or requests. `accept_len`: tokens per verification over all of them,
    None unless the verifications are known of each. `low`, `middle`, `high`: of the known lengths."""

    accept_len: float | None
    low: float | None
    middle: float | None
    high: float | None
    known: int
    total: int


def combine(lengths: Sequence[tuple[float | None, int | None]]) -> Combined:
    """(accept length, number of verifications) of each DP rank, combined by weight. Ranks that served
    nothing report no length and weigh nothing; rank 0 is no better than any other (sglang PR 34743)."""
    known = [(length, count) for length, count in lengths if length is not None]
    values = sorted(length for length, _ in known)
    weighted = [(length, count) for length, count in known if count is not None and count > 0]
    mean: float | None = None
    if known and len(weighted) == len(known):
        mean = sum(length * count for length, count in weighted) / sum(count for _, count in weighted)
    if not values:
        return Combined(None, None, None, None, 0, len(lengths))
    return Combined(mean, values[0], median(values), values[-1], len(values), len(lengths))
