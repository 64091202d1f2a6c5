"""Two runs compared, and judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.bench.baselines import Baseline, Load
from remote.bench.compare import compare
from remote.bench.guards import ACCEPT, BOTH, SPEED, Guard
from remote.bench.measured import Phase
from remote.bench.stats import Figure
from remote.bench.summary import Speculation
from remote.bench.verdict import Verdict, judge
from remote.errors import ExitCode
from tests.bench.runs import LOAD, measured, past, record, repeated, summarised, usual

FIX = "eagle3-embedding-capture"


def judged(
    now: Phase,
    baseline: Baseline | None = None,
    *,
    expected: dict[str, float] | None = None,
    guards: tuple[Guard, ...] = (),
    applied: bool | None = True,
    load: dict[str, Any] | None = None,
    spread: float = 0.0,
) -> Verdict:
    figures = summarised(now)
    comparison = compare(now, figures, load or LOAD, spread, baseline) if baseline else None
    return judge(
        figures, guards, expected or {}, baseline, comparison, spread=spread, applied=applied, fix=FIX
    )


def test_the_story_of_the_incident() -> None:
    """Before 1.5; with the three edits still 1.5; with the whole bundle 3.4."""
    before = past(usual(length=1.5, speed=55))
    useless = judged(usual(length=1.5, speed=55.2), before, expected={ACCEPT: 3.4})
    assert useless.word == "ineffective"
    assert useless.exit_code == ExitCode.INEFFECTIVE
    useful = judged(usual(length=3.4, speed=120), before, expected={ACCEPT: 3.4})
    assert useful.word == "effective"
    assert useful.exit_code == ExitCode.OK
    assert [claim.outcome for claim in useful.claims] == ["reached"] * 3


def test_pairs_are_by_prompt_and_not_by_place() -> None:
    now = measured([record(n, 120, 40, 2.0) for n in (3, 1, 0, 2, 4)])
    base = [record(n, 120, 40 * (n + 1), 2.0 * (n + 1)) for n in range(5)]
    found = compare(now, summarised(now), LOAD, 0.0, past(measured(base)))
    # Ours is 3 everywhere, theirs 3, 1.5, 1, 0.75, 0.6: ratios 1 to 5, whatever the order.
    assert found.accept_len.ratio.median == pytest.approx(3.0)
    assert found.output_tok_s.ratio.median == pytest.approx(3.0)
    assert found.accept_len.pairs == 5


def test_repeats_of_a_prompt_are_averaged_before_they_are_paired() -> None:
    twice = [record(n % 6, 120, 30 if n < 6 else 60, 2.0) for n in range(12)]
    now = measured(twice)
    found = compare(
        now, summarised(now), LOAD, 0.0, past(measured([record(n, 120, 40, 2.0) for n in range(6)]))
    )
    assert found.accept_len.pairs == 6
    assert found.accept_len.ratio.median == pytest.approx((4 + 2) / 2 / 3)


def test_other_prompts_are_compared_figure_by_figure() -> None:
    now = usual(length=3.4)
    base = past(usual(length=1.7))
    base = replace(base, runs=tuple(replace(run, prompt_sha256=f"x{n}") for n, run in enumerate(base.runs)))
    found = compare(now, summarised(now), LOAD, 0.0, base)
    assert found.accept_len.pairs == 0
    assert found.accept_len.ratio.median == pytest.approx(2.0, rel=0.03)
    figures, theirs = summarised(now).accept_len, base.summary.accept_len
    assert found.accept_len.ratio.low == pytest.approx((figures.low or 0) / (theirs.high or 1))


def test_equal_answers_are_counted() -> None:
    now, base = usual(), past(usual())
    changed = replace(base, runs=(replace(base.runs[0], output_sha256="else"), *base.runs[1:]))
    assert compare(now, summarised(now), LOAD, 0.0, base).same_outputs == (12, 12)
    assert compare(now, summarised(now), LOAD, 0.0, changed).same_outputs == (11, 12)
    blind = replace(base, runs=tuple(replace(run, output_sha256=None) for run in base.runs))
    assert compare(now, summarised(now), LOAD, 0.0, blind).same_outputs is None


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load("other", 4, 120, "fixops"), "other prompts"),
        (Load("set", 8, 120, "fixops"), "concurrency 8, not 4"),
        (Load("set", 4, 512, "fixops"), "max_tokens 512, not 120"),
        (Load("set", 4, 120, "sglang"), "client sglang, not fixops"),
    ],
)
def test_a_speed_under_another_load_is_not_judged(load: Load, words: str) -> None:
    base = replace(past(usual(length=1.5, speed=20)), load=load)
    found = judged(usual(length=3.4), base)
    assert found.word == "inconclusive"
    assert any(words in reason for reason in found.reasons)


def test_a_baseline_that_tells_no_load_is_judged_by_its_accept_length_alone() -> None:
    base = replace(past(usual(length=1.8)), load=Load(None, None, None, None))
    found = judged(usual(length=3.4), base)
    assert found.word == "effective"
    assert {claim.figure: claim.outcome for claim in found.claims} == {
        ACCEPT: "reached",
        SPEED: "not-compared",
    }


def test_other_numbers_of_steps_are_not_compared() -> None:
    """In the incident, --speculative-num-steps 1 had silently made two draft tokens of six."""
    base = past(usual(length=1.4, speed=40))
    base = replace(base, summary=replace(base.summary, speculation=Speculation(2, 1, 1)))
    found = judged(usual(length=3.4), base)
    assert found.word == "inconclusive"
    assert "num_steps 1, not 5" in found.reasons[0]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("/models/llama", "the baseline is of another model, /models/llama"),
        ("/elsewhere/kimi/", None),
        (None, None),
    ],
)
def test_figures_of_another_model_are_not_compared(model: str | None, why: str | None) -> None:
    """A colleague's file, or one name for all servers: 1.5 of another model made a gain of anything."""
    now, base = usual(length=3.4, speed=120), replace(past(usual(length=1.5, speed=55)), model=model)
    for load in (base.load, Load(None, None, None, None)):
        found = compare(now, summarised(now), LOAD, 0.0, replace(base, load=load), "/models/kimi")
        assert found.accept_len.why_not == why
        assert (found.output_tok_s.why_not == why) == (why is not None or load is base.load)
        assert found.output_tok_s.untold == (why is None and load is not base.load)


def test_a_number_of_steps_that_only_the_baseline_tells_is_not_taken_for_the_same() -> None:
    now, base = usual(length=3.4), past(usual(length=1.4))
    blind = replace(summarised(now), speculation=Speculation(None, None, None))
    found = compare(now, blind, LOAD, 0.0, base).accept_len
    assert found.why_not == "the baseline ran with num_steps 5, and the server does not tell its own"
    by_hand = replace(base, summary=replace(base.summary, speculation=Speculation(None, None, None)))
    assert compare(now, blind, LOAD, 0.0, by_hand).accept_len.why_not is None


def test_a_baseline_that_was_spoiled_itself_judges_nothing() -> None:
    found = judged(usual(length=3.4), replace(past(usual(length=1.5)), spoiled=BOTH))
    assert found.word == "inconclusive"


def test_cached_prompts_spoil_the_speed_only_where_waiting_is_much_of_it() -> None:
    now, base = usual(length=3.4, speed=120), past(usual(length=1.5))
    warm = replace(base, cached_share=0.98)
    assert judged(now, warm).word == "inconclusive"  # a tenth of each request is its first token
    quick = replace(now, requests=tuple(replace(r, ttft_s=0.01) for r in now.requests))
    runs = tuple(replace(run, ttft_s=0.01) for run in warm.runs)
    assert judged(quick, replace(warm, runs=runs)).word == "effective"


def test_a_slower_server_is_no_success_whatever_it_accepts() -> None:
    found = judged(usual(length=3.4, speed=40), past(usual(length=1.5, speed=50)))
    assert found.word == "ineffective"
    assert any("SLOWER" in reason for reason in found.reasons)


def test_against_the_same_fix_it_is_enough_not_to_be_worse() -> None:
    base = replace(past(usual(length=3.4)), fix_applied=True)
    assert judged(usual(length=3.4), base).word == "effective"
    assert judged(usual(length=2.9), base).word == "ineffective"
    # Against a server without it the same figures are no gain.
    assert judged(usual(length=3.4), past(usual(length=3.4))).word == "ineffective"
    other = replace(base, fix="eagle3-three-edits")
    assert judged(usual(length=3.4), other).word == "ineffective"


def test_against_a_baseline_that_may_have_the_fix_no_gain_is_no_failure() -> None:
    """Its verify could not tell (`applied` is null): with the fix in both runs the figures are the same."""
    base = replace(past(usual(length=3.4)), fix_applied=None)
    found = judged(usual(length=3.4), base)
    assert found.word == "inconclusive"
    assert "not known whether the fix was in effect in the baseline" in found.reasons[0]
    assert judged(usual(length=2.9), base).word == "ineffective"
    assert judged(usual(length=3.8), base).word == "effective"
    # One that was written by hand names no fix, and is of a server without.
    assert judged(usual(length=3.4), replace(base, fix=None)).word == "ineffective"


def test_an_accept_length_that_the_server_no_longer_reports_is_not_passed_over() -> None:
    plain = measured([record(n, 120, None, 1.0 + n / 100) for n in range(8)])
    base = past(usual(length=3.4, speed=50))
    for known in (base, replace(base, summary=replace(base.summary, output_tok_s=Figure(None)))):
        found = judged(plain, known)
        assert (found.word, found.exit_code) == ("inconclusive", ExitCode.UNDETERMINED)
        assert "reports none" in found.reasons[0]
        blind = replace(summarised(plain), speculation=Speculation(None, None, None))
        assert compare(plain, blind, LOAD, 0.0, known).accept_len.why_not is None


@pytest.mark.parametrize(
    ("length", "word"), [(3.4, "effective"), (3.2, "effective"), (1.5, "ineffective"), (3.06, "inconclusive")]
)
def test_what_training_promised(length: float, word: str) -> None:
    found = judged(usual(24, length=length), expected={ACCEPT: 3.4})
    assert found.word == word, found.reasons


def test_what_no_draft_could_reach_is_not_missed() -> None:
    """3.4 is of five steps: with one, a draft as good as in training gives 1.77, which was ineffective."""
    now = usual(24, length=1.77)
    for steps, word in ((1, "inconclusive"), (2, "inconclusive"), (3, "ineffective")):
        figures = replace(summarised(now), speculation=Speculation(steps + 1, steps, 1))
        found = judge(figures, (), {ACCEPT: 3.4}, None, None, spread=0.0, applied=True, fix=FIX)
        assert found.word == word, steps
        assert (f"with num_steps {steps} no draft gives more than {steps + 1}" in found.reasons[0]) == (
            steps < 3
        )


def test_an_expected_speed() -> None:
    assert judged(usual(speed=100), expected={SPEED: 100}).word == "effective"
    assert judged(usual(speed=60), expected={SPEED: 100}).word == "ineffective"


def test_what_the_warm_up_left_widens_every_speed_that_is_judged_and_no_accept_length() -> None:
    guards = (Guard("warm-up", "shown", "they still differ"),)
    for speed, word in ((100.0, "effective"), (80.0, "ineffective")):
        run = usual(speed=speed)
        assert judged(run, expected={SPEED: 100}).word == word
        unsettled = judged(run, expected={SPEED: 100}, guards=guards, spread=0.2)
        assert unsettled.word == "inconclusive"
        assert "a server that is warm would tell" in unsettled.reasons[0]
    base = past(usual(length=1.5, speed=100))
    found = judged(usual(speed=100), base, expected={ACCEPT: 3.4}, guards=guards, spread=0.2)
    assert [claim.outcome for claim in found.claims] == ["reached", "reached", "unclear"]
    assert "a server that is warm would tell" in found.reasons[2]


@pytest.mark.parametrize(
    ("spoils", "word"), [((), "effective"), ((SPEED,), "inconclusive"), ((ACCEPT,), "inconclusive")]
)
def test_what_a_guard_spoils_is_not_judged(spoils: tuple[str, ...], word: str) -> None:
    guards = (Guard("other-load", "spoils" if spoils else "ok", "nine others", spoils),)
    found = judged(usual(length=3.4, speed=120), past(usual(length=1.5)), guards=guards)
    assert found.word == word
    assert found.exit_code == (ExitCode.UNDETERMINED if spoils else ExitCode.OK)


def test_a_spoiled_speed_does_not_hide_a_missed_accept_length() -> None:
    guards = (Guard("other-load", "spoils", "nine others", (SPEED,)),)
    assert judged(usual(length=1.5), expected={ACCEPT: 3.4}, guards=guards).word == "ineffective"


def test_nothing_to_hold_against() -> None:
    found = judged(usual())
    assert (found.word, found.exit_code) == ("no-baseline", ExitCode.OK)


@pytest.mark.parametrize("applied", [False, None])
def test_a_fix_that_is_not_applied_is_never_effective(applied: bool | None) -> None:
    good = usual(length=3.4, speed=120)
    alone = judged(good, expected={ACCEPT: 3.4}, applied=applied)
    assert (alone.word, alone.exit_code) == ("no-baseline", ExitCode.OK)
    compared = judged(good, past(usual(length=1.5)), applied=applied)
    assert (compared.word, compared.exit_code) == ("inconclusive", ExitCode.UNDETERMINED)
    assert "applied" in compared.reasons[0]


def test_without_an_interval_nothing_is_claimed() -> None:
    found = judged(usual(2, length=3.4), expected={ACCEPT: 3.4})
    assert found.word == "inconclusive"
    assert "too few" in found.reasons[0]


def test_repeats_decide_nothing_and_more_prompts_are_asked_for() -> None:
    once = usual(24, length=3.06)
    for run in (once, repeated(once, 8)):
        found = judged(run, past(run), expected={ACCEPT: 3.4, SPEED: 50 / 0.9})
        assert {claim.outcome for claim in found.claims[:2]} == {"unclear"}
        assert all("more prompts would tell" in claim.reason for claim in found.claims[:2])
    assert "too few prompts" in judged(repeated(usual(2), 12), expected={ACCEPT: 3.4}).reasons[0]


def test_an_expected_length_of_a_server_without_speculation() -> None:
    plain = measured([record(n, 120, None, 2.4 + n / 10) for n in range(8)])
    assert judged(plain, expected={ACCEPT: 3.4}).word == "inconclusive"


def test_a_figure_without_an_interval_is_a_point() -> None:
    base = replace(past(usual(length=1.8)), runs=())
    base = replace(base, summary=replace(base.summary, accept_len=Figure(1.8), output_tok_s=Figure(None)))
    found = judged(usual(length=3.4), base)
    assert found.word == "effective"
    assert "not paired" in found.reasons[0]
