"""Medians and intervals: by hand, and that an interval holds the true value as often as it says."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.bench import implied
from remote.bench.stats import UNKNOWN, Figure, figure, interval, median_of, student, tail_share

RUNS = 1000


def test_the_median_is_the_median_and_unknown_values_are_left_out() -> None:
    assert median_of([3.0, 1.0, None, 2.0]).median == 2.0
    assert median_of([1.0, 2.0, 3.0, 4.0]).median == 2.5
    assert median_of([]) == UNKNOWN
    assert median_of([None]) == UNKNOWN


def test_few_values_have_no_interval() -> None:
    assert median_of([1.0, 2.0]) == Figure(1.5, None, None)
    assert median_of([1.0, 2.0, 3.0]).low is not None


def test_the_same_values_give_the_same_interval() -> None:
    values = [random.Random(1).gauss(50, 5) for _ in range(24)]
    assert median_of(values) == median_of(values)


def test_values_without_scatter_have_an_interval_of_no_width() -> None:
    assert median_of([3.4] * 10) == Figure(3.4, 3.4, 3.4)


@given(st.lists(st.floats(0.1, 1000), min_size=3, max_size=30))
def test_the_interval_lies_around_the_median_and_within_the_values(values: list[float]) -> None:
    found = median_of(values)
    assert found.low is not None
    assert found.high is not None
    assert found.median is not None
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_students_quantiles_are_those_of_the_tables() -> None:
    # Two-sided 95 %, from any table of the t distribution.
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 23: 2.069, 100: 1.984}
    for freedom, value in table.items():
        assert student(0.975, freedom) == pytest.approx(value, rel=0.02)


def test_the_tails_go_to_a_fortieth() -> None:
    assert tail_share(100_000, 1.96) == pytest.approx(0.025, abs=1e-4)
    assert tail_share(8, 1.96) < tail_share(24, 1.96) < 0.025


def test_a_figure_comes_back_from_its_json() -> None:
    found = Figure(3.4, 3.3, 3.5)
    assert figure(found.to_json()) == found
    assert figure(54.8) == Figure(54.8)
    assert figure(None) == figure({}) == UNKNOWN


@pytest.mark.parametrize(
    "value",
    ["3", True, [], {"median": "3"}, {"low": True}, math.nan, math.inf, pytest.param(10**400, id="huge")],
)
def test_what_is_no_figure(value: object) -> None:
    with pytest.raises(ValueError, match="a figure is a number"):
        figure(value)


def test_a_figure_is_shown_to_six_digits() -> None:
    assert Figure(3.4123456789, None, math.inf).to_json() == {"median": 3.41235, "low": None, "high": None}


def held(intervals: Iterable[Figure], true: float) -> float:
    """In what share of the intervals the true value lies."""
    found = [each for each in intervals if each.low is not None and each.high is not None]
    assert len(found) == RUNS
    return sum((f.low or 0) <= true <= (f.high or 0) for f in found) / RUNS


def test_the_quick_median_is_the_slow_one() -> None:
    source = random.Random(5)
    for count in (3, 8, 24, 25):
        values = sorted(source.gauss(50, 5) for _ in range(count))
        quick, slow = median_of(values), interval(values, median)
        # The same resamples; the other one takes wider percentiles of them.
        assert quick.median == slow.median
        assert (slow.low or 0) <= (quick.low or 0) <= (quick.high or 0) <= (slow.high or 0)


# Speeds scatter by a fifth around their median, ratios by a tenth: so do runs on a busy node.
SCATTERS = [pytest.param(55.0, 0.2, id="output tok/s"), pytest.param(2.2, 0.1, id="paired ratio")]


@pytest.mark.parametrize("count", [24, 96])
@pytest.mark.parametrize(("middle", "scatter"), SCATTERS)
def test_95_of_100_intervals_of_a_median_hold_the_true_one(middle: float, scatter: float, count: int) -> None:
    source, where = random.Random(f"{middle} {count}"), math.log(middle)
    runs = ([source.lognormvariate(where, scatter) for _ in range(count)] for _ in range(RUNS))
    assert 0.93 <= held(map(median_of, runs), middle) <= 0.97


def test_95_of_100_intervals_of_a_mean_hold_the_true_one() -> None:
    source, where = random.Random(7), math.log(55)
    runs = ([source.lognormvariate(where, 0.2) for _ in range(24)] for _ in range(RUNS))
    assert 0.93 <= held((interval(run, fmean) for run in runs), 55 * math.exp(0.2**2 / 2)) <= 0.97


def accept_len(source: random.Random, p: float) -> float:
    """A request's accept length as the server gives it: the first token needs no verification, the last step
    is cut off at the limit. Prompts differ in how well they can be guessed, and in their length."""
    own = min(max(source.gauss(p, 0.02), 0.0), 1.0)
    tokens, done, verifications = source.randint(128, 256), 1, 0
    while done < tokens:
        accepted = 0
        while accepted < 5 and source.random() < own:
            accepted += 1
        done += accepted + 1
        verifications += 1
    return tokens / verifications


@pytest.mark.parametrize("p", [0.341, 0.769])
def test_95_of_100_intervals_hold_the_drafts_true_acceptance(p: float) -> None:
    """From 24 requests to the implied acceptance per step of the incident's drafts."""
    source = random.Random(11)
    requests = [accept_len(source, p) for _ in range(24 * RUNS)]
    true = implied.step_acceptance(median(requests), 5)
    assert true is not None
    assert true == pytest.approx(p, abs=0.01)
    lengths = (median_of(requests[24 * run : 24 * run + 24]) for run in range(RUNS))
    steps = (found.mapped(lambda length: implied.step_acceptance(length, 5)) for found in lengths)
    assert 0.93 <= held(steps, true) <= 0.97
