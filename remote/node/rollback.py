"""Put back what a deploy replaced, or what an interrupted run left half done."""

from __future__ import annotations

from . import originals
from .base import OpError, changes
from .fsio import content_sha256, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context
    from .state import State


@changes
def restore(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Put back what a deploy replaced, exactly: content, mode, owner, times, link; what it created goes.

    {deploy_id, expect: {path: sha256}|null, force: bool}
    -> {files: [{path, real_path, changed, sha256 and symlink (read back), kept: path|null}]}
    OpError "missing" without such a deploy; "precondition" with `files` [{path, expected, found}] when a
    file is neither as the deploy left it (or as `expect` says) nor original, unless `force`. Then nothing
    is changed. With `force` what stands there is kept first, at `kept` in the state directory.
    """
    state: State = ctx.state
    manifest = originals.manifest_of(state, params["deploy_id"])
    if not manifest:
        raise OpError("missing", f"there is no record of deploy {params['deploy_id']}")
    expect = params.get("expect") or {}
    todo = [entry for entry in manifest["files"] if not originals.in_place(entry)]
    moved = []
    for entry in todo:
        wanted = expect.get(entry["path"], expect.get(entry["named"], entry["after_sha256"]))
        if not originals.is_ours_or_original(entry, wanted):
            found = content_sha256(entry["path"])
            moved.append({"path": entry["named"], "expected": wanted, "found": found})
    if moved and not params.get("force"):
        paths = ", ".join(entry["path"] for entry in moved)
        raise OpError("precondition", f"changed since the deploy: {paths}", files=moved)
    # Before it is pending: nobody could ever end that.
    for entry in originals.lost(todo, state):
        blob = state.path("blobs", entry["original"]["sha256"])
        told = f"{entry['named']}: its original is lost ({blob}): put it back by hand; nothing was changed"
        raise OpError("missing", told, path=entry["named"])
    kept = {each["path"]: state.keep(read_bytes(each["path"])) for each in moved if each["found"] is not None}
    if todo:
        originals.save(state, {**manifest, "pending": todo})
        originals.put_back(todo, state)
        originals.save(state, {**manifest, "pending": None, "outcome": "restored", "restored": ctx.now()})
    return {
        "files": [_read_back(entry, entry in todo, kept.get(entry["named"])) for entry in manifest["files"]]
    }


def _read_back(entry: dict[str, Any], changed: bool, kept: str | None) -> dict[str, Any]:
    found = _stands(entry)
    if not found.pop("in_place"):
        raise OpError("internal", f"{entry['path']}: does not read back as it originally was")
    return {**found, "changed": changed, "kept": kept}


def _stands(entry: dict[str, Any]) -> dict[str, Any]:
    now, _ = originals.look(entry["path"])
    names = {"path": entry["named"], "real_path": entry["path"], "in_place": originals.in_place(entry)}
    return {**names, "sha256": now["sha256"], "symlink": now.get("target")}


def replaced(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{deploy_id} -> {files: [{path, real_path, in_place, sha256, symlink}]}: what a deploy replaced, now.

    `in_place`: exactly as the original, so that a restore would leave it. OpError.
    """
    manifest = originals.manifest_of(ctx.state, params["deploy_id"], finished=False)
    return {"files": [_stands(entry) for entry in manifest.get("files", [])]}


@changes
def recover(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{} -> {recovered: [{deploy_id, files: [path]}], foreign: [path]}: end what an interrupted run began.

    The originals of its unfinished write or restore are put back. A file that is neither original nor what
    the run wrote was changed by somebody since: it is left as it is, and named in `foreign`. So is one whose
    original is lost: what can never come to its end must not keep every command after it from its work.
    """
    state: State = ctx.state
    recovered = []
    foreign = []
    for deploy_id in state.interrupted():
        manifest = originals.manifest_of(state, deploy_id, finished=False)
        entries = manifest["pending"]
        originals.discard(entries)
        ours = [entry for entry in entries if originals.is_ours_or_original(entry, entry["after_sha256"])]
        foreign += [entry["named"] for entry in entries if entry not in ours]
        lost = originals.lost(ours, state)
        foreign += [f"{entry['named']} (its original is lost)" for entry in lost]
        ours = [entry for entry in ours if entry not in lost]
        originals.put_back(ours, state)
        originals.save(state, {**manifest, "pending": None, "outcome": "recovered", "recovered": ctx.now()})
        recovered.append({"deploy_id": deploy_id, "files": [entry["named"] for entry in ours]})
    return {"recovered": recovered, "foreign": foreign}


OPS = {"replaced": replaced, "restore": restore, "recover": recover}
