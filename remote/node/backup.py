"""Replace files so that all of them are new or all of them are old, whenever the process dies.

The order is what makes it so. 1. Originals are kept under their hashes. 2. The manifest names every file, how
to put it back and where its new content is prepared: `pending`. 3. New contents are prepared beside their
targets, synced, compiled. 4. Preconditions are compared once more. 5. Renames. 6. Read back. 7. The manifest
says that it is done. A process that dies between 2 and 7 leaves `pending` behind, and `recover` of
rollback.py puts the originals back. A pending restore is finished the same way: both lead to the originals.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH101, PTH105, PTH110, PTH114, PTH116, PTH118, PTH119, PTH120

from __future__ import annotations

import os
import stat as stat_bits

from . import originals
from .base import OpError, changes
from .bytecode import compile_source, unpack
from .fsio import absolute, content_sha256, op_error, sha256, sync_directory, write_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context
    from .state import State


def _prepare(entry: dict[str, Any], data: bytes, mode: int | None) -> None:
    """Write the new content beside its target, with the owner, mode and attributes of what it replaces.
    OpError."""
    path, staged = entry["path"], entry["staged"]
    try:
        write_new(staged, data, 0o644)
        if os.path.exists(path):
            info = os.stat(path)  # of the file behind a link, too
            owner = {"uid": info.st_uid, "gid": info.st_gid, "mode": stat_bits.S_IMODE(info.st_mode)}
            originals.dress(staged, {**owner, "xattrs": originals.attributes(path)}, times=False)
        if mode is not None:
            os.chmod(staged, mode)
    except OSError as error:
        raise op_error(error, path) from None


def _plan(wanted: dict[str, Any], deploy_id: str) -> tuple[dict[str, Any], bytes, bytes | None]:
    """(manifest entry, new content, content now) of one file, its precondition compared. OpError."""
    named = absolute(wanted["path"])
    link = os.path.islink(named)
    path = named if wanted.get("replace_symlink") or not link else os.path.realpath(named)
    original, now = originals.look(path)
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

    {deploy_id, about: what the manifest is to say besides,
     files: [{path, z: base64(zlib(content)), expect_sha256 (null: must not exist), mode|null,
              compile: bool, replace_symlink: bool}]}
    -> {files: [{path, real_path, changed, before_sha256, after_sha256 (read back), backup}]}
    The owner is kept, and the mode unless `mode` is given. replace_symlink puts a file in the place of a link
    (a Hugging Face snapshot's: the shared blob stays as it is); without it, what the link leads to is
    replaced. OpError "precondition", "compile", "no-space", "read-only", "permission", ... names the path;
    then everything is as it was before.
    """
    state: State = ctx.state
    manifest = originals.manifest_of(state, params["deploy_id"])
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
        new_record["about"] = params.get("about") or {}
        _replace_all(entries, contents, state, {**new_record, **manifest})
    return {"files": results}


def _replace_all(
    entries: list[dict[str, Any]],
    contents: list[tuple[bytes, int | None]],
    state: State,
    manifest: dict[str, Any],
) -> None:
    originals.save(state, {**manifest, "pending": entries})
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
        originals.discard(entries)
        originals.put_back(renamed, state)
        originals.save(state, {**manifest, "pending": None, "outcome": manifest["outcome"] or "undone"})
        raise
    done = {entry["path"]: entry for entry in manifest["files"]}
    for entry in entries:
        # A second write of a deploy keeps the first original.
        first = done.get(entry["path"], entry)["original"]
        done[entry["path"]] = {**entry, "original": first}
    originals.save(state, {**manifest, "files": list(done.values()), "pending": None, "outcome": "ok"})


def _check_untouched(entry: dict[str, Any]) -> None:
    """Nobody may have edited it since it was read. Its access time does not count: reading changes it."""
    now, _ = originals.look(entry["path"])
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


OPS = {"write_files": write_files}
