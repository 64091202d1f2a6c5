"""Effective or not? Figures, ratios and guards in, one verdict and its reasons out.

Each claim is reached, missed, or unclear, by its 95 % interval alone; one that a guard spoils, or that cannot
be compared, is unclear. Anything missed makes the verdict ineffective, else anything unclear inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ExitCode
from .baselines import Baseline
from .compare import Comparison, Ratio
from .guards import ACCEPT, SPEED, Guard
from .stats import Figure
from .summary import Summary

Word = Literal["effective", "ineffective", "inconclusive", "no-baseline"]
Outcome = Literal["reached", "missed", "unclear", "not-compared"]

# What training promised is a round figure: within 10 % of it is reached.
NEAR_EXPECTED = 0.9
# A fix must bring this much over a server without it ...
GAIN = 1.05
# ... and must not cost speed: surely below the baseline is missed, surely above nine tenths of it is enough.
SLOWER, KEPT = 1.0, 0.9
# Against a baseline with the same fix in effect: is it still as good?
REGRESSED = 0.95

NAMES = {ACCEPT: "accept length", SPEED: "output tok/s of one request"}
UNITS = {ACCEPT: "", SPEED: " tok/s"}


@dataclass(frozen=True)
class Claim:
    """One thing held against the figures. `against`: "expected" or the baseline's name."""

    figure: str
    against: str
    outcome: Outcome
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {
            "figure": self.figure,
            "against": self.against,
            "outcome": self.outcome,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Verdict:
    word: Word
    reasons: tuple[str, ...]
    claims: tuple[Claim, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        return {
            "effective": ExitCode.OK,
            "no-baseline": ExitCode.OK,
            "ineffective": ExitCode.INEFFECTIVE,
            "inconclusive": ExitCode.UNDETERMINED,
        }[self.word]


def judge(
    summary: Summary,
    guards: Sequence[Guard],
    expected: Mapping[str, float],
    baseline: Baseline | None,
    comparison: Comparison | None,
    *,
    spread: float | None,
    applied: bool | None,
    fix: str,
) -> Verdict:
    """`spread`: what the warm-up left (warmup.spread), which `comparison` holds already. `applied`: whether
    the fix is in effect on this server as far as verify can tell."""
    claims = [_expected(name, summary, value, guards, spread or 0.0) for name, value in expected.items()]
    if baseline is not None and comparison is not None:
        claims += _against(baseline, comparison, guards, fix)
    if not applied:
        why = "the fix is not applied" if applied is False else "it is not known whether the fix is applied"
        reasons = (f"{why}: this run measures the server as it is", *(claim.reason for claim in claims))
        return Verdict("inconclusive" if baseline else "no-baseline", reasons, tuple(claims))
    judged = [claim for claim in claims if claim.outcome != "not-compared"]
    if not judged:
        reasons = tuple(claim.reason for claim in claims) or ("no baseline, and nothing expected",)
        return Verdict("inconclusive" if claims else "no-baseline", reasons, tuple(claims))
    outcomes = {claim.outcome for claim in judged}
    word: Word = "effective"
    if "missed" in outcomes:
        word = "ineffective"
    elif "unclear" in outcomes:
        word = "inconclusive"
    return Verdict(word, tuple(claim.reason for claim in claims), tuple(claims))


def _spoiled(name: str, guards: Sequence[Guard]) -> str | None:
    return next((f"{guard.id}: {guard.detail}" for guard in guards if name in guard.spoils), None)


def _unclear(name: str, guards: Sequence[Guard]) -> str:
    """What would tell more. Further prompts do not warm a server."""
    cold = name == SPEED and any(guard.id == "warm-up" and guard.state != "ok" for guard in guards)
    more = "a server that is warm" if cold else "more prompts"
    return f"the interval holds both; {more} would tell"


def _expected(name: str, summary: Summary, value: float, guards: Sequence[Guard], spread: float) -> Claim:
    figure: Figure = getattr(summary, name)
    text = f"{NAMES[name]} {shown(figure)}{UNITS[name]}"
    if name == SPEED and spread:
        figure = figure.widened(spread)
        text = f"{NAMES[name]} {shown(figure)}{UNITS[name]} with the warm-up's spread of {spread:.1%}"
    text += f", expected {value:g}"

    def claim(outcome: Outcome, why: str) -> Claim:
        return Claim(name, "expected", outcome, f"{text}: {why}")

    spoiled = _spoiled(name, guards)
    if spoiled:
        return claim("unclear", f"not judged, {spoiled}")
    if figure.median is None:
        return claim("unclear", "the server reports none")
    if figure.low is None or figure.high is None:
        return claim("unclear", "too few prompts for an interval")
    least, steps = NEAR_EXPECTED * value, summary.speculation.num_steps
    if name == ACCEPT and steps is not None and steps + 1 < least:
        # What is expected is of more steps: the best of drafts would miss it.
        return claim("unclear", f"not judged, with num_steps {steps} no draft gives more than {steps + 1}")
    if figure.low >= least:
        return claim("reached", "reached")
    if figure.high < least:
        return claim("missed", "not reached")
    return claim("unclear", _unclear(name, guards))


def _against(baseline: Baseline, comparison: Comparison, guards: Sequence[Guard], fix: str) -> list[Claim]:
    """What is claimed against the baseline: a gain, or with the same fix in it, no loss."""
    # Where it is not known whether the fix was in it, a gain is one all the same, and no gain is no failure.
    perhaps = baseline.fix == fix and baseline.fix_applied is not False
    reached = KEPT if perhaps and baseline.fix_applied else GAIN
    missed = REGRESSED if perhaps else GAIN
    theirs, claims = baseline.summary.accept_len, []
    if theirs.median is not None:
        claims.append(_ratio(ACCEPT, comparison.accept_len, baseline, guards, reached, missed))
        # The gain is in the accept length: the speed must only not be lost.
        reached, missed = KEPT, REGRESSED if perhaps else SLOWER
    if baseline.summary.output_tok_s.median is not None:
        claims.append(_ratio(SPEED, comparison.output_tok_s, baseline, guards, reached, missed))
    return claims


def _ratio(
    name: str, found: Ratio, baseline: Baseline, guards: Sequence[Guard], reached: float, missed: float
) -> Claim:
    """`reached`: the least that the ratio must surely be; `missed`: it failed when surely below that."""
    ratio = found.ratio
    how = f"{found.pairs} prompts paired" if found.pairs else "not paired by prompt"
    text = f"{NAMES[name]} {shown(ratio)} times that of '{baseline.name}' ({how})"

    def claim(outcome: Outcome, why: str) -> Claim:
        return Claim(name, baseline.name, outcome, f"{text}: {why}")

    if found.why_not:
        # A baseline that tells nothing of its load has no speed to compare; any other can be measured again.
        outcome: Outcome = "not-compared" if found.untold else "unclear"
        return claim(outcome, f"not judged, {found.why_not}")
    spoiled = _spoiled(name, guards)
    if spoiled:
        return claim("unclear", f"not judged, {spoiled}")
    if ratio.median is None:
        return claim("unclear", "the server reports none")
    if ratio.low is None or ratio.high is None:
        return claim("unclear", "too few prompts for an interval")
    if ratio.high < missed:
        return claim("missed", "SLOWER" if name == SPEED and ratio.high < 1 else "no gain")
    if ratio.low >= reached:
        return claim("reached", "a gain" if ratio.low >= GAIN else "kept")
    if missed <= ratio.low and ratio.high < reached:
        return claim("unclear", "no gain, and it is not known whether the fix was in effect in the baseline")
    return claim("unclear", _unclear(name, guards))


def shown(figure: Figure) -> str:
    """`3.41 [3.32, 3.50]`, or `unknown`."""
    if figure.median is None:
        return "unknown"
    if figure.low is None or figure.high is None:
        return f"{figure.median:.4g}"
    return f"{figure.median:.4g} [{figure.low:.4g}, {figure.high:.4g}]"
