"""`inv deploy-fix`: observe, plan, apply, verify. Does only what is not already so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import checks
from .bundles import Bundle
from .checks import Check
from .errors import ExitCode
from .free import free_gpus
from .health import wait_ready
from .interrupted import observe_settled
from .kill import kill_stale
from .observe import observe
from .picture import Picture
from .plan import Plan, build
from .pristine import from_pristine
from .proofs import prove
from .purge import purge
from .push import check_imports, push
from .reporting import Reporter
from .session import Session
from .start import start_server
from .verify import wiring_json
from .work import Done, Work, locked, planned_json, unchanged

Confirm = Callable[[Plan], bool]


@dataclass(frozen=True)
class Deployed:
    """`actions` as done, or as planned on a dry run; `checks` of the state afterwards."""

    node: str
    deploy_id: str | None
    actions: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]
    picture: Picture
    dry_run: bool

    @property
    def exit_code(self) -> ExitCode:
        """6 when it does not generate although it came up; else as the checks say."""
        if self.dry_run:
            return ExitCode.OK
        if any(check.id == "health.generate" and check.verdict == "fail" for check in self.checks):
            return ExitCode.UNHEALTHY
        return checks.exit_code(self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "deploy_id": self.deploy_id,
            "actions": list(self.actions),
            "checks": [check.to_json() for check in self.checks],
            "wiring": wiring_json(self.picture),
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
) -> Deployed:
    """The whole procedure on one node."""
    name = session.node.name
    picture, found, plan = plan_deploy(
        session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, pristine=pristine
    )
    if dry_run:
        planned = tuple(planned_json(action) for action in plan.actions)
        return Deployed(name, None, planned, tuple(found), picture, True)
    if not plan.changes:
        in_place = tuple(unchanged(action).to_json() for action in plan.actions)
        return Deployed(name, None, in_place, tuple(found), picture, False)
    confirm(plan)
    with locked(session, f"deploy-fix {bundle.name}", reporter, wait_s=wait_s) as work:
        actions = apply(work, plan, picture)
        after = observe(session, bundle)
    return Deployed(
        name, work.deploy_id, tuple(done.to_json() for done in actions), tuple(prove(after)), after, False
    )


def apply(work: Work, plan: Plan, picture: Picture) -> list[Done]:
    """Carry the plan out, in its order. Stops at the first action that does not come true."""
    actions = push(work, plan)
    actions.append(purge(work, plan))
    if plan.code and picture.root:
        for line in check_imports(work, plan, picture.root):
            work.reporter.note(f"import check: {line}")
    actions.append(kill_stale(work, plan))
    actions.append(free_gpus(work, plan))
    done, boot = start_server(work, plan)
    actions.append(done)
    if boot is None:
        actions.append(Done("health", False, plan.action("health").detail))
    else:
        actions.append(wait_ready(work.session, boot, work.reporter))
    return actions
