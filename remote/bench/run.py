"""`inv bench` on one node: verify, warm up, measure, look again, judge, keep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ..bundles import Bundle
from ..checks import Check
from ..errors import UnhealthyError
from ..observe import observe
from ..picture import Picture
from ..proofs import prove
from ..reporting import Reporter
from ..secrets import unauthorized
from ..session import Session
from . import baselines, drive, meanwhile, second
from .assemble import Options, assemble, base
from .keeping import keep
from .result import Bench
from .verdict import Verdict


def bench(session: Session, bundle: Bundle, reporter: Reporter, options: Options) -> Bench:
    """Measure, judge and keep. A server on which verify fails is not measured, unless `anyway`.

    UnhealthyError when it does not generate, UsageError where the chosen client cannot ask it. Nothing is
    changed on the server; the node's journal gets an entry, which wants the node's lock for a moment.
    """
    if options.plan.client == "sglang":
        second.refuse_tls(session.node)
    baselines.prepare(session.node.name)
    reporter.begin("verify", "is this the server that is meant?")
    picture = observe(session, bundle)
    checks = prove(picture)
    failing = [check for check in checks if check.verdict == "fail"]
    if failing:
        reporter.failed("verify", _names(failing))
    else:
        reporter.done("verify", "no check fails", changed=False)
    if failing and not options.anyway:
        return _refused(session, picture, checks, failing, options)
    return measure(session, picture, checks, reporter, options)


def measure(
    session: Session, picture: Picture, checks: Sequence[Check], reporter: Reporter, options: Options
) -> Bench:
    """Measure the server in the picture, whatever its checks say. One that does not let us in is healthy for
    all we know, and nothing is known of the fix."""
    _refuse_silent(session, checks)
    drive.api_key(session.node)  # raises where it is not set
    reply = (picture.facts.get("http") or {}).get("generate") or {}
    if (locked_out := unauthorized(session.node, reply, os.environ)) is not None:
        reporter.note(f"next: {locked_out.remedy}")
        empty = base(session, picture, checks, options, options.plan.to_json())
        return replace(empty, verdict=Verdict("inconclusive", (f"not measured: {locked_out.why}",)))
    if options.plan.client == "sglang":
        return second.opinion(session, picture, checks, reporter, options)
    warm = drive.warm_up(session, options.plan, reporter)
    phase, start, interrupted = drive.measure(session, options.plan, reporter)
    after = meanwhile.look(session, picture, start, phase.ports)
    found = assemble(session, picture, checks, options, warm, phase, after)
    return keep(session, reporter, replace(found, interrupted=interrupted))


def _refused(
    session: Session, picture: Picture, checks: Sequence[Check], failing: Sequence[Check], options: Options
) -> Bench:
    why = f"verify fails ({_names(failing)}): figures of this server would not be the fix's"
    empty = base(session, picture, checks, options, options.plan.to_json())
    return replace(empty, refused=why, verdict=Verdict("inconclusive", (f"not measured: {why}",)))


def _names(checks: Sequence[Check]) -> str:
    return ", ".join(check.id for check in checks)


def _refuse_silent(session: Session, checks: Sequence[Check]) -> None:
    silent = next((c for c in checks if c.id == "health.generate" and c.verdict == "fail"), None)
    if silent is not None:
        name = session.node.name
        raise UnhealthyError(
            f"{name}: the server does not generate, so there is nothing to measure: {silent.observed}",
            hint=f"inv status --node {name}",
            node=name,
        )
