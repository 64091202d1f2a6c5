"""Replace files so that all of them are new or all of them are old, whenever the process dies; and put back.

The order is what makes it so. 1. Originals are kept under their hashes. 2. The manifest names every file, how
to put it back and where its new content is prepared: `pending`. 3. New contents are prepared beside their
targets, synced, compiled. 4. Preconditions are compared once more. 5. Renames. 6. Read back. 7. The manifest
says that it is done. A process that dies between 2 and 7 leaves `pending` behind, and `recover` puts the
originals back. A pending restore is finished the same way, since both lead to the originals.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH101, PTH105, PTH108, PTH110, PTH113, PTH114, PTH116, PTH118, PTH119, PTH120, PTH211

from __future__ import annotations

import contextlib
import os
import stat as stat_bits

from .base import OpError, changes
from .bytecode import compile_source, unpack
from .fsio import (
    absolute,
    content_sha256,
    identifier,
    op_error,
    read_bytes,
    sha256,
    sync_directory,
    write_new,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context
    from .state import State


def _original(path: str) -> tuple[dict[str, Any], bytes | None]:
    """How `path` itself stands now (a link is not followed), and the content it leads to. OpError."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return {"kind": "absent", "sha256": None}, None
    except OSError as error:
        raise op_error(error, path) from None
    owner = {
        "mode": stat_bits.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "atime_ns": info.st_atime_ns,
        "mtime_ns": info.st_mtime_ns,
    }
    try:
        if stat_bits.S_ISLNK(info.st_mode):
            target = os.readlink(path)
            data = read_bytes(path) if os.path.isfile(path) else None
            return {"kind": "symlink", "target": target, "sha256": data and sha256(data), **owner}, data
        if stat_bits.S_ISREG(info.st_mode):
            data = read_bytes(path)
            return {"kind": "file", "sha256": sha256(data), **owner}, data
    except OSError as error:
        raise op_error(error, path) from None
    raise OpError("unsupported", f"{path}: neither a file nor a link to one", path=path)


def _dress(path: str, original: dict[str, Any], *, times: bool) -> None:
    """Give a prepared file or link its owner, mode and, to put an original back, times. Raises OSError."""
    info = os.lstat(path)
    if (info.st_uid, info.st_gid) != (original["uid"], original["gid"]):
        os.chown(path, original["uid"], original["gid"], follow_symlinks=False)
    if not stat_bits.S_ISLNK(info.st_mode):
        os.chmod(path, original["mode"])
    if times:
        os.utime(path, ns=(original["atime_ns"], original["mtime_ns"]), follow_symlinks=False)


def _prepare(entry: dict[str, Any], data: bytes, mode: int | None) -> None:
    """Write the new content beside its target, with the owner and mode of what it replaces. OpError."""
    path, staged = entry["path"], entry["staged"]
    try:
        write_new(staged, data, 0o644)
        if os.path.exists(path):
            info = os.stat(path)  # of the file behind a link, too
            owner = {"uid": info.st_uid, "gid": info.st_gid, "mode": stat_bits.S_IMODE(info.st_mode)}
            _dress(staged, owner, times=False)
        if mode is not None:
            os.chmod(staged, mode)
    except OSError as error:
        raise op_error(error, path) from None


def _prepare_original(entry: dict[str, Any], state: State) -> None:
    """Write the original beside its target, exactly as it was. OpError."""
    original, staged = entry["original"], entry["staged"]
    try:
        if original["kind"] == "symlink":
            os.symlink(original["target"], staged)
        elif original["kind"] == "file":
            write_new(staged, state.kept(original["sha256"]))
        else:
            return
        _dress(staged, original, times=True)
    except OSError as error:
        raise op_error(error, entry["path"]) from None


def _in_place(entry: dict[str, Any]) -> bool:
    """Is `path` as it originally was, as far as that shows: kind, content or target, mode, owner, time?"""
    now, _ = _original(entry["path"])
    wanted = entry["original"]
    keys = [
        "kind",
        "uid",
        "gid",
        "mtime_ns",
        *(["target"] if wanted["kind"] == "symlink" else ["sha256", "mode"]),
    ]
    return all(now.get(key) == wanted.get(key) for key in keys)


def _put_back(entries: list[dict[str, Any]], state: State) -> None:
    """All of them are prepared before the first is renamed, so that a full disk changes nothing.

    One that cannot be put back does not keep the others; then OpError, and the manifest stays pending.
    """
    _discard(entries)
    todo = [entry for entry in entries if not _in_place(entry)]
    problem = None
    try:
        for entry in todo:
            _prepare_original(entry, state)
        for entry in todo:
            try:
                if entry["original"]["kind"] == "absent":
                    os.unlink(entry["path"])
                else:
                    os.replace(entry["staged"], entry["path"])
                sync_directory(os.path.dirname(entry["path"]))
            except OSError as error:
                problem = problem or op_error(error, entry["path"])
    finally:
        _discard(todo)
    if problem is not None:
        raise problem


def _discard(entries: list[dict[str, Any]]) -> None:
    """Remove what was prepared and not used."""
    for entry in entries:
        with contextlib.suppress(OSError):
            os.unlink(entry["staged"])


def _manifest(state: State, deploy_id: str, *, finished: bool = True) -> dict[str, Any]:
    """The record of a deploy, {} if there is none. OpError "precondition" if it was interrupted."""
    found = state.read_record("deploys", identifier(deploy_id, "deploy id"), "manifest.json")
    if found is not None and "unreadable" in found:
        raise OpError("missing", f"the record of deploy {deploy_id} is damaged: {found['unreadable']}")
    if finished and found is not None and found.get("pending"):
        raise OpError("precondition", f"deploy {deploy_id} was interrupted: it has to be recovered first")
    return found or {}


def _is_ours_or_original(entry: dict[str, Any], expected: str | None) -> bool:
    """Does the path hold what the deploy wrote, or the original's content again?"""
    try:
        return content_sha256(entry["path"]) in (expected, entry["original"]["sha256"])
    except IsADirectoryError:
        return False


def _save(state: State, manifest: dict[str, Any]) -> None:
    state.write_record(manifest, "deploys", manifest["deploy_id"], "manifest.json")


def _plan(wanted: dict[str, Any], deploy_id: str) -> tuple[dict[str, Any], bytes, bytes | None]:
    """(manifest entry, new content, content now) of one file, its precondition compared. OpError."""
    named = absolute(wanted["path"])
    link = os.path.islink(named)
    path = named if wanted.get("replace_symlink") or not link else os.path.realpath(named)
    original, now = _original(path)
    new = unpack(wanted["z"])
    found = None if now is None else sha256(now)
    if found != wanted.get("expect_sha256") or (now is None and original["kind"] != "absent"):
        expected = wanted.get("expect_sha256")
        message = f"{named}: is not as it was when the change was planned"
        raise OpError("precondition", message, path=named, expected=expected, found=found)
    entry = {
        "named": named,
        "path": path,
        "original": original,
        "after_sha256": sha256(new),
        # Not a name that Python or SGLang's registry of models would import.
        "staged": os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.fixops-{deploy_id}"),
    }
    return entry, new, now


def _check_compiles(wanted: dict[str, Any], new: bytes) -> None:
    if wanted.get("compile"):
        error = compile_source(new, wanted["path"])
        if error is not None:
            message = f"{wanted['path']}: line {error['line']}: {error['message']}"
            raise OpError("compile", message, path=wanted["path"], line=error["line"])


@changes
def write_files(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Replace all of these files or none.

    {deploy_id, files: [{path, z: base64(zlib(content)), expect_sha256 (null: must not exist), mode|null,
    compile: bool, replace_symlink: bool}]}
    -> {files: [{path, real_path, changed, before_sha256, after_sha256 (read back), backup}]}
    The owner is kept, and the mode unless `mode` is given. replace_symlink puts a file in the place of a link
    (a Hugging Face snapshot's: the shared blob stays as it is); without it, what the link leads to is
    replaced. OpError "precondition", "compile", "no-space", "read-only", "permission", ... names the path;
    then everything is as it was before.
    """
    state: State = ctx.state
    manifest = _manifest(state, params["deploy_id"])
    results: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    contents: list[tuple[bytes, int | None]] = []
    for wanted in params["files"]:
        entry, new, now = _plan(wanted, params["deploy_id"])
        _check_compiles(wanted, new)
        before, mode = entry["original"], wanted.get("mode")
        changed = now != new or (before["kind"] == "file" and mode not in (None, before["mode"]))
        backup = state.keep(now) if changed and before["kind"] == "file" and now is not None else None
        hashes = {"before_sha256": before["sha256"], "after_sha256": entry["after_sha256"], "backup": backup}
        results.append({"path": entry["named"], "real_path": entry["path"], "changed": changed, **hashes})
        if changed:
            entries.append(entry)
            contents.append((new, mode))
    if len({entry["path"] for entry in entries}) < len(entries):
        raise OpError("unsupported", "two of the files are the same file")
    if entries:
        new_record = {"deploy_id": params["deploy_id"], "begun": ctx.now(), "files": [], "outcome": None}
        _replace_all(entries, contents, state, {**new_record, **manifest})
    return {"files": results}


def _replace_all(
    entries: list[dict[str, Any]],
    contents: list[tuple[bytes, int | None]],
    state: State,
    manifest: dict[str, Any],
) -> None:
    _save(state, {**manifest, "pending": entries})
    renamed: list[dict[str, Any]] = []
    try:
        for entry, (new, mode) in zip(entries, contents):
            _prepare(entry, new, mode)
        for entry in entries:
            _check_untouched(entry)
        for entry in entries:
            _rename(entry, renamed)
        for entry in entries:
            _check_written(entry)
    except BaseException:
        _discard(entries)
        _put_back(renamed, state)
        _save(state, {**manifest, "pending": None, "outcome": manifest["outcome"] or "undone"})
        raise
    done = {entry["path"]: entry for entry in manifest["files"]}
    for entry in entries:
        first = done.get(entry["path"], entry)[
            "original"
        ]  # a second write of a deploy keeps the first original
        done[entry["path"]] = {**entry, "original": first}
    _save(state, {**manifest, "files": list(done.values()), "pending": None, "outcome": "ok"})


def _check_untouched(entry: dict[str, Any]) -> None:
    """Nobody may have edited it since it was read. Its access time does not count: reading changes it."""
    now, _ = _original(entry["path"])
    if {**now, "atime_ns": None} != {**entry["original"], "atime_ns": None}:
        raise OpError("precondition", f"{entry['path']}: was changed meanwhile", path=entry["path"])


def _check_written(entry: dict[str, Any]) -> None:
    if content_sha256(entry["path"]) != entry["after_sha256"]:
        raise OpError("internal", f"{entry['path']}: does not read back as it was written")


def _rename(entry: dict[str, Any], renamed: list[dict[str, Any]]) -> None:
    try:
        os.replace(entry["staged"], entry["path"])
        renamed.append(entry)
        sync_directory(os.path.dirname(entry["path"]))
    except OSError as error:
        raise op_error(error, entry["path"]) from None


@changes
def restore(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Put back what a deploy replaced, exactly: content, mode, owner, times, link; what it created goes.

    {deploy_id, expect: {path: sha256}|null, force: bool}
    -> {files: [{path, real_path, changed, sha256 (read back)}]}
    OpError "missing" without such a deploy; "precondition" with `files` [{path, expected, found}] when a
    file is neither as the deploy left it (or as `expect` says) nor original, unless `force`. Then nothing
    is changed.
    """
    state: State = ctx.state
    manifest = _manifest(state, params["deploy_id"])
    if not manifest:
        raise OpError("missing", f"there is no record of deploy {params['deploy_id']}")
    expect = params.get("expect") or {}
    todo = [entry for entry in manifest["files"] if not _in_place(entry)]
    moved = []
    for entry in todo:
        wanted = expect.get(entry["path"], expect.get(entry["named"], entry["after_sha256"]))
        if not _is_ours_or_original(entry, wanted):
            found = content_sha256(entry["path"])
            moved.append({"path": entry["named"], "expected": wanted, "found": found})
    if moved and not params.get("force"):
        paths = ", ".join(entry["path"] for entry in moved)
        raise OpError("precondition", f"changed since the deploy: {paths}", files=moved)
    if todo:
        _save(state, {**manifest, "pending": todo})
        _put_back(todo, state)
        _save(state, {**manifest, "pending": None, "outcome": "restored", "restored": ctx.now()})
    return {"files": [_read_back(entry, entry in todo) for entry in manifest["files"]]}


def _read_back(entry: dict[str, Any], changed: bool) -> dict[str, Any]:
    if not _in_place(entry):
        raise OpError("internal", f"{entry['path']}: does not read back as it originally was")
    sha256_now = content_sha256(entry["path"])
    return {"path": entry["named"], "real_path": entry["path"], "changed": changed, "sha256": sha256_now}


@changes
def recover(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{} -> {recovered: [{deploy_id, files: [path]}], foreign: [path]}: end what an interrupted run began.

    The originals of its unfinished write or restore are put back. A file that is neither original nor what
    the run wrote was changed by somebody since: it is left as it is, and named in `foreign`.
    """
    state: State = ctx.state
    recovered = []
    foreign = []
    for deploy_id in state.interrupted():
        manifest = _manifest(state, deploy_id, finished=False)
        entries = manifest["pending"]
        _discard(entries)
        ours = [entry for entry in entries if _is_ours_or_original(entry, entry["after_sha256"])]
        foreign += [entry["named"] for entry in entries if entry not in ours]
        _put_back(ours, state)
        _save(state, {**manifest, "pending": None, "outcome": "recovered", "recovered": ctx.now()})
        recovered.append({"deploy_id": deploy_id, "files": [entry["named"] for entry in ours]})
    return {"recovered": recovered, "foreign": foreign}


OPS = {"write_files": write_files, "restore": restore, "recover": recover}
