"""Rank tags of SGLang's log prefix: "TP0", "DP0 TP0 EP0", "PP0 ATTN_CP1 TP1 EP1".

Source: 0.5.9, managers/scheduler.py, `run_scheduler_process`: DP, PP, ATTN_CP, MOE_DP, TP, EP, in this
order, each only where its size is above 1 (TP always when there is any of them).
"""

from __future__ import annotations

import re

from .lines import of_line

_TAG = re.compile(r"([A-Z][A-Z_]*?)(\d+)")


def rank_of(line: str) -> str | None:
    """The rank tag of a log line, e.g. "DP0 TP0"; None where it has none (a single rank logs no tag)."""
    return next((item.rank for item in of_line(1, line) if item.rank), None)


def parts(rank: str) -> dict[str, int]:
    """{"TP": 0, ...} of a rank as printed; {} of ""."""
    found = (_TAG.fullmatch(tag) for tag in rank.split())
    return {match.group(1): int(match.group(2)) for match in found if match}


def data_parallel(rank: str) -> int | None:
    """The DP rank, None where there is none. Requests, and so tokens per second, are disjoint between
    DP ranks only: TP, PP, EP and context-parallel ranks of one DP rank work on the same requests."""
    return parts(rank).get("DP")


def within_data_rank(rank: str) -> tuple[int, ...]:
    """The place of a rank within its DP rank, ordered: ranks at different places report the same work."""
    found = parts(rank)
    return tuple(found.get(name, 0) for name in ("PP", "TP", "ATTN_CP", "MOE_DP", "EP"))
