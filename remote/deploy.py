"""`inv deploy-fix`: observe, plan, apply, verify. Does only what is not already so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import checks
from .arguments import refuse_several_nodes
from .bundles import Bundle
from .checks import Check
from .errors import ExitCode, UnhealthyError
from .interrupted import observe_settled
from .picture import Picture
from .plan import Plan, build
from .pristine import from_pristine
from .proofs import prove
from .purge import purge
from .push import check_imports, push
from .relaunch import attempt, observe_after
from .reporting import Reporter
from .session import Session
from .verify import proven_json
from .work import Work, locked, planned_json, unchanged, way_back

if TYPE_CHECKING:
    from .bench.around import Benches
    from .bench.plan import Plan as Load

Confirm = Callable[[Plan], bool]


@dataclass(frozen=True)
class Deployed:
    """`actions` as done, or as planned on a dry run; `checks` of the state afterwards.

    `stopped`: the server did not come up.
    """

    node: str
    deploy_id: str | None
    actions: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]
    picture: Picture
    dry_run: bool
    benches: Benches | None = None
    stopped: UnhealthyError | None = None

    @property
    def exit_code(self) -> ExitCode:
        """6 when it does not generate although it came up; else as the checks say, then the benchmark."""
        if self.dry_run:
            return ExitCode.OK
        if self.failure is not None:
            return ExitCode.UNHEALTHY
        code = checks.exit_code(self.checks)
        return self.benches.exit_code if self.benches and code == ExitCode.OK else code

    @property
    def failure(self) -> UnhealthyError | None:
        """It did not come up, or it came up and does not generate."""
        if self.stopped is not None:
            return self.stopped
        failed = (each for each in self.checks if each.id == "health.generate" and each.verdict == "fail")
        check = None if self.dry_run else next(failed, None)
        if check is None:
            return None
        return UnhealthyError(
            f"{self.node}: the server is up and does not generate: {check.observed}",
            hint=f"inv logs --errors --node {self.node}{way_back(self.actions, self.node)}",
            node=self.node,
            data={"reason": "no-generation"},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "deploy_id": self.deploy_id,
            "actions": list(self.actions),
            **proven_json(self.checks, self.picture),
            **(self.stopped.data if self.stopped else {}),
            **({"bench": self.benches.to_json()} if self.benches else {}),
        }


def plan_deploy(
    session: Session, bundle: Bundle, reporter: Reporter, *, dry_run: bool, wait_s: float, pristine: bool
) -> tuple[Picture, list[Check], Plan]:
    """What is there, what is wrong with it, and what would be done. Refusals happen here."""
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s)
    found = prove(picture)
    if pristine:
        picture = from_pristine(picture)
    return picture, found, build(picture, found)


def deploy_fix(
    session: Session,
    bundle: Bundle,
    reporter: Reporter,
    *,
    confirm: Confirm,
    dry_run: bool = False,
    wait_s: float = 0.0,
    pristine: bool = False,
    bench: Load | None = None,
) -> Deployed:
    """The whole procedure on one node; with `bench` it is measured before the old server stops, and after."""
    refuse_several_nodes(session.node)
    name = session.node.name
    picture, found, plan = plan_deploy(
        session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, pristine=pristine
    )
    if dry_run:
        return Deployed(name, None, planned_json(plan), tuple(found), picture, True)
    if not plan.changes and plan.awaits is None:
        in_place = tuple(unchanged(action).to_json() for action in plan.actions)
        done = Deployed(name, None, in_place, tuple(found), picture, False)
        return _measured(session, reporter, done, bench, None)
    if plan.changes:
        confirm(plan)
    benches = None
    # A server that is still starting cannot be measured: its own figures come after the wait.
    if bench is not None and plan.awaits is None:
        from .bench import around

        benches = around.before(session, picture, found, reporter, bench)
    command = f"deploy-fix {bundle.name}"
    with locked(session, command, reporter, seen=picture, ends=plan.to_end, wait_s=wait_s) as work:
        stopped = apply(work, plan, picture)
        after = observe_after(session, bundle, stopped)
        found = prove(after)
        work.verified(found)
    actions = tuple(each.to_json() for each in work.actions)
    # A run that only waited for a server that was loading is no deploy: there is nothing to go back from.
    deploy_id = work.deploy_id if plan.changes else None
    done = Deployed(name, deploy_id, actions, tuple(found), after, False, stopped=stopped)
    if stopped is not None:
        return done
    return _measured(session, reporter, done, bench, benches)


def _measured(
    session: Session, reporter: Reporter, done: Deployed, bench: Load | None, benches: Benches | None
) -> Deployed:
    """The deploy with the run after it, if one is wanted."""
    if bench is None:
        return done
    from .bench import around

    found = around.after(session, done.picture, done.checks, reporter, bench, benches)
    return replace(done, benches=found)


def apply(work: Work, plan: Plan, picture: Picture) -> UnhealthyError | None:
    """Carry the plan out, in its order. Stops at the first action that does not come true: an error, which is
    returned where it is the server that does not come up."""
    work.actions.extend(push(work, plan, picture.version))
    work.actions.append(purge(work, plan))
    if plan.code and picture.root:
        for line in check_imports(work, plan, picture.root):
            work.reporter.note(f"import check: {line}")
    return attempt(work, plan)
