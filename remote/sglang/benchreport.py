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
    """`tok_s`: output tokens per second, the headline. `peak_tok_s`: None where it counts chunks. `flags`:
    "CHUNK_ITL": ITL is the latency of a chunk, `chunk_ratio` tokens on average; "INCONSISTENT": the
    reported peak is below the average. `per_request_tok_s`: decode speed of one stream."""

    tok_s: float | None
    total_tok_s: float | None
    input_tok_s: float | None
    peak_tok_s: float | None
    per_request_tok_s: float | None
    median_itl_ms: float | None
    accept_len: float | None
    concurrency: float | None
    flags: tuple[str, ...]
    chunk_ratio: float | None


def read(text: str) -> Report:
    """The figures of a report; None where a line is missing."""
    found = {
        match.group("name"): float(match.group("value"))
        for line in text.split("\n")
        if (match := _LINE.match(line))
    }
    tok_s = found.get("Output token throughput (tok/s)")
    peak = found.get("Peak output token throughput (tok/s)")
    itl = found.get("Median ITL (ms)")
    length = found.get("Accept length")
    concurrency = found.get("Concurrency")
    per_request = tok_s / concurrency if tok_s and concurrency else None
    speed = tok_s if concurrency is None else per_request
    ratio = itl * speed / 1000 if itl and speed else None
    flags = []
    if ratio is not None and ratio > _TOLERANCE:
        flags.append("CHUNK_ITL")
    if peak is not None and tok_s is not None and peak < tok_s:
        flags.append("INCONSISTENT")
    trusted = peak is not None and "INCONSISTENT" not in flags and (length is None or length <= 1)
    return Report(
        tok_s=tok_s,
        total_tok_s=found.get("Total token throughput (tok/s)"),
        input_tok_s=found.get("Input token throughput (tok/s)"),
        peak_tok_s=peak if trusted else None,
        per_request_tok_s=per_request,
        median_itl_ms=itl,
        accept_len=length,
        concurrency=concurrency,
        flags=tuple(flags),
        chunk_ratio=ratio if "CHUNK_ITL" in flags else None,
    )
