"""The plots, drawn by pygal as SVG that stands in the page: no script, font or address, colours by CSS."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import pygal
from pygal.style import Style

from ...bench.stats import Figure

# pygal leaves a finder of its plug-ins behind, which warns at every later import on Python 3.10 and 3.11.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "PluginImportFixer"]

BEFORE, AFTER, QUIET = "var(--before)", "var(--after)", "var(--quiet)"
WIDTH = 460
ROW = 24
# So many names at most: a label with more characters is cut.
LABEL = 22

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
        label_font_size=13,
        major_label_font_size=13,
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
                elif parent is root and child.tag == "title":
                    child.text = title
                elif child.tag in ("script", "desc", "title") or not isinstance(child.tag, str):
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


def _ends(low: float, high: float | None, values: Sequence[float]) -> tuple[float, float]:
    """Both ends of the axis: as wished, and wide enough for every value."""
    return min([low, *values]), max([high or _rounded(max(values)), *values])


def _rows(chart: Any, labels: Sequence[str], low: float, high: float) -> list[int]:
    """A horizontal axis from `low` to `high`, and a row for each label, the first on top: their heights."""
    places = list(range(len(labels), 0, -1))
    chart.config.xrange = (low, high)
    chart.x_labels = ticks(low, high)
    chart.y_labels = [
        {"label": _cut(label), "value": place}
        for label, place in reversed([*zip(labels, places, strict=True)])
    ]
    chart.config.x_value_formatter = lambda value: f"{value:g}"
    return places


def _dot(label: str, value: float, place: int) -> dict[str, Any]:
    """A dot that tells its value when it is pointed at."""
    return {"value": (value, place), "formatter": lambda _: f"{label}: {value:.4g}"}


def intervals(
    name: str, title: str, rows: Sequence[Row], *, low: float, high: float | None, expected: float | None
) -> str:
    """Each known figure as a dot in its 95 % interval, what was expected as a dashed line."""
    known = [(label, color, found, found.median) for label, color, found in rows if found.median is not None]
    values = [
        end for _, _, found, _ in known for end in (found.median, found.low, found.high) if end is not None
    ]
    colors = [QUIET, *(color for _, color, _, _ in known for _ in range(2))]
    chart = pygal.XY(
        **_options(name, colors, 58 + 36 * len(known)),
        show_y_guides=False,
        dots_size=6,
        range=(0.3, len(known) + 0.7),
    )
    line = [] if expected is None else [(expected, 0.3), (expected, len(known) + 0.7)]
    ends = _ends(low, high, [*values, *(end for end, _ in line)])
    places = _rows(chart, [row[0] for row in known], *ends)
    chart.add("expected", line, show_dots=False, stroke_style={"width": 2, "dasharray": "5,4"})
    for place, (label, _, found, middle) in zip(places, known, strict=True):
        whole = found.low is not None and found.high is not None
        span = [(found.low, place), (found.high, place)] if whole else []
        chart.add(label, span, show_dots=False, stroke_style={"width": 7, "linecap": "round"})
        chart.add(label, [_dot(label, middle, place)], stroke=False)
    return _drawn(chart, name, title)


def paired(
    name: str, title: str, rows: Sequence[tuple[str, float, float]], *, low: float, high: float | None
) -> str:
    """One line per prompt, from what it gave before to what it gives after."""
    chart = pygal.XY(
        **_options(name, [QUIET, BEFORE, AFTER], 58 + ROW * len(rows)),
        dots_size=4.5,
        range=(0.3, len(rows) + 0.7),
        allow_interruptions=True,
    )
    ends = _ends(low, high, [value for _, *both in rows for value in both])
    places = _rows(chart, [row[0] for row in rows], *ends)
    links: list[tuple[float, int] | None] = []
    for place, (_, before, after) in zip(places, rows, strict=True):
        links += [(before, place), (after, place), None]
    chart.add("gain", links, show_dots=False, stroke_style={"width": 1.5})
    for side, pick in (("before", 1), ("after", 2)):
        points = [
            _dot(f"{row[0]}, {side}", float(row[pick]), place)
            for place, row in zip(places, rows, strict=True)
        ]
        chart.add(side, points, stroke=False)
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
