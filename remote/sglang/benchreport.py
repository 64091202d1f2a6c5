"""The report of SGLang's own benchmark client (`bench_serving`): which of its figures mean what.

Five of its lines say "tok/s". The headline is output tokens: "total" includes the prompts, "peak" and ITL
are rebuilt from stream chunks, of which one carries several tokens under speculation (sglang PRs 12064,
17098, 33193).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"^\s{0,8}(?P<name>[A-Z][\w ,.%-]{2,60}?(?: \([\w/]{1,12}\))?):"
    r"\s{1,60}(?P<value>-?\d+(?:\.\d+)?)\s{0,40}$"
)
# ITL is per token if 1000 / ITL is about the throughput of one stream; chunks are off by the accept length.
_TOLERANCE = 1.5


@dataclass(frozen=True)
class Report:
    """What is wrong with its figures. `chunk_ratio`: tokens in a chunk, where its ITL is the latency of one;
    None where it is a token's. `low_peak`: the peak is below the average, which no peak is."""

    chunk_ratio: float | None
    low_peak: bool


def read(text: str) -> Report:
    """Hold the figures of a report against each other; a line that is missing says nothing."""
    found = {
        match.group("name"): float(match.group("value"))
        for line in text.split("\n")
        if (match := _LINE.match(line))
    }
    tok_s = found.get("Output token throughput (tok/s)")
    peak = found.get("Peak output token throughput (tok/s)")
    itl_ms, concurrency = found.get("Median ITL (ms)"), found.get("Concurrency")
    of_one = tok_s / concurrency if tok_s and concurrency else tok_s
    ratio = itl_ms * of_one / 1000 if itl_ms and of_one else None
    return Report(
        chunk_ratio=ratio if ratio is not None and ratio > _TOLERANCE else None,
        low_peak=peak is not None and tok_s is not None and peak < tok_s,
    )
