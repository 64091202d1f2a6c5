"""`deploy-fix --bench`: measure before a healthy old server is stopped, and after the new one is proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..checks import Check
from ..errors import ConnectError, ExitCode, FixopsError, InterruptedByUser
from ..picture import Picture
from ..reporting import Reporter
from ..session import Session
from . import baselines, run
from .assemble import Options
from .plan import Plan
from .result import Bench

BEFORE = "before the deploy"


@dataclass(frozen=True)
class Benches:
    """The runs around a deploy; None where nothing could be measured."""

    before: Bench | None = None
    after: Bench | None = None

    @property
    def exit_code(self) -> ExitCode:
        return self.after.exit_code if self.after else ExitCode.UNDETERMINED

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before.to_json() if self.before else None,
            "after": self.after.to_json() if self.after else None,
        }


def before(
    session: Session, picture: Picture, checks: Sequence[Check], reporter: Reporter, plan: Plan
) -> Benches:
    """Measure what runs now. A server that does not generate is no baseline, and no reason not to deploy."""
    baselines.prepare(session.node.name)
    return Benches(before=_measured(session, picture, checks, reporter, Options(plan, anyway=True)))


def after(
    session: Session,
    picture: Picture,
    checks: Sequence[Check],
    reporter: Reporter,
    plan: Plan,
    benches: Benches | None,
) -> Benches:
    """Measure the server that was deployed, against the one before. Not if a check fails: that is the answer
    already."""
    benches = benches or Benches()
    failing = [check.id for check in checks if check.verdict == "fail"]
    if failing:
        reporter.note(f"not measured after the deploy: {', '.join(failing)} fails")
        return benches
    first = benches.before
    baseline = None
    if first is not None and first.requests:  # without any there is nothing to hold against
        baseline = baselines.parse(first.document(), Path(first.kept or BEFORE), BEFORE)
    return replace(
        benches, after=_measured(session, picture, checks, reporter, Options(plan, baseline=baseline))
    )


def _measured(
    session: Session, picture: Picture, checks: Sequence[Check], reporter: Reporter, options: Options
) -> Bench | None:
    try:
        found = run.measure(session, picture, checks, reporter, options)
    except (ConnectError, InterruptedByUser):
        raise
    except FixopsError as error:
        reporter.note(f"not measured: {error.message}")
        return None
    if found.interrupted:
        raise InterruptedByUser(
            f"{session.node.name}: interrupted while measuring",
            hint=f"inv status --node {session.node.name}",
            node=session.node.name,
        )
    return found
