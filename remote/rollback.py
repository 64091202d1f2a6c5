"""`inv rollback`: put back what a deploy replaced, restart, verify the state that it restores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from . import checks
from .bundles import Bundle
from .checks import Check
from .errors import ExitCode, RefusedError
from .free import to_free_after
from .interrupted import observe_settled
from .observe import observe
from .picture import Picture
from .plan import Action, Plan, refuse_adjusted_arguments, refuse_several_nodes, refuse_start
from .proofs import prove
from .proofs.restored import restored
from .purge import purge
from .push import restore_files
from .relaunch import relaunch
from .reporting import Reporter
from .session import Session
from .verify import wiring_json
from .work import Done, Work, locked, planned_json

Confirm = Callable[[Plan], bool]
Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class RolledBack:
    """`deploy_id` is the deploy whose files were put back."""

    node: str
    deploy_id: str
    actions: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]
    picture: Picture
    dry_run: bool

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.dry_run else checks.exit_code(self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "deploy_id": self.deploy_id,
            "actions": list(self.actions),
            "checks": [check.to_json() for check in self.checks],
            "wiring": wiring_json(self.picture),
        }


def rollback(
    session: Session,
    bundle: Bundle,
    reporter: Reporter,
    *,
    confirm: Confirm,
    dry_run: bool = False,
    wait_s: float = 0.0,
    to: str | None = None,
    force: bool = False,
) -> RolledBack:
    """Undo the deploy `to`, by default the last one that is still in place.

    RefusedError when there is none, or when a file was changed since (unless `force`).
    """
    node = session.node
    refuse_several_nodes(node)
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s)
    manifest = choose(picture, to)
    plan = _plan(picture, manifest, force=force)
    if dry_run:
        return RolledBack(node.name, manifest["id"], planned_json(plan), (), picture, True)
    confirm(plan)
    name = f"rollback {manifest['id']}"
    with locked(session, name, reporter, seen=picture, ends=plan.to_end, wait_s=wait_s) as work:
        read_back = _apply(work, plan, manifest, force=force)
        after = observe(session, bundle)
    found = restored(prove(after), after, manifest, read_back)
    actions = tuple(each.to_json() for each in work.actions)
    return RolledBack(node.name, manifest["id"], actions, tuple(found), after, False)


def choose(picture: Picture, to: str | None) -> Manifest:
    """The deploy to undo."""
    node = picture.node.name
    deploys: Sequence[Manifest] = picture.section("state").get("deploys", [])
    if to is not None:
        found = next((each for each in deploys if each["id"] == to), None)
        if found is None:
            known = ", ".join(each["id"] for each in deploys) or "none"
            raise RefusedError(f"{node}: there is no deploy {to}", hint=f"known: {known}", node=node)
        return found
    in_place = [each for each in deploys if each.get("files") and not each.get("restored")]
    if not in_place:
        raise RefusedError(
            f"{node}: no deploy is in place that could be put back",
            hint=f"inv history --node {node}",
            node=node,
        )
    return in_place[-1]


def _plan(picture: Picture, manifest: Manifest, *, force: bool) -> Plan:
    paths = [file["named"] for file in manifest["files"]]
    refuse_adjusted_arguments(picture)
    refuse_start(picture)
    _refuse_other_version(picture, manifest, force=force)
    _refuse_changed(picture, manifest, force=force)
    to_end = tuple(picture.ownership.to_end()) if picture.ownership else ()
    modules = tuple(path for path in paths if path.endswith(".py"))
    return Plan(
        actions=(
            Action("restore", True, "put back " + ", ".join(picture.short(path) for path in paths)),
            Action("purge-pycache", bool(modules), f"remove the pycs of {len(modules)} modules"),
            Action("kill-stale", bool(to_end), f"end {len(to_end)} processes"),
            to_free_after(picture, to_end),
            Action("start", True, "its files change"),
            Action("health", False, "wait until it generates"),
        ),
        code=(),
        config=(),
        purge=modules,
        to_end=to_end,
        restart=True,
    )


def _refuse_other_version(picture: Picture, manifest: Manifest, *, force: bool) -> None:
    """Source files of one version do not go into another one, whoever insists."""
    then, now, node = manifest.get("about", {}).get("version"), picture.version, picture.node.name
    if then == now or not any(file["named"].endswith(".py") for file in manifest["files"]):
        return
    if then is not None and now is not None:
        raise RefusedError(
            f"{node}: deploy {manifest['id']} replaced files of SGLang {then}, and {now} is installed now",
            hint=f"install {then} again, or go on with {now}: inv deploy-fix --dry-run --node {node}",
            node=node,
        )
    if not force:
        raise RefusedError(
            f"{node}: whether deploy {manifest['id']} replaced files of the SGLang that is installed now is"
            f" not known (then {then or 'unknown'}, now {now or 'unknown'})",
            hint=f"inv rollback --force --node {node} puts them back all the same",
            node=node,
        )


def _refuse_changed(picture: Picture, manifest: Manifest, *, force: bool) -> None:
    """A file that somebody changed after the deploy is not overwritten unasked."""
    known = {picture.path_of(path): fact for path, fact in picture.section("files").items()}
    known.update(picture.section("configs"))
    changed = [
        file["named"]
        for file in manifest["files"]
        if file["named"] in known
        and known[file["named"]].get("sha256") not in (file["after_sha256"], file["original"]["sha256"])
    ]
    if changed and not force:
        node = picture.node.name
        raise RefusedError(
            f"{node}: changed since that deploy: {', '.join(changed)}",
            hint=f"inv rollback --force --node {node} overwrites them (they are kept first)",
            node=node,
        )


def _apply(work: Work, plan: Plan, manifest: Manifest, *, force: bool) -> list[dict[str, Any]]:
    """Restore, purge, start again; returns what the restore read back of each file."""
    reporter, action = work.reporter, plan.action("restore")
    reporter.begin(action.id, action.detail)
    files = restore_files(work, deploy_id=manifest["id"], force=force)
    detail = "read back: " + ", ".join(
        f"{PurePosixPath(f['path']).name} {(f['sha256'] or 'absent')[:12]}" for f in files
    )
    detail += "".join(f"; what stood in {f['path']} is kept as {f['kept']}" for f in files if f["kept"])
    changed = any(file["changed"] for file in files)
    reporter.done(action.id, detail, changed=changed)
    work.actions.append(Done(action.id, changed, detail))
    work.actions.append(purge(work, plan))
    relaunch(work, plan)
    return files
