"""The steps of `deploy-fix` as commands of their own: the same plan, only some of its actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .bundles import Bundle
from .errors import ExitCode, RefusedError, UnhealthyError
from .free import free_gpus, to_free
from .health import wait_ready
from .interrupted import observe_settled
from .kill import end, kill_stale
from .observe import observe
from .ownership import Process
from .picture import Picture
from .plan import Action, Plan, build, refuse_adjusted_arguments, refuse_several_nodes, refuse_start
from .proofs import prove
from .purge import purge
from .push import check_imports, push
from .relaunch import relaunch
from .reporting import Reporter
from .running import boot_of, not_its_own
from .session import Session
from .start import refuse_if_up, start
from .work import Work, locked, planned_json, unchanged

Confirm = Callable[[Plan], bool]


@dataclass(frozen=True)
class Stepped:
    node: str
    actions: tuple[dict[str, Any], ...]
    deploy_id: str | None = None
    known: bool = True

    @property
    def exit_code(self) -> ExitCode:
        """8 when it could not be seen whether an action came true."""
        return ExitCode.OK if self.known else ExitCode.UNDETERMINED

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "deploy_id": self.deploy_id, "actions": list(self.actions)}


@dataclass(frozen=True)
class Step:
    """Which actions of the plan a command carries out, and how."""

    actions: tuple[str, ...]
    run: Callable[[Work, Plan, Picture], None]


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
    "push-fix": Step(("push-code", "push-config"), _push),
    "purge-pycache": Step(("purge-pycache",), _purge),
    "kill-stale": Step(("kill-stale",), lambda work, plan, _: work.actions.append(kill_stale(work, plan))),
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
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s)
    # A step starts no server: what only a start would need is not asked for.
    whole = build(picture, prove(picture), starts=False)
    plan = replace(whole, actions=tuple(whole.action(id) for id in step.actions))
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
    actions = plan.actions
    if dry_run:
        return Stepped(node, tuple(planned_json(action) for action in actions))
    if not any(action.would_change for action in actions):
        return Stepped(node, tuple(unchanged(action).to_json() for action in actions))
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
    plan = _only(to_free(picture))

    def act(work: Work) -> None:
        work.actions.append(free_gpus(work, plan))

    return _carry_out(session, picture, plan, reporter, "free-gpus", confirm, dry_run, wait_s, act)


def stop(
    session: Session, bundle: Bundle, reporter: Reporter, *, confirm: Confirm, dry_run: bool, wait_s: float
) -> Stepped:
    """End the server and what is stale beside it, and wait for the GPUs' memory."""
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    to_end = tuple(picture.ownership.to_end()) if picture.ownership else ()
    detail = "end " + ", ".join(f"{p.pid} {p.title.split()[0]}" for p in to_end) if to_end else "nothing runs"
    plan = _only(
        Action("stop", bool(to_end), detail),
        Action("free-gpus", bool(to_end), "wait for the GPUs' memory"),
        to_end=to_end,
    )

    def act(work: Work) -> None:
        work.actions.append(end(work, to_end, id="stop", detail=detail))
        work.actions.append(free_gpus(work, plan))

    return _carry_out(session, picture, plan, reporter, "stop", confirm, dry_run, wait_s, act)


def start_only(
    session: Session, bundle: Bundle, reporter: Reporter, *, confirm: Confirm, dry_run: bool, wait_s: float
) -> Stepped:
    """Start the server where none runs. RefusedError when one does: `inv restart` is for that.

    UnhealthyError when it ended at once.
    """
    refuse_several_nodes(session.node)
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s, probe=False)
    refuse_adjusted_arguments(picture)
    owned = picture.ownership
    if owned and owned.server and owned.server.launcher:
        refuse_if_up(session.node.name, owned.server.launcher.pid)
    refuse_start(picture)
    plan = _only(Action("start", True, f"start server '{session.node.server_name}'"))

    def act(work: Work) -> None:
        done, boot = start(work, detail=plan.action("start").detail)
        work.actions.append(done)
        if not boot.alive:
            # Nothing is waited for: it says at once why the server ended.
            wait_ready(work.session, boot, work.reporter)

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
            Action("free-gpus", bool(to_end), "wait for the GPUs' memory" if to_end else "nothing to free"),
            Action("start", True, f"start server '{session.node.server_name}'"),
            Action("health", False, "wait until it generates"),
        ),
        code=(),
        config=(),
        purge=(),
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


def _only(*actions: Action, to_end: tuple[Process, ...] = ()) -> Plan:
    return Plan(actions=actions, code=(), config=(), purge=(), to_end=to_end, restart=False)
