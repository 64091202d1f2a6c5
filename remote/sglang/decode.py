"""Decode lines: accept length and throughput as the scheduler logs them, every 40 steps by default.

Sources: 0.5.9, managers/scheduler_metrics_mixin.py; 0.5.23, scheduler_components/metrics_reporter.py.
The line began with "Decode batch." up to 0.5.3, "Decode batch [123], " in 0.5.4, "Decode batch," since;
fields were added at many places, so each is read by its name. `accept rate` has had several definitions:
see `accept`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from . import ranks
from .lines import Entry

_HEAD = re.compile(r"Decode batch(?: \[\d+\])?[.,] ")
_NUMBER = r"(?P<value>-?(?:\d+(?:\.\d+)?|nan|inf))"
_ACCEPT_LEN = re.compile(rf"(?<!block )(?<!cap )accept len: {_NUMBER}")
_ACCEPT_RATE = re.compile(rf"accept rate: {_NUMBER}")
_GEN = re.compile(rf"gen throughput \(token/s\): {_NUMBER}")
_RUNNING = re.compile(rf"#running-req: {_NUMBER}")
_QUEUE = re.compile(rf"#queue-req: {_NUMBER}")
_GRAPH = re.compile(r"\b(?:cuda|cpu|npu|xpu|musa|hip) graph: (?P<value>True|False)")
_PREFILL_AT_REST = re.compile(r"Prefill batch.{0,400}?#running-req: 0,")


@dataclass(frozen=True, slots=True)
class Sample:
    """One decode line. `line`: 1-based. `accept_len`, `accept_rate_logged`: None without speculation.
    `gen_tok_s`: of this rank, since its previous decode line, idle time included. `graph`: whether the
    step was replayed from a graph. `after_idle`: nothing ran before, so the throughput is no measure."""

    line: int
    rank: str
    stamp: str | None
    accept_len: float | None
    accept_rate_logged: float | None
    gen_tok_s: float | None
    running: int | None
    queued: int | None
    graph: bool | None
    after_idle: bool = False


@dataclass(frozen=True)
class Summary:
    """Medians over the decode samples of a boot, without the first after idle. `gen_tok_s`: the sum over
    DP ranks of each one's median, since their requests are disjoint; never over TP or PP ranks.
    `accepts_nothing`: at most 1.05 tokens per verification in three lines or more, of which no error tells
    (sglang PR 21272)."""

    samples: int
    accept_len: float | None
    gen_tok_s: float | None
    graph_share: float | None
    accepts_nothing: bool = False


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return float(match.group("value")) if match else None


def _count(pattern: re.Pattern[str], text: str) -> int | None:
    value = _number(pattern, text)
    return None if value is None else int(value)


def sample(item: Entry, *, after_idle: bool = False) -> Sample | None:
    """The sample of a decode line; None for any other line ("Decode rank batch" among them)."""
    head = _HEAD.search(item.message)
    if head is None:
        return None
    text = item.message[head.end() :]
    graph = _GRAPH.search(text)
    return Sample(
        item.number,
        item.rank,
        item.stamp,
        _number(_ACCEPT_LEN, text),
        _number(_ACCEPT_RATE, text),
        _number(_GEN, text),
        _count(_RUNNING, text),
        _count(_QUEUE, text),
        graph.group("value") == "True" if graph else None,
        after_idle,
    )


def starts_from_rest(item: Entry) -> bool:
    """Whether a line is a prefill with nothing running: the rank was idle before it."""
    return item.message.startswith("Prefill batch") and _PREFILL_AT_REST.match(item.message) is not None


def read(items: Iterable[Entry], *, at_rest: bool = False) -> list[Sample]:
    """The samples in a boot's entries, in order. `at_rest`: nothing ran before the first entry (it follows
    the start); otherwise an excerpt's first sample is as good as any."""
    found: list[Sample] = []
    idle: dict[str, bool] = {}
    for item in items:
        if starts_from_rest(item):
            idle[item.rank] = True
        new = sample(item, after_idle=idle.get(item.rank, at_rest))
        if new is not None:
            found.append(new)
            idle[item.rank] = False
    return found


def by_data_rank(samples: Sequence[Sample]) -> dict[int | None, list[Sample]]:
    """The samples of each DP rank, by one of its ranks only: the one that logged most, else the first."""
    groups: dict[int | None, dict[tuple[int, ...], list[Sample]]] = {}
    for item in samples:
        members = groups.setdefault(ranks.data_parallel(item.rank), {})
        members.setdefault(ranks.within_data_rank(item.rank), []).append(item)
    return {
        group: max((members[place] for place in sorted(members)), key=len)
        for group, members in groups.items()
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def summarise(samples: Sequence[Sample]) -> Summary | None:
    """Medians of the samples that measure; None when there is none."""
    groups = by_data_rank([item for item in samples if not item.after_idle])
    counted = [item for members in groups.values() for item in members]
    if not counted:
        return None
    rates = [
        rate for members in groups.values() if (rate := _median(s.gen_tok_s for s in members)) is not None
    ]
    graphs = [item.graph for item in counted if item.graph is not None]
    return Summary(
        len(counted),
        _median(item.accept_len for item in counted),
        sum(rates) if rates else None,
        sum(graphs) / len(graphs) if graphs else None,
        _accepts_nothing(samples),
    )


def _accepts_nothing(samples: Sequence[Sample]) -> bool:
    lengths = [item.accept_len for item in samples if item.accept_len is not None]
    return len(lengths) >= 3 and max(lengths) <= 1.05
