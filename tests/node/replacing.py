"""What the tests of replacing files share: requests, and all that "exactly back" means."""

from __future__ import annotations

import base64
import hashlib
import stat
import zlib
from pathlib import Path
from typing import Any

from remote.node import backup, rollback
from tests.node.kit import Probe


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wanted(path: Path, new: bytes, **changes: Any) -> dict[str, Any]:
    """One file of a request, its precondition taken from what is there."""
    expect = digest(path.read_bytes()) if path.is_file() else None
    packed = base64.b64encode(zlib.compress(new)).decode()
    return {
        "path": str(path),
        "z": packed,
        "expect_sha256": expect,
        "mode": None,
        "compile": path.suffix == ".py",
        "replace_symlink": False,
        **changes,
    }


def write(probe: Probe, *files: dict[str, Any], deploy_id: str = "d1") -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = backup.write_files(
        {"deploy_id": deploy_id, "files": list(files)}, probe.ctx
    )["files"]
    return result


def restore(probe: Probe, deploy_id: str = "d1", **params: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = rollback.restore({"deploy_id": deploy_id, **params}, probe.ctx)["files"]
    return result


def stands(probe: Probe, deploy_id: str = "d1") -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = rollback.replaced({"deploy_id": deploy_id}, probe.ctx)["files"]
    return result


def snapshot(directory: Path) -> dict[str, Any]:
    """All that "exactly back" means, of everything below a directory; times not of folders."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        info = path.lstat()
        content: Any = (
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        )
        times = None if stat.S_ISDIR(info.st_mode) else info.st_mtime_ns
        found[str(path)] = (info.st_mode, info.st_uid, info.st_gid, times, content)
    return found
