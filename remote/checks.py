"""A check is a value: what was claimed, what was seen, the verdict and the way on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .errors import ExitCode

Verdict = Literal["pass", "fail", "unknown", "skip"]


@dataclass(frozen=True)
class Evidence:
    """Where it was seen (file and line, /proc entry, endpoint, command) and what stood there."""

    source: str
    text: str


@dataclass(frozen=True)
class Check:
    """One claim. `remedy` is a command to type, empty when there is nothing to do."""

    id: str
    verdict: Verdict
    expected: str
    observed: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def passed(id: str, expected: str, observed: str, *evidence: Evidence) -> Check:
    return Check(id, "pass", expected, observed, evidence)


def failed(id: str, expected: str, observed: str, *evidence: Evidence, remedy: str) -> Check:
    return Check(id, "fail", expected, observed, evidence, remedy)


def unknown(id: str, expected: str, why: str, *evidence: Evidence, remedy: str) -> Check:
    return Check(id, "unknown", expected, why, evidence, remedy)


def skipped(id: str, expected: str, why: str, *evidence: Evidence) -> Check:
    return Check(id, "skip", expected, why, evidence)


def tally(checks: Iterable[Check]) -> str:
    """How many there are of each verdict: `19 passed, 1 failed, 1 skipped`."""
    verdicts = [check.verdict for check in checks]
    words = {"pass": "passed", "fail": "failed", "unknown": "unknown", "skip": "skipped"}
    counts = [(sum(each == verdict for each in verdicts), word) for verdict, word in words.items()]
    return ", ".join(f"{count} {word}" for count, word in counts if count or word == "passed")


def exit_code(checks: Iterable[Check]) -> ExitCode:
    """7 if any failed, else 8 if any is unknown, else 0. No check at all is unknown, not a pass."""
    verdicts = {check.verdict for check in checks}
    if "fail" in verdicts:
        return ExitCode.CHECK_FAILED
    if "unknown" in verdicts or "pass" not in verdicts:
        return ExitCode.UNDETERMINED
    return ExitCode.OK
