"""Reading and writing files so that a crash leaves the old or the new one, never a part."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH105, PTH108, PTH117, PTH120, PTH123

from __future__ import annotations

import errno
import os
import re

from .base import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KINDS = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ENOSPC: "no-space",
    errno.EDQUOT: "no-space",
    errno.EFBIG: "no-space",
    errno.EROFS: "read-only",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EEXIST: "unsupported",
    errno.EISDIR: "unsupported",
    errno.ELOOP: "unsupported",
    errno.EBUSY: "unsupported",
    errno.ENAMETOOLONG: "unsupported",
    errno.EIO: "unsupported",  # of a disk or a network share, and no fault of this code
    errno.ESTALE: "unsupported",
}
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def op_error(error: OSError, path: str) -> OpError:
    """The OpError that names `path` and says why, as the kernel said it."""
    kind = _KINDS.get(error.errno or 0, "internal")
    reason = error.strerror or type(error).__name__
    if error.errno == errno.EBUSY:
        reason += " (a mount point cannot be replaced)"
    if error.errno == errno.EPERM and os.geteuid() == 0:
        kind, reason = "unsupported", reason + " to root either (is it immutable? lsattr shows it)"
    return OpError(kind, f"{path}: {reason}", path=path, errno=errno.errorcode.get(error.errno or 0))


def identifier(value: Any, what: str) -> str:
    """`value` when it can be a file name of ours. OpError "precondition" otherwise."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise OpError("precondition", f"not a usable {what}: {value!r}")
    return value


def absolute(path: Any) -> str:
    """`path` when it is an absolute path. OpError "precondition" otherwise."""
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise OpError("precondition", f"not an absolute path: {path!r}")
    return path


def sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def read_bytes(path: str, limit: int | None = None) -> bytes:
    """The whole content, or its first `limit` bytes. Raises OSError."""
    with open(path, "rb") as file:
        return file.read() if limit is None else file.read(limit)


def content_sha256(path: str) -> str | None:
    """Of the regular file that `path` leads to; None when there is none. Raises OSError otherwise."""
    try:
        return sha256(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def sync_directory(path: str) -> None:
    """Make the directory's entries (a rename, an unlink) durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_new(path: str, data: bytes, mode: int = 0o600) -> None:
    """Create `path`, which must not exist, durably. Leaves nothing behind on failure. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fchmod(handle, mode)
            os.fsync(handle)
        finally:
            os.close(handle)
    except BaseException:
        os.unlink(path)
        raise


def replace(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write beside, sync, rename: a reader sees the old content or the new. Raises OSError."""
    beside = f"{path}.new"
    if os.path.lexists(beside):  # left by a process that died; the lock keeps a living one out
        os.unlink(beside)
    write_new(beside, data, mode)
    os.replace(beside, path)
    sync_directory(os.path.dirname(path))
