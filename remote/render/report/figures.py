"""The figures of a report, side by side: the rows of the page's table and of the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...bench.stats import UNKNOWN, Figure, figure
from ...bench.summary import Summary
from ...report.model import Brought, Report

# Name, the figure in a run's summary, decimals, and its name in the comparison of two runs.
_ROWS: tuple[tuple[str, Callable[[Summary], Figure], int, str | None], ...] = (
    ("accept length", lambda s: s.accept_len, 2, "accept_len"),
    ("accept rate", lambda s: s.accept_rate, 2, None),
    ("implied acceptance per draft step", lambda s: s.implied_step_acceptance, 3, None),
    ("output tok/s of one request", lambda s: s.output_tok_s, 1, "output_tok_s"),
    ("output tok/s of all requests together", lambda s: s.server_output_tok_s, 1, None),
    ("seconds to the first token", lambda s: s.ttft_s, 3, None),
)


@dataclass(frozen=True)
class Row:
    """`ratio`: after over before as `inv bench` compared them; `why_not`: why it must not be judged."""

    name: str
    before: Figure
    after: Figure
    ratio: Figure
    places: int
    why_not: str | None

    @property
    def gain(self) -> str:
        """better, worse or unclear, by the interval of the ratio alone; empty without one."""
        if self.ratio.low is None or self.ratio.high is None or self.why_not:
            return ""
        return "better" if self.ratio.low > 1 else "worse" if self.ratio.high < 1 else "unclear"


def rows(brought: Brought) -> list[Row]:
    """Every figure that at least one of the two runs has."""
    found = []
    for name, pick, places, key in _ROWS:
        before = pick(brought.before.summary) if brought.before else UNKNOWN
        after = pick(brought.after.summary) if brought.after else UNKNOWN
        if before.median is None and after.median is None:
            continue
        told: Mapping[str, Any] = (brought.comparison or {}).get(key or "") or {}
        found.append(Row(name, before, after, figure(told.get("ratio")), places, told.get("why_not")))
    return found


def shown(found: Figure, places: int) -> str:
    """`3.41 [3.32, 3.50]`, or a dash."""
    if found.median is None:
        return "–"
    text = f"{found.median:.{places}f}"
    if found.low is not None and found.high is not None:
        text += f" [{found.low:.{places}f}, {found.high:.{places}f}]"
    return text


def duration(seconds: float | None) -> str:
    """`0.2 s`, `3 min 12 s`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def verdict(report: Report) -> str | None:
    """What `inv bench` said of the run after; None without one, and where its record does not tell."""
    told = report.brought.after.document.get("verdict") if report.brought.after else None
    return None if told is None else str(told)


def proven(report: Report) -> str:
    """proven, failed or not proven, as `inv verify` says it."""
    if report.count("fail"):
        return "failed"
    return "not proven" if report.count("unknown") or not report.count("pass") else "proven"


def proof_line(report: Report) -> str:
    parts = [f"{report.count('pass')} passed"]
    words = (("fail", "failed"), ("unknown", "unknown"), ("skip", "skipped"))
    parts += [f"{report.count(key)} {word}" for key, word in words if report.count(key)]
    return ", ".join(parts)
