"""From what was measured to the result: figures, guards, comparison, verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..checks import Check
from ..picture import Picture
from ..session import Session
from ..verify import wiring_json
from ..work import new_id
from . import guards, meanwhile, summary, warmup
from .baselines import Baseline
from .compare import Comparison, compare
from .drive import Warm
from .guards import Seen
from .measured import Phase
from .plan import Plan
from .result import Bench, WarmUp
from .verdict import Verdict, judge

# Checks that tell whether the fix is in effect in the process that is measured.
APPLIED = ("source.state", "config.values", "process.after_fix", "process.owner")


@dataclass(frozen=True)
class Options:
    """`anyway`: measure a server on which verify fails."""

    plan: Plan
    baseline: Baseline | None = None
    save_as: str | None = None
    anyway: bool = False


def assemble(
    session: Session,
    picture: Picture,
    checks: Sequence[Check],
    options: Options,
    warm: Warm,
    phase: Phase,
    after: meanwhile.Meanwhile,
) -> Bench:
    """Figures, guards and verdict of what was measured."""
    node, plan = session.node, options.plan
    figures = summary.summarise(phase, after.info, picture.version)
    seen = Seen(
        phase=phase,
        concurrency=plan.concurrency,
        max_tokens=plan.max_tokens,
        speculation=figures.speculation,
        version=after.info.version if after.info else None,
        installed=picture.version,
        meant_model=node.server.model_path,
        rates=warm.rates,
        gap_s=None if warm.ended is None else phase.began - warm.ended,
        failed_checks=tuple(check.id for check in checks if check.verdict == "fail"),
        changing=_holder(picture, session.helper.hello.get("pid")),
        meanwhile=after,
    )
    load = {**plan.to_json(), "cached_share": guards.cached_share(phase.requests)}
    warm_up = WarmUp(warm.rates, warmup.spread(warm.rates), warmup.settled(warm.rates))
    return judged(
        base(session, picture, checks, options, load),
        phase,
        figures,
        guards=tuple(guards.look(seen)),
        warm_up=warm_up,
        args=dict(after.info.args) if after.info else {},
        logged=meanwhile.logged(after.samples),
    )


def judged(empty: Bench, phase: Phase, figures: summary.Summary, **more: Any) -> Bench:
    """`empty` with the figures of `phase`, the fields in `more`, and with its comparison and verdict."""
    found = replace(empty, requests=phase.requests, failures=phase.failures, summary=figures, **more)
    comparison: Comparison | None = None
    spread = found.warm_up.spread if found.warm_up else None
    if found.baseline is not None:
        model = found.args.get("model_path")
        comparison = compare(phase, figures, found.load, spread, found.baseline, model)
    verdict = judge(
        figures,
        found.guards,
        found.expected,
        found.baseline,
        comparison,
        spread=spread,
        applied=found.fix["applied"],
        fix=found.fix["name"],
    )
    return replace(found, comparison=comparison, verdict=verdict)


def base(
    session: Session,
    picture: Picture,
    checks: Sequence[Check],
    options: Options,
    load: Mapping[str, Any],
) -> Bench:
    """A result in which nothing was measured yet."""
    expect = session.node.server.expect
    expected = {"accept_len": expect.accept_len, "output_tok_s": expect.output_tok_s}
    return Bench(
        node=session.node.name,
        run_id=new_id(),
        time=time.time(),
        who=session.who,
        requests=(),
        failures=(),
        summary=None,
        baseline=options.baseline,
        comparison=None,
        verdict=Verdict("inconclusive", ()),
        expected={name: value for name, value in expected.items() if value is not None},
        guards=(),
        warm_up=None,
        load=load,
        fix=_fix(picture, checks),
        wiring=wiring_json(picture),
        args={},
        checks=tuple(checks),
        saved_as=options.save_as,
    )


def _fix(picture: Picture, checks: Sequence[Check]) -> dict[str, Any]:
    verdicts = [check.verdict for check in checks if check.id in APPLIED]
    applied: bool | None = "fail" not in verdicts
    if applied and "unknown" in verdicts:
        applied = None
    config = picture.config
    return {
        "name": picture.bundle.name,
        "state": picture.fix.state if picture.fix else None,
        "local_changes": picture.fix.local_changes if picture.fix else None,
        "config": config.state.state if config and config.state else None,
        "applied": applied,
    }


def _holder(picture: Picture, our_pid: int | None) -> str | None:
    """Who else changes the node at this moment. The helper's own lock is that of the command we belong to."""
    state = picture.facts.get("state") or {}
    holder = state.get("lock")
    if not holder or not state.get("lock_alive") or holder.get("pid") == our_pid:
        return None
    return f"{holder.get('who')} ({holder.get('command')})"
