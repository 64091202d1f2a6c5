"""`inv rollback`: put back what a deploy replaced, restart, verify the state that it restores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from . import checks
from .arguments import refuse_adjusted_arguments, refuse_several_nodes
from .bundles import Bundle
from .cache import Contents
from .checks import Check
from .errors import ExitCode, RefusedError, UnhealthyError
from .fixes import text_diff
from .interrupted import observe_settled
from .picture import Picture
from .plan import (
    Action,
    Plan,
    purge_action,
    serve,
    stale_modules,
)
from .proofs import prove
from .proofs.restored import restored
from .purge import purge
from .push import restore_files
from .relaunch import attempt, observe_after
from .replaced import contents
from .reporting import Reporter
from .session import Session
from .verify import proven_json
from .work import Done, Work, locked, planned_json, unchanged

Confirm = Callable[[Plan], bool]
Manifest = Mapping[str, Any]
Texts = Mapping[str, bytes]
# A file that is not as before the deploy: its entry in the record of the deploy, and how it stands now.
Differing = tuple[Manifest, Manifest]


@dataclass(frozen=True)
class RolledBack:
    """`deploy_id` is the deploy whose files were put back, or were as before it already."""

    node: str
    deploy_id: str
    actions: tuple[dict[str, Any], ...]
    checks: tuple[Check, ...]
    picture: Picture
    dry_run: bool
    # The server did not come up.
    stopped: UnhealthyError | None = None

    @property
    def exit_code(self) -> ExitCode:
        if self.stopped is not None:
            return self.stopped.exit_code
        return ExitCode.OK if self.dry_run else checks.exit_code(self.checks)

    @property
    def failure(self) -> UnhealthyError | None:
        return self.stopped

    @property
    def changed(self) -> bool:
        return any(action["changed"] for action in self.actions)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "deploy_id": self.deploy_id,
            "actions": list(self.actions),
            **proven_json(self.checks, self.picture),
            **(self.stopped.data if self.stopped else {}),
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
    """Undo the deploy `to`, by default the last one that is still in place. Does only what is not already so.

    RefusedError when there is none, or when a file was changed since (unless `force`).
    """
    node = session.node
    refuse_several_nodes(node)
    picture = observe_settled(session, bundle, reporter, dry_run=dry_run, wait_s=wait_s)
    manifest = choose(picture, to)
    stands = session.request("replaced", {"deploy_id": manifest["id"]})["files"]
    todo = _differing(manifest, stands)
    if todo:
        _refuse_other_version(picture, manifest, force=force)
        _refuse_changed(node.name, todo, force=force)
    found = restored(prove(picture), picture, manifest, stands)
    state_dir = str(picture.section("state").get("dir", ""))
    texts, _ = contents(session, [file for file, _ in todo], state_dir, Contents())
    plan = _plan(picture, todo, found, texts)
    if dry_run:
        return RolledBack(node.name, manifest["id"], planned_json(plan), (), picture, True)
    if not plan.changes and plan.awaits is None:
        in_place = tuple(unchanged(action).to_json() for action in plan.actions)
        return RolledBack(node.name, manifest["id"], in_place, tuple(found), picture, False)
    if plan.changes:
        confirm(plan)
    name = f"rollback {manifest['id']}"
    with locked(session, name, reporter, seen=picture, ends=plan.to_end, wait_s=wait_s) as work:
        read_back = _put_back_all(work, plan, manifest, force=force) or stands
        stopped = attempt(work, plan)
        after = observe_after(session, bundle, stopped)
        found = restored(prove(after), after, manifest, read_back)
        work.verified(found)
    actions = tuple(each.to_json() for each in work.actions)
    return RolledBack(node.name, manifest["id"], actions, tuple(found), after, False, stopped)


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
    server = picture.node.server_name
    # One machine may serve two: what was done for the other one is undone by its name only.
    own = [each for each in in_place if _made_for(each) in (None, server)]
    last = own[-1] if own else None
    _refuse_damaged(node, deploys[deploys.index(last) + 1 if last else 0 :], last)
    if last:
        return last
    hint = f"inv history --node {node}"
    if in_place:
        id, other = in_place[-1]["id"], _made_for(in_place[-1])
        hint = f"inv rollback --to {id} --node {node} undoes the one for server '{other}'"
    raise RefusedError(
        f"{node}: no deploy is in place that could be put back for server '{server}'", hint=hint, node=node
    )


def _refuse_damaged(node: str, newer: Sequence[Manifest], last: Manifest | None) -> None:
    """What a damaged record told of may be in place: then the one before it, `last`, is not the last one."""
    hint = f"inv history --node {node} tells what it did; look at the files"
    if last is not None:
        hint += f", then inv rollback --to {last['id']} --node {node} undoes the one before it"
    for each in newer:
        if "unreadable" in each:
            raise RefusedError(
                f"{node}: the record of the last deploy, {each['id']}, is damaged: {each['unreadable']}",
                hint=hint,
                node=node,
            )


def _made_for(manifest: Manifest) -> str | None:
    """The inventory's server that a deploy was made for; older records do not tell."""
    return (manifest.get("about") or {}).get("server")


def _differing(manifest: Manifest, stands: Sequence[Manifest]) -> list[Differing]:
    # A deploy that is still at it may have recorded one more file since the first reading.
    pairs = zip(manifest["files"], stands, strict=False)
    return [(file, now) for file, now in pairs if not now["in_place"]]


def _plan(picture: Picture, todo: Sequence[Differing], found: Sequence[Check], texts: Texts) -> Plan:
    """`found`: the checks of the state before that deploy."""
    served = serve(picture, found, ["its files change"] if todo else [])
    if served.restart:
        refuse_adjusted_arguments(picture)
    if todo:
        purge = tuple(file["named"] for file, _ in todo if file["named"].endswith(".py"))
        purging = Action("purge-pycache", bool(purge), f"remove the pycs of {len(purge)} modules")
    else:
        purge = stale_modules(picture, ())
        purging = purge_action(purge, picture)
    return replace(served, actions=(_restore(picture, todo, texts), purging, *served.actions), purge=purge)


def _restore(picture: Picture, todo: Sequence[Differing], texts: Texts) -> Action:
    """The way back of each file, with what changes in it where both contents are known."""
    if not todo:
        return Action("restore", False, "its files are as before that deploy")
    said, diffs = [], []
    for file, now in todo:
        label, before = picture.short(file["named"]), file["original"]["sha256"]
        old, new = (b"" if each is None else texts.get(each) for each in (now["sha256"], before))
        if now["sha256"] == before:
            label += " (the same content: its link, owner, mode or time)"
        elif new is None:
            label += " (no diff: its original cannot be read)"
        elif old is None:
            label += " (no diff: it cannot be read)"
        else:
            diffs.append(text_diff(label.lstrip("/"), old, new))
        said.append(label)
    return Action("restore", True, "put back " + ", ".join(said), "\n".join(diffs))


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


def _refuse_changed(node: str, todo: Sequence[Differing], *, force: bool) -> None:
    """A file that somebody changed after the deploy is not overwritten unasked."""
    changed = [
        file["named"]
        for file, now in todo
        if now["sha256"] not in (file["after_sha256"], file["original"]["sha256"])
    ]
    if changed and not force:
        raise RefusedError(
            f"{node}: changed since that deploy: {', '.join(changed)}",
            hint=f"inv rollback --force --node {node} overwrites them (they are kept first)",
            node=node,
        )


def _put_back_all(work: Work, plan: Plan, manifest: Manifest, *, force: bool) -> list[dict[str, Any]]:
    """Restore and purge; returns what the restore read back of each file, [] without one."""
    action = plan.action("restore")
    files = _put_back(work, action, manifest, force=force) if action.would_change else []
    if not files:
        work.actions.append(unchanged(action))
    work.actions.append(purge(work, plan))
    return files


def _put_back(work: Work, action: Action, manifest: Manifest, *, force: bool) -> list[dict[str, Any]]:
    reporter = work.reporter
    reporter.begin(action.id, action.detail)
    files = restore_files(work, deploy_id=manifest["id"], force=force)
    detail = "read back: " + ", ".join(
        f"{PurePosixPath(f['path']).name} {(f['sha256'] or 'absent')[:12]}" for f in files
    )
    detail += "".join(f"; what stood in {f['path']} is kept as {f['kept']}" for f in files if f["kept"])
    changed = any(file["changed"] for file in files)
    reporter.done(action.id, detail, changed=changed)
    work.actions.append(Done(action.id, changed, detail))
    return files
