"""The steps of `deploy-fix` as commands of their own: each plans and does its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .arguments import refuse_adjusted_arguments, refuse_several_nodes
from .bundles import Bundle
from .errors import ExitCode, RefusedError, UnhealthyError
from .free import free_gpus, ours_alone, strangers, to_free, to_free_beside
from .health import wait_ready
from .intent import our_gpus
from .interrupted import observe_settled
from .kill import end, kill_stale
from .observe import observe
from .picture import Picture
from .plan import (
    Action,
    Plan,
    code_writes,
    config_writes,
    free_action,
    kill_action,
    purge_action,
    push_actions,
    refuse_start,
    stale_modules,
)
from .purge import purge
from .push import check_imports, push
from .relaunch import come_up, relaunch
from .reporting import Reporter
from .running import boot_of, not_its_own
from .session import Session
from .start import refuse_if_up, start
from .strangers import owned_of, refuse_stale
from .work import Work, locked, planned_json, unchanged

Confirm = Callable[[Plan], bool]


@dataclass(frozen=True)
class Stepped:
    node: str
    actions: tuple[dict[str, Any], ...]
    deploy_id: str | None = None
    known: bool = True
    dry_run: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """8 when it could not be seen whether an action came true."""
        return ExitCode.OK if self.known else ExitCode.UNDETERMINED

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "deploy_id": self.deploy_id, "actions": list(self.actions)}


@dataclass(frozen=True)
class Step:
    """What a command would do here, by itself (RefusedError for what is in its way), and how it does it."""

    plan: Callable[[Picture], Plan]
    run: Callable[[Work, Plan, Picture], None]


def _to_push(picture: Picture) -> Plan:
    refuse_adjusted_arguments(picture)
    code, config = code_writes(picture), config_writes(picture)
    return Plan(push_actions(picture, code, config), code=code, config=config)


def _to_purge(picture: Picture) -> Plan:
    """Bytecode that is stale already: what a push changes goes stale by it."""
    purge = stale_modules(picture, ())
    return Plan((purge_action(purge, picture),), purge=purge)


def _to_end_stale(picture: Picture) -> Plan:
    """What is stale beside a server, and never the server: ending that is `stop`'s."""
    stale = tuple(each.process for each in owned_of(picture).stale)
    return Plan((kill_action(stale, picture),), to_end=stale)


def _push(work: Work, plan: Plan, picture: Picture) -> None:
    work.actions.extend(push(work, plan, picture.version))
    if plan.code and picture.root:
        for line in check_imports(work, plan, picture.root):
            work.reporter.note(f"import check: {line}")


def _purge(work: Work, plan: Plan, picture: Picture) -> None:
    done = purge(work, plan)
    work.actions.append(done)
    if done.changed and picture.ownership and picture.ownership.server:
        work.reporter.note(f"the server that runs may have loaded it: inv restart --node {picture.node.name}")


STEPS = {
    "push-fix": Step(_to_push, _push),
    "purge-pycache": Step(_to_purge, _purge),
    "kill-stale": Step(_to_end_stale, lambda work, plan, _: work.actions.append(kill_stale(work, plan))),
}


def run_step(
    session: Session,
    bundle: Bundle,
    reporter: Reporter,
    name: str,
    *,
    confirm: Confirm,
    dry_run: bool,
    wait_s: float,
) -> Stepped:
    """One step of the procedure, planned from what the node shows now."""
    step = STEPS[name]
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    plan = step.plan(picture)
    return _carry_out(
        session,
        picture,
        plan,
        reporter,
        name,
        confirm,
        dry_run,
        wait_s,
        lambda w: step.run(w, plan, picture),
    )


def _carry_out(
    session: Session,
    picture: Picture,
    plan: Plan,
    reporter: Reporter,
    name: str,
    confirm: Confirm,
    dry_run: bool,
    wait_s: float,
    act: Callable[[Work], None],
) -> Stepped:
    node = session.node.name
    if dry_run:
        return Stepped(node, planned_json(plan), dry_run=True)
    if not plan.changes:
        return Stepped(node, tuple(unchanged(action).to_json() for action in plan.actions))
    confirm(plan)
    with locked(session, name, reporter, seen=picture, ends=plan.to_end, wait_s=wait_s) as work:
        act(work)
    known = all(each.known for each in work.actions)
    return Stepped(node, tuple(each.to_json() for each in work.actions), work.deploy_id, known)


def free(
    session: Session, bundle: Bundle, reporter: Reporter, *, confirm: Confirm, dry_run: bool, wait_s: float
) -> Stepped:
    """Wait until the memory of our GPUs is back, where no server of ours is up to hold it."""
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    plan = Plan((to_free(picture),))

    def act(work: Work) -> None:
        work.actions.append(free_gpus(work, plan.action("free-gpus"), our_gpus(session.node)))

    return _carry_out(session, picture, plan, reporter, "free-gpus", confirm, dry_run, wait_s, act)


def stop(
    session: Session, bundle: Bundle, reporter: Reporter, *, confirm: Confirm, dry_run: bool, wait_s: float
) -> Stepped:
    """End the server and what is stale beside it, and wait for the GPUs' memory.

    What somebody else holds of it is named and not waited for.
    """
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    to_end = tuple(owned_of(picture).to_end())
    named = ", ".join(f"{process.pid} {process.title.partition(' ')[0]}" for process in to_end)
    detail = f"end {named}" if to_end else "nothing runs"
    freeing = to_free_beside(picture, to_end)
    plan = Plan((Action("stop", bool(to_end), detail), freeing), to_end=to_end)

    def act(work: Work) -> None:
        work.actions.append(end(work, to_end, id="stop", detail=detail))
        work.actions.append(free_gpus(work, freeing, ours_alone(picture), beside=strangers(picture)))

    return _carry_out(session, picture, plan, reporter, "stop", confirm, dry_run, wait_s, act)


def start_only(
    session: Session, bundle: Bundle, reporter: Reporter, *, confirm: Confirm, dry_run: bool, wait_s: float
) -> Stepped:
    """Start the server where none runs. RefusedError when one does: `inv restart` is for that.

    So it is where stale processes are in the way. UnhealthyError when it ended at once.
    """
    refuse_several_nodes(session.node)
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    refuse_adjusted_arguments(picture)
    owned = picture.ownership
    if owned and owned.server and owned.server.launcher:
        refuse_if_up(session.node.name, owned.server.launcher.pid)
    refuse_start(picture)
    refuse_stale(picture)
    plan = Plan((Action("start", True, f"start server '{session.node.server_name}'"),))

    def act(work: Work) -> None:
        done, boot = start(work, detail=plan.action("start").detail)
        work.actions.append(done)
        if not boot.alive:
            # Nothing is waited for: it says at once why the server ended.
            come_up(work, boot)

    return _carry_out(session, picture, plan, reporter, "start", confirm, dry_run, wait_s, act)


def restart(
    session: Session, bundle: Bundle, reporter: Reporter, *, confirm: Confirm, dry_run: bool, wait_s: float
) -> Stepped:
    """Stop, free, start, wait until it generates. Files stay as they are."""
    refuse_several_nodes(session.node)
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    refuse_adjusted_arguments(picture)
    refuse_start(picture)
    to_end = tuple(picture.ownership.to_end()) if picture.ownership else ()
    plan = Plan(
        actions=(
            Action("kill-stale", bool(to_end), f"end {len(to_end)} processes"),
            free_action(to_end, picture, restart=True),
            Action("start", True, f"start server '{session.node.server_name}'"),
            Action("health", False, "wait until it generates"),
        ),
        to_end=to_end,
        restart=True,
    )

    return _carry_out(
        session,
        picture,
        plan,
        reporter,
        "restart",
        confirm,
        dry_run,
        wait_s,
        lambda work: relaunch(work, plan),
    )


def health(session: Session, bundle: Bundle, reporter: Reporter) -> Stepped:
    """Wait until the server that runs is ready. UnhealthyError when there is none, or it fails.

    RefusedError when the log to follow is not its own: a failure in there would be another server's.
    """
    refuse_several_nodes(session.node)
    picture = observe(session, bundle, probe=False)
    boot, node = boot_of(picture), session.node
    if boot is None:
        raise UnhealthyError(
            f"{node.name}: no server of ours runs", hint=f"inv restart --node {node.name}", node=node.name
        )
    other = not_its_own(picture)
    if other is not None:
        raise RefusedError(
            f"{node.name}: there is no log to follow for the server, pid {boot.pid}: {other.text}",
            hint=f"set `log` of server '{node.server_name}' to its own, or: inv restart --node {node.name}",
            node=node.name,
        )
    done = wait_ready(session, boot, reporter)
    return Stepped(node.name, (done.to_json(),), known=done.known)
