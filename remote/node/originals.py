"""How replaced files stood, and how they come back: prepared beside their targets, then renamed.

A manifest entry: {named: as it was asked for, path: what is replaced, original: see look(), after_sha256,
staged: where the content is prepared}.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH101, PTH105, PTH108, PTH113, PTH120, PTH211

from __future__ import annotations

import contextlib
import os
import stat as stat_bits

from .base import OpError
from .fsio import content_sha256, identifier, op_error, read_bytes, sha256, sync_directory, write_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .state import State


def look(path: str) -> tuple[dict[str, Any], bytes | None]:
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
            digest = None if data is None else sha256(data)
            return {"kind": "symlink", "target": target, "sha256": digest, **owner}, data
        if stat_bits.S_ISREG(info.st_mode):
            data = read_bytes(path)
            return {"kind": "file", "sha256": sha256(data), **owner, "xattrs": attributes(path)}, data
    except OSError as error:
        raise op_error(error, path) from None
    raise OpError("unsupported", f"{path}: neither a file nor a link to one", path=path)


def attributes(path: str) -> dict[str, str]:
    """A file's access control list, and what its owner noted on it, in hex. {} where a file system has none.

    Labels (security.*) are left out: the kernel gives those.
    """
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listxattr(path):
            if name == "system.posix_acl_access" or name.startswith("user."):
                found[name] = os.getxattr(path, name).hex()
    return found


def dress(path: str, original: dict[str, Any], *, times: bool) -> None:
    """Give a prepared file or link its owner, attributes, mode and, to put an original back, times.

    Raises OSError. An older record has no attributes.
    """
    info = os.lstat(path)
    if (info.st_uid, info.st_gid) != (original["uid"], original["gid"]):
        os.chown(path, original["uid"], original["gid"], follow_symlinks=False)
    if not stat_bits.S_ISLNK(info.st_mode):
        if "xattrs" in original:
            for name in attributes(path):  # its directory may give it some
                os.removexattr(path, name)
            for name, value in original["xattrs"].items():
                os.setxattr(path, name, bytes.fromhex(value))
        os.chmod(path, original["mode"])
    if times:
        os.utime(path, ns=(original["atime_ns"], original["mtime_ns"]), follow_symlinks=False)


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
        dress(staged, original, times=True)
    except OSError as error:
        raise op_error(error, entry["path"]) from None


def in_place(entry: dict[str, Any]) -> bool:
    """Is `path` as it originally was, as far as that shows: kind, content or target, mode, owner, time,
    attributes?"""
    now, _ = look(entry["path"])
    wanted = entry["original"]
    keys = [
        "kind",
        "uid",
        "gid",
        "mtime_ns",
        *(["target"] if wanted["kind"] == "symlink" else ["sha256", "mode"]),
        *(["xattrs"] if "xattrs" in wanted else []),
    ]
    return all(now.get(key) == wanted.get(key) for key in keys)


def put_back(entries: list[dict[str, Any]], state: State) -> None:
    """All of them are prepared before the first is renamed, so that a full disk changes nothing.

    One that cannot be put back does not keep the others; then OpError, and the manifest stays pending.
    """
    discard(entries)
    todo = [entry for entry in entries if not in_place(entry)]
    problem, back = None, 0
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
                back += 1
            except OSError as error:
                problem = problem or op_error(error, entry["path"])
    finally:
        discard(todo)
    if problem is not None:
        told = (
            f"{problem.message}; {back} of {len(todo)} files are put back, the next command goes on with it"
        )
        raise OpError(problem.kind, told, **problem.data)


def lost(entries: list[dict[str, Any]], state: State) -> list[dict[str, Any]]:
    """Those that cannot be put back, because their original is gone or damaged."""
    found = []
    for entry in entries:
        if entry["original"]["kind"] == "file" and not in_place(entry):
            try:
                state.kept(entry["original"]["sha256"])
            except OpError:
                found.append(entry)
    return found


def discard(entries: list[dict[str, Any]]) -> None:
    """Remove what was prepared and not used."""
    for entry in entries:
        with contextlib.suppress(OSError):
            os.unlink(entry["staged"])


def manifest_of(state: State, deploy_id: str, *, finished: bool = True) -> dict[str, Any]:
    """The record of a deploy, {} if there is none. OpError "precondition" if it was interrupted."""
    found = state.read_record("deploys", identifier(deploy_id, "deploy id"), "manifest.json")
    if found is not None and "unreadable" in found:
        raise OpError("missing", f"the record of deploy {deploy_id} is damaged: {found['unreadable']}")
    if finished and found is not None and found.get("pending"):
        raise OpError("precondition", f"deploy {deploy_id} was interrupted: it has to be recovered first")
    return found or {}


def is_ours_or_original(entry: dict[str, Any], expected: str | None) -> bool:
    """Does the path hold what the deploy wrote, or the original's content again?"""
    try:
        return content_sha256(entry["path"]) in (expected, entry["original"]["sha256"])
    except IsADirectoryError:
        return False


def save(state: State, manifest: dict[str, Any]) -> None:
    state.write_record(manifest, "deploys", manifest["deploy_id"], "manifest.json")
