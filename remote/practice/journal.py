"""What a fault replaced on the practice node, so that it can be put back: one folder per fault in force.

Written before each step, so that a break that was interrupted heals as well. Files are put back exactly
(content, mode, times, link target, absence), but only while they still are as the fault left them:
what somebody repaired or changed since is theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remote.practice.processes import Known
from remote.practice.spawn import Spec


@dataclass(frozen=True)
class Running:
    """A server as it ran: enough to start it again (`how.log` is the real file of its standard output)."""

    process: Known
    how: Spec


@dataclass(frozen=True)
class Entry:
    """One thing to undo. Exactly one of the three is set."""

    path: str | None = None
    before: dict[str, Any] | None = None
    started: Known | None = None
    server: Running | None = None


def save_path(folder: Path, path: Path) -> None:
    """Remember a file, link or absence before it is changed. A directory: its mode only."""
    before = _state(path)
    if before["kind"] == "absent":
        before["without"] = [str(folder) for folder in path.parents if not folder.exists()]
    if "sha256" in before:
        blob = folder / "blobs" / before["sha256"]
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(_content(path))
    _append(folder, Entry(path=str(path), before=before))


def save_started(folder: Path, process: Known) -> None:
    """Remember a process that the fault started, with all of its session: healing ends them."""
    _append(folder, Entry(started=process))


def save_server(folder: Path, running: Running) -> None:
    """Remember the server before it is ended or disturbed: healing starts it again if none is there."""
    _append(folder, Entry(server=running))


def close(folder: Path) -> None:
    """The fault is in force: note how it left the files."""
    left = {entry.path: _state(Path(entry.path)) for entry in entries(folder) if entry.path}
    folder.joinpath("after.json").write_text(json.dumps(left, indent=2), encoding="utf-8")


def entries(folder: Path) -> list[Entry]:
    """What the fault did, in order."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in folder.joinpath("journal.jsonl").read_text(encoding="utf-8").splitlines():
            stored = json.loads(line)
            started, server = stored["started"], stored["server"]
            if server is not None:
                server = Running(Known(**server["process"]), Spec(**server["how"]))
            found.append(
                Entry(
                    path=stored["path"],
                    before=stored["before"],
                    started=None if started is None else Known(**started),
                    server=server,
                )
            )
    return found


def server(folder: Path) -> Running | None:
    """The server that ran before the fault: the last one noted."""
    return next((entry.server for entry in reversed(entries(folder)) if entry.server is not None), None)


def restore_paths(folder: Path) -> tuple[list[str], list[str]]:
    """Put back what the fault changed: (paths put back, paths left because somebody changed them since)."""
    after = {}
    with contextlib.suppress(FileNotFoundError):
        after = json.loads(folder.joinpath("after.json").read_text(encoding="utf-8"))
    restored, kept = [], []
    for entry in reversed(entries(folder)):
        if entry.path is None or entry.before is None:
            continue
        path = Path(entry.path)
        now = _state(path)
        if entry.path in after and not _same(now, after[entry.path]):
            if not _same(now, entry.before):
                kept.append(entry.path)
            continue
        _put_back(folder, path, entry.before)
        restored.append(entry.path)
    return restored, kept


def _append(folder: Path, entry: Entry) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with folder.joinpath("journal.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry)) + "\n")


def _state(path: Path) -> dict[str, Any]:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "absent"}
    common = {"mode": stat.S_IMODE(found.st_mode), "times_ns": [found.st_atime_ns, found.st_mtime_ns]}
    if path.is_symlink():
        return {"kind": "link", "target": str(path.readlink())}
    if path.is_dir():
        return {"kind": "directory", **common}
    digest = hashlib.sha256(_content(path)).hexdigest()
    return {"kind": "file", "sha256": digest, "size": found.st_size, **common}


def _content(path: Path) -> bytes:
    """The file without the hole at its end: weights are gigabytes of nothing behind a short header."""
    with path.open("rb") as file:
        data_ends = file.seek(0, os.SEEK_HOLE) if path.stat().st_size else 0
        file.seek(0)
        return file.read(data_ends)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Equal but for the times, which reading may change."""
    return all(one.get(key) == other.get(key) for key in ("kind", "target", "mode", "sha256", "size"))


def _put_back(folder: Path, path: Path, before: dict[str, Any]) -> None:
    if before["kind"] == "directory":
        path.chmod(before["mode"])
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    if before["kind"] == "absent":
        path.unlink(missing_ok=True)
        for made in before["without"]:
            with contextlib.suppress(OSError):
                Path(made).rmdir()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.heal")
    if before["kind"] == "link":
        beside.symlink_to(before["target"])
    else:
        shutil.copyfile(folder / "blobs" / before["sha256"], beside)
        os.truncate(beside, before["size"])
        beside.chmod(before["mode"])
        os.utime(beside, ns=(before["times_ns"][0], before["times_ns"][1]))
    beside.replace(path)
