"""The plots, drawn by pygal as SVG that stands in the page: no script, font or address, colours by CSS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pygal
from pygal.style import Style

from ...bench.stats import Figure

BEFORE, AFTER, QUIET = "var(--before)", "var(--after)", "var(--quiet)"
WIDTH = 460
ROW = 21
# So many names at most: a label with more characters is cut.
LABEL = 24

# Lines as thick as their series says: pygal's own sheet sets every one to 1 or 4.
_CSS = (
    "#chart-{0} .series .line.reactive{{stroke-width:inherit}}"
    "#chart-{0} .series .line.reactive.nofill{{stroke-opacity:.45}}"
    "#chart-{0} .axis>.line{{stroke:var(--quiet)}}"
)

Row = tuple[str, str, Figure]  # label, colour, figure


def _style(colors: Sequence[str]) -> Any:
    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="var(--ink)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--quiet)",
        guide_stroke_color="var(--rule)",
        major_guide_stroke_color="var(--rule)",
        guide_stroke_dasharray="1,0",
        major_guide_stroke_dasharray="1,0",
        colors=tuple(colors),
        value_colors=tuple(colors),
        font_family="inherit",
        label_font_size=12,
        major_label_font_size=12,
        title_font_size=13,
        opacity="1",
        opacity_hover="1",
        stroke_opacity="1",
        stroke_opacity_hover="1",
        transition="0s",
    )


def _options(name: str, colors: Sequence[str], height: int) -> dict[str, Any]:
    return {
        "title": None,
        "style": _style(colors),
        "width": WIDTH,
        "height": height,
        "margin": 6,
        "show_legend": False,
        "show_x_guides": True,
        "css": ("file://style.css", "file://graph.css", f"inline:{_CSS.format(name)}"),
        "js": (),
        "disable_xml_declaration": True,
        "pretty_print": False,
        "classes": ("plot", f"plot-{name}"),
    }


def _drawn(chart: Any, name: str, title: str) -> str:
    chart.uuid = name  # the same data gives the same page

    def quiet(root: Any) -> Any:
        """Without pygal's script and its comments, and with a name for those who cannot see it."""
        for parent in list(root.iter()):
            for child in list(parent):
                if child.tag == "desc" and child.get("class") == "value":
                    child.tag = "title"  # shown by the browser when pointed at
                elif child.tag in ("script", "desc") or not isinstance(child.tag, str):
                    parent.remove(child)
        root.set("role", "img")
        root.set("aria-label", title)
        return root

    chart.add_xml_filter(quiet)
    return str(chart.render(is_unicode=True))


def _rounded(value: float) -> float:
    """The next round number above: the end of an axis."""
    step = 10 ** math.floor(math.log10(value)) / 2 if value > 0 else 1.0
    return math.ceil(value * 1.02 / step) * step


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round places from `low` to `high`."""
    raw = (high - low) / 6
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * each for each in (1, 2, 5, 10) if size * each >= raw)
    first = math.ceil(low / step)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _axis(chart: Any, low: float, high: float) -> None:
    chart.config.xrange = (low, high)
    chart.x_labels = ticks(low, high)


def intervals(
    name: str, title: str, rows: Sequence[Row], *, low: float, high: float | None, expected: float | None
) -> str:
    """Each figure as a dot in its 95 % interval, the expected value as a dashed line through all rows."""
    known = [row for row in rows if row[2].median is not None]
    ends = [value for _, _, f in known for value in (f.median, f.high) if value is not None]
    top = high or _rounded(max([*ends, expected or 0.0]))
    top = max([top, *ends])
    colors = [QUIET, *(color for _, color, _ in known for _ in range(2))]
    chart = pygal.XY(
        **_options(name, colors, 62 + 34 * len(known)),
        show_y_guides=False,
        dots_size=6,
        range=(0.3, len(known) + 0.7),
    )
    _axis(chart, low, top)
    places = list(range(len(known), 0, -1))
    chart.y_labels = [
        {"label": row[0], "value": place}
        for place, row in zip(reversed(places), reversed(known), strict=True)
    ]
    line = [] if expected is None else [(expected, 0.3), (expected, len(known) + 0.7)]
    chart.add("expected", line, show_dots=False, stroke_style={"width": 2, "dasharray": "5,4"})
    for place, (label, _, figure) in zip(places, known, strict=True):
        span = (
            [] if figure.low is None or figure.high is None else [(figure.low, place), (figure.high, place)]
        )
        chart.add(label, span, show_dots=False, stroke_style={"width": 7, "linecap": "round"})
        chart.add(label, [{"value": (figure.median, place)}], stroke=False)
    chart.config.value_formatter = lambda value: f"{value:.4g}"
    chart.config.x_value_formatter = lambda value: f"{value:g}"
    return _drawn(chart, name, title)


def paired(
    name: str, title: str, rows: Sequence[tuple[str, float, float]], *, low: float, high: float | None
) -> str:
    """One line per prompt, from what it gave before to what it gives after."""
    top = max([high or 0.0, _rounded(max(max(b, a) for _, b, a in rows))]) if high is None else high
    top = max([top, *(max(b, a) for _, b, a in rows)])
    chart = pygal.XY(
        **_options(name, [QUIET, BEFORE, AFTER], 58 + ROW * len(rows)),
        show_y_guides=True,
        dots_size=4.5,
        range=(0.3, len(rows) + 0.7),
        allow_interruptions=True,
    )
    _axis(chart, low, top)
    places = [len(rows) - number for number in range(len(rows))]
    chart.y_labels = [
        {"label": _cut(row[0]), "value": place}
        for place, row in zip(reversed(places), reversed(rows), strict=True)
    ]
    links: list[tuple[float, int] | None] = []
    for place, (_, before, after) in zip(places, rows, strict=True):
        links += [(before, place), (after, place), None]
    chart.add("gain", links, show_dots=False, stroke_style={"width": 1.5})
    for side, pick in (("before", 1), ("after", 2)):
        points = [
            {"value": (row[pick], place), "label": row[0]} for place, row in zip(places, rows, strict=True)
        ]
        chart.add(side, points, stroke=False)
    chart.config.value_formatter = lambda value: f"{value:.4g}"
    chart.config.x_value_formatter = lambda value: f"{value:g}"
    return _drawn(chart, name, title)


def histogram(name: str, title: str, before: Sequence[int] | None, after: Sequence[int] | None) -> str:
    """Share of verifications (percent) by number of accepted drafts."""
    sides = [("before", BEFORE, before), ("after", AFTER, after)]
    shown = [(side, color, counts) for side, color, counts in sides if counts and sum(counts)]
    width = max(len(counts) for _, _, counts in shown)
    chart = pygal.Bar(
        **_options(name, [color for _, color, _ in shown], 250),
        spacing=14,
        margin_left=2,
        show_minor_x_labels=True,
        y_labels_major_every=1,
    )
    chart.x_labels = [str(number) for number in range(width)]
    highest = 0.0
    for side, _, counts in shown:
        shares = [100 * count / sum(counts) for count in counts]
        highest = max([highest, *shares])
        points = [
            {"value": share, "label": f"{count} verifications"}
            for share, count in zip(shares, counts, strict=True)
        ]
        chart.add(side, points, rounded_bars=1)
    chart.y_labels = ticks(0, _rounded(highest))
    chart.config.value_formatter = lambda value: f"{value:.3g} %"
    return _drawn(chart, name, title)


def _cut(label: str) -> str:
    return label if len(label) <= LABEL else f"{label[: LABEL - 1]}…"
