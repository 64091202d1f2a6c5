"""The wiring drawn: for one forward mode, what the draft was trained with and what it is served.

Each column is a state of the target model, from the embedding to the last layer. Each row shows which states
reach the draft's `fc`, numbered by their place in it; lines join the same place in two rows. Straight: the
same state. Slanted: another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

WIDTH, LEFT, TOP, ROW, RADIUS = 400, 104, 34, 56, 12
_INPUT = re.compile(r"in:(\d+)")
# A diagram of more states would be a diagram of nothing.
MAX_STATES = 12

Layers = Sequence[str]


@dataclass(frozen=True)
class Lane:
    """One row. `layers` None: `says` tells why there are none. `joins`: the lane above it is its measure (or
    the other way round): lines are drawn between the two."""

    label: str
    layers: Layers | None
    says: str = ""
    trained: bool = False


def lane(label: str, entry: Any) -> Lane:
    """From verify's JSON: a list, null where unknown, {"error": ...} where it would crash."""
    if isinstance(entry, Mapping):
        return Lane(label, None, "the server dies in this mode")
    if not isinstance(entry, list | tuple):
        return Lane(label, None, "unknown")
    layers = [str(each) for each in entry]
    return Lane(label, layers, "" if layers else "nothing is captured")


def lanes(
    mode: str, contract: Layers | None, now: Mapping[str, Any], before: Mapping[str, Any] | None
) -> list[Lane]:
    """Served before (where a run before told it), trained, served now."""
    trained = Lane("trained with", contract, "" if contract else "no promise", trained=True)
    rows = [lane("before", before.get(mode))] if before else []
    return [*rows, trained, lane("served now" if not before else "now", now.get(mode))]


def depth(state: str) -> tuple[int, str]:
    """Order of states by depth: the embedding, then layers, then what is neither."""
    if state == "embed":
        return (-1, state)
    found = _INPUT.fullmatch(state)
    return (int(found[1]), state) if found else (1 << 30, state)


def draw(mode: str, rows: Sequence[Lane]) -> str:
    """One mode as SVG. Its text is escaped; its colours are the page's."""
    states = sorted({state for row in rows for state in row.layers or ()}, key=depth)[:MAX_STATES]
    height = TOP + ROW * len(rows) - ROW // 2 + 8
    title = f"wiring of {mode}: " + "; ".join(f"{row.label} {_told(row)}" for row in rows)
    svg = ElementTree.Element(
        "svg",
        {"viewBox": f"0 0 {WIDTH} {height}", "class": "wiring", "role": "img", "aria-label": title},
    )
    step = (WIDTH - LEFT - 20) / max(1, len(states) - 1) if len(states) > 1 else 0
    columns = {state: LEFT + 4 + number * step for number, state in enumerate(states)}
    for state, x in columns.items():
        _line(svg, (x, TOP - 12), (x, height - 14), "column")
        _text(svg, x, 14, state, "state", anchor="middle")
    for number, row in enumerate(rows):
        y = TOP + 10 + ROW * number
        for other in (number - 1, number + 1):
            if row.trained and 0 <= other < len(rows):
                _joins(svg, row, rows[other], columns, y, TOP + 10 + ROW * other)
    for number, row in enumerate(rows):
        _row(svg, row, rows, columns, TOP + 10 + ROW * number)
    return ElementTree.tostring(svg, encoding="unicode")


def _told(row: Lane) -> str:
    return ", ".join(row.layers) if row.layers else row.says


def _joins(
    svg: ElementTree.Element,
    trained: Lane,
    served: Lane,
    columns: Mapping[str, float],
    y: float,
    other: float,
) -> None:
    for one, two in zip(trained.layers or (), served.layers or (), strict=False):
        if one in columns and two in columns:
            _line(svg, (columns[one], y), (columns[two], other), "same" if one == two else "other")


def _row(
    svg: ElementTree.Element, row: Lane, rows: Sequence[Lane], columns: Mapping[str, float], y: float
) -> None:
    trained = next(each.layers for each in rows if each.trained) or ()
    _text(svg, 0, y + 4, row.label, "label")
    if not row.layers:
        _text(svg, LEFT, y + 4, row.says, "says")
    for place, state in enumerate(row.layers or ()):
        if state not in columns:
            continue
        right = place < len(trained) and trained[place] == state
        kind = "trained" if row.trained or not trained else "right" if right else "wrong"
        circle = {"cx": f"{columns[state]:.1f}", "cy": f"{y:.1f}", "r": str(RADIUS), "class": f"dot {kind}"}
        ElementTree.SubElement(svg, "circle", circle)
        _text(svg, columns[state], y + 4, str(place + 1), f"place {kind}", anchor="middle")


def _line(svg: ElementTree.Element, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    ElementTree.SubElement(
        svg, "line", {**{key: f"{value:.1f}" for key, value in ends.items()}, "class": kind}
    )


def _text(svg: ElementTree.Element, x: float, y: float, text: str, kind: str, anchor: str = "start") -> None:
    where = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind, "text-anchor": anchor}
    ElementTree.SubElement(svg, "text", where).text = text
