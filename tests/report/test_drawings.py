"""Plots and wiring: what is drawn is what the data says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.bench.stats import Figure
from remote.render.report import plots, wiring
from remote.render.report.wiring import Lane

NS = {"svg": "http://www.w3.org/2000/svg"}
Root = ElementTree.Element


def parsed(svg: str) -> Root:
    return ElementTree.fromstring(svg)


def circles(root: Root, serie: int) -> list[tuple[float, float]]:
    found = root.findall(f".//svg:g[@class='series serie-{serie} color-{serie}']//svg:circle", NS)
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in found]


def axis(root: Root) -> tuple[float, float]:
    """Pixels of 0 and per unit of the horizontal axis, from two of its labels."""
    found = [
        (float(t.text or ""), float(t.attrib["x"]))
        for t in root.findall(".//svg:g[@class='axis x always_show']//svg:text", NS)
    ]
    (one, x1), (two, x2) = found[0], found[-1]
    scale = (x2 - x1) / (two - one)
    return x1 - one * scale, scale


def test_dots_stand_where_their_values_are() -> None:
    rows = [("before", plots.BEFORE, Figure(1.5, 1.4, 1.6)), ("after", plots.AFTER, Figure(3.4, 3.2, 3.7))]
    root = parsed(plots.intervals("x", "Accept length", rows, low=1, high=6, expected=3.4))
    zero, scale = axis(root)
    (before,), (after,) = circles(root, 2), circles(root, 4)
    assert (before[0] - zero) / scale == pytest.approx(1.5, abs=0.01)
    assert (after[0] - zero) / scale == pytest.approx(3.4, abs=0.01)
    assert before[1] < after[1]  # before is above after
    titles = [each.text for each in root.findall(".//svg:title", NS)]
    assert titles == ["Accept length", "before: 1.5", "after: 3.4"]
    span = root.find(".//svg:g[@class='series serie-3 color-3']//svg:path", NS)
    assert span is not None
    ends = [(float(x) - zero) / scale for x in re.findall(r"[ML]([\d.]+) ", span.attrib["d"])]
    assert ends == pytest.approx([3.2, 3.7], abs=0.01)


def test_a_value_beyond_the_axis_widens_it() -> None:
    rows = [("before", plots.BEFORE, Figure(0.5, 0.4, 0.6)), ("after", plots.AFTER, Figure(7.0, 6.5, 9.0))]
    root = parsed(plots.intervals("x", "t", rows, low=1, high=6, expected=None))
    zero, scale = axis(root)
    (after,) = circles(root, 4)
    assert (after[0] - zero) / scale == pytest.approx(7.0, abs=0.02)


def test_a_figure_without_an_interval_is_a_dot_alone() -> None:
    root = parsed(
        plots.intervals("x", "t", [("now", plots.AFTER, Figure(9.0))], low=0, high=None, expected=None)
    )
    assert len(circles(root, 2)) == 1
    assert root.findall(".//svg:g[@class='series serie-1 color-1']//svg:path", NS) == []


def test_a_line_for_each_prompt_in_the_order_given() -> None:
    rows = [("one", 1.2, 3.0), ("two <&>", 2.0, 1.5), ("x" * 80, 1.0, 1.0)]
    root = parsed(plots.paired("x", "t", rows, low=1, high=6))
    labels = [t.text for t in root.findall(".//svg:g[@class='axis y always_show']//svg:text", NS)]
    assert labels == [f"{'x' * 21}…", "two <&>", "one"]
    zero, scale = axis(root)
    seen = {
        side: [(x - zero) / scale for x, _ in circles(root, number)] for number, side in ((1, "b"), (2, "a"))
    }
    assert seen["b"] == pytest.approx([1.2, 2.0, 1.0], abs=0.02)
    assert seen["a"] == pytest.approx([3.0, 1.5, 1.0], abs=0.02)


def test_bars_are_shares_of_all_verifications() -> None:
    root = parsed(plots.histogram("x", "t", [3, 1], [0, 10]))
    titles = [t.text for t in root.findall(".//svg:title", NS)]
    assert titles == ["t", "75 %", "25 %", "0 %", "100 %"]


def test_nothing_of_the_library_but_the_drawing_is_left() -> None:
    svg = plots.histogram("x", "t", [3, 1], None)
    assert "script" not in svg
    assert "<!--" not in svg
    assert "pygal" not in svg.lower()
    assert set(re.findall(r"https?:[^\"\s]+", svg)) == {"http://www.w3.org/2000/svg"}


@given(st.floats(0, 1e4), st.floats(1e-3, 1e4))
def test_ticks_are_few_round_and_within(low: float, width: float) -> None:
    found = plots.ticks(low, low + width)
    assert 2 <= len(found) <= 9
    assert found == sorted(set(found))
    assert low - 1e-6 <= found[0] <= found[-1] <= low + width + 1e-6 * width


def test_lines_join_the_same_place_and_tell_right_from_wrong() -> None:
    rows = [
        Lane("before", ["in:2", "in:30", "in:58"]),
        Lane("trained with", ["embed", "in:3", "in:31"], trained=True),
        Lane("now", ["embed", "in:31", "in:3"]),
    ]
    root = ElementTree.fromstring(wiring.draw("decode", rows))
    kinds = [each.attrib["class"] for each in root.findall("line")]
    assert kinds.count("other") == 5  # three before, and two now: the order counts
    assert kinds.count("same") == 1
    dots = [each.attrib["class"] for each in root.findall("circle")]
    assert dots == ["dot wrong"] * 3 + ["dot trained"] * 3 + ["dot right"] + ["dot wrong"] * 2
    states = [each.text for each in root.findall("text") if each.attrib["class"] == "state"]
    assert states == ["embed", "in:2", "in:3", "in:30", "in:31", "in:58"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (None, "unknown"),
        ({"error": "TypeError"}, "the server dies in this mode"),
        ([], "nothing is captured"),
    ],
)
def test_what_is_no_list_is_said(entry: object, says: str) -> None:
    rows = wiring.lanes("graph", ["embed"], {"graph": entry}, None)
    assert [row.label for row in rows] == ["trained with", "served now"]
    assert says in wiring.draw("decode", rows)


def test_without_a_contract_nothing_is_right_or_wrong() -> None:
    drawn = wiring.draw("decode", wiring.lanes("graph", None, {"graph": ["in:2"]}, None))
    assert "no promise" in drawn
    assert "wrong" not in drawn
    assert "right" not in drawn
