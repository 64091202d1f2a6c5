"""From accept length to per-step acceptance: the incident's figures, and the formula's ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.bench.implied import expected_accept_len, step_acceptance


@pytest.mark.parametrize(("length", "p"), [(3.43, 0.769), (1.52, 0.341), (1.8, 0.45)])
def test_the_incidents_figures(length: float, p: float) -> None:
    # Both are rounded: the length to two places.
    assert step_acceptance(length, 5) == pytest.approx(p, abs=0.003)
    assert expected_accept_len(p, 5) == pytest.approx(length, abs=0.01)


def test_the_ends() -> None:
    assert step_acceptance(1.0, 5) == 0.0
    assert step_acceptance(0.9, 5) == 0.0
    assert step_acceptance(6.0, 5) == 1.0
    assert step_acceptance(6.09, 5) == 1.0
    assert step_acceptance(2.0, 0) is None


def test_one_step_is_a_straight_line() -> None:
    assert step_acceptance(1.25, 1) == pytest.approx(0.25)


@given(st.floats(0.001, 0.999), st.integers(1, 12))
def test_there_and_back(p: float, steps: int) -> None:
    assert step_acceptance(expected_accept_len(p, steps), steps) == pytest.approx(p, abs=1e-6)
