"""What files are there: hashes, owners, times, links, and what the package's RECORD says of them."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH114, PTH116, PTH118, PTH120, PTH208

from __future__ import annotations

import binascii
import errno
import os
import stat

from .base import OpError
from .fsio import absolute, op_error, read_bytes, sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

TEXT_LIMIT = 256 * 1024
MAX_LINKS = 40  # as many as Linux follows (path_resolution(7))
# What comes into a directory or goes from it sets both of its times, on some network file systems not to
# exactly the same.
SAME_CHANGE_NS = 1_000_000_000


def describe(path: str) -> tuple[dict[str, Any], bytes]:
    """The facts of one file, and its content (empty if there is none). Links are followed. OpError.

    `ctime_ns`: when the file changed, or a link on the way to it, in any part of the path: a link that was
    led elsewhere gives another file, whose own change may be long ago.
    """
    target = None
    try:
        if os.path.islink(path):
            target = os.readlink(path)
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        nothing = dict.fromkeys(("sha256", "size", "mode", "uid", "gid", "mtime_ns", "ctime_ns"))
        absent = {"exists": False, **nothing, "real_path": os.path.realpath(path), "symlink": target}
        return {**absent, "writable": replaceable(path)}, b""
    except OSError as error:
        raise op_error(error, path) from None
    if not stat.S_ISREG(info.st_mode):
        raise OpError("unsupported", f"{path}: not a regular file", path=path)
    try:
        data = read_bytes(path)
        real_path, links = resolve(path)
    except OSError as error:
        raise op_error(error, path) from None
    return {
        "exists": True,
        "sha256": sha256(data),
        "size": len(data),
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "mtime_ns": info.st_mtime_ns,
        "ctime_ns": changed_ns(info, links),
        "real_path": real_path,
        "symlink": target,
        "writable": replaceable(path),
    }, data


def changed_ns(info: os.stat_result, links: list[os.stat_result]) -> int:
    """When a file changed, or one of the links on the way to it."""
    return max([info.st_ctime_ns, *(link.st_ctime_ns for link in links)])


def resolve(path: str) -> tuple[str, list[os.stat_result]]:
    """The real path of what an absolute `path` leads to, and each link on the way. Raises OSError."""
    links: list[os.stat_result] = []
    real, rest = "/", path.split("/")[::-1]
    while rest:
        name = rest.pop()
        if name in ("", ".", ".."):
            real = os.path.dirname(real) if name == ".." else real
            continue
        here = os.path.join(real, name)
        info = os.lstat(here)
        if not stat.S_ISLNK(info.st_mode):
            real = here
            continue
        links.append(info)
        if len(links) > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(here)
        real = "/" if target.startswith("/") else real
        rest += target.split("/")[::-1]
    return real, links


def moved_ns(directory: str) -> int:
    """When a directory got its name, in ns; 0 where that cannot be told. Raises OSError.

    A rename sets its change time and not its modification time. Neither do a change of its mode or owner,
    which counts as one. What came into it or went from it afterwards hides the rename.
    """
    info = os.stat(directory)
    return info.st_ctime_ns if info.st_ctime_ns - info.st_mtime_ns > SAME_CHANGE_NS else 0


def replaceable(path: str) -> bool:
    """Could a file be renamed over what `path` leads to? (Not told: an immutable file, a mount point.)"""
    return os.access(os.path.dirname(os.path.realpath(path)), os.W_OK | os.X_OK)


def _failed(error: OpError) -> dict[str, Any]:
    return {"error": {"kind": error.kind, "message": error.message}}


def files(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{root, paths: [relative]} -> {path: facts of describe() and `record_sha256`} | {path: {error}}."""
    root = absolute(params["root"])
    recorded = record_hashes(root, params["paths"])
    found: dict[str, Any] = {}
    for path in params["paths"]:
        try:
            facts, _ = describe(os.path.join(root, path))
            found[path] = {**facts, "record_sha256": recorded.get(path)}
        except OpError as error:
            found[path] = _failed(error)
    return found


def record_hashes(root: str, paths: list[str]) -> dict[str, str]:
    """What RECORD below `root` says of each path, as hex; left out where it says nothing or two things.

    RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/ . More than
    one belongs to a package when an older version's folder was left behind.
    """
    said: dict[str, set[str | None]] = {}
    packages = {path.partition("/")[0] for path in paths}
    for package in sorted(packages):
        for folder in dist_infos(root, package):
            try:
                text = "\n" + read_bytes(os.path.join(folder, "RECORD")).decode("utf-8", "replace")
            except OSError:
                continue
            for path in paths:
                marker = f"\n{path},sha256="
                at = text.find(marker)
                if at < 0:
                    continue
                digest = text[at + len(marker) :].partition(",")[0].replace("-", "+").replace("_", "/")
                said.setdefault(path, set()).add(_hex(digest))
    agreed = {path: hashes.pop() for path, hashes in said.items() if len(hashes) == 1}
    return {path: digest for path, digest in agreed.items() if digest is not None}


def _hex(digest: str) -> str | None:
    """A SHA-256 in base64 as hex, None if it is not one."""
    try:
        data = binascii.a2b_base64(digest + "==")
    except ValueError:
        return None
    return data.hex() if len(data) == 32 else None


def dist_infos(root: str, package: str) -> list[str]:
    """A distribution's metadata folders in a directory of sys.path, e.g. [".../sglang-0.5.9.dist-info"]."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    wanted = package.replace("-", "_").lower()
    return [
        os.path.join(root, name)
        for name in sorted(names)
        if name.endswith(".dist-info") and name.partition("-")[0].lower() == wanted
    ]


def configs(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{paths: [absolute]} -> {path: facts of describe(), `text` and `problem`} | {path: {error}}.

    `text`: null for no file, and where `problem` says why: no UTF-8, more than 256 kB. `ctime_ns` is
    also that of a rename of the model's directory, the usual way to put another model in its place. Not of
    those above it; and not for source files: below a container's image, a directory's times are those of a
    rename when bytecode is written in it.
    """
    found: dict[str, Any] = {}
    for path in params["paths"]:
        try:
            facts, data = describe(absolute(path))
            if facts["exists"]:
                facts["ctime_ns"] = max(facts["ctime_ns"], moved_ns(os.path.dirname(path)))
        except OpError as error:
            found[path] = _failed(error)
            continue
        except OSError as error:
            found[path] = _failed(op_error(error, path))
            continue
        text, problem = _text(data) if facts["exists"] else (None, None)
        found[path] = {**facts, "text": text, "problem": problem}
    return found


def _text(data: bytes) -> tuple[str | None, str | None]:
    """The text, or why there is none. Nothing is replaced in it: what is edited is written back whole."""
    if len(data) > TEXT_LIMIT:
        return None, f"{len(data)} bytes are more than {TEXT_LIMIT}"
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        return None, f"byte {error.start + 1} is not UTF-8"


def read_files(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{paths: [absolute], max_bytes} -> {path: {sha256, z: base64(zlib(content))} | {error}}."""
    limit = int(params.get("max_bytes") or (8 << 20))
    found: dict[str, Any] = {}
    for path in params["paths"]:
        try:
            found[path] = _packed(absolute(path), limit)
        except OpError as error:
            found[path] = _failed(error)
    return found


def _packed(path: str, limit: int) -> dict[str, Any]:
    import zlib

    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise op_error(error, path) from None
    if size > limit:
        raise OpError("unsupported", f"{path}: {size} bytes are more than {limit}", path=path)
    facts, data = describe(path)
    return {
        "sha256": facts["sha256"],
        "z": binascii.b2a_base64(zlib.compress(data, 6), newline=False).decode(),
    }


OPS = {"facts.files": files, "facts.configs": configs, "read_files": read_files}
