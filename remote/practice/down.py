"""Take the practice node away: its processes by evidence, then its directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from remote.errors import RefusedError
from remote.practice import processes, record
from remote.practice.layout import Layout
from remote.practice.ssh_server import SshServer, is_running
from remote.practice.ssh_server import stop as stop_ssh


@dataclass(frozen=True)
class Down:
    """`ended` are (pid, title) of the processes; `removed` is false if there was no directory.

    From `plan` they are those that would be ended, and whether the directory would be removed.
    """

    root: Path
    ended: tuple[tuple[int, str], ...]
    removed: bool


def down(layout: Layout) -> Down:
    """End the node's processes, read back that they are gone, then remove the directory.

    Raises LockedError while it is being made, RefusedError when the directory is no practice node, or when
    a process does not end.
    """
    ssh = _ssh_of(layout)
    ended: dict[int, str] = {}
    if ssh is not None:
        # First, with its connections: nobody starts anything over it any more.
        title = processes.title(ssh.pid)
        if stop_ssh(ssh):
            ended[ssh.pid] = title
    # A process that was just being started when the list was made turns up in the next one.
    while found := processes.of(layout):
        titles = {entry.pid: processes.title(entry.pid) for entry in found}
        left = processes.end(found)
        ended.update(titles)
        if left:
            raise RefusedError(
                f"pid {', '.join(str(entry.pid) for entry in left)} of the practice node cannot be ended",
                hint="end it by hand, then inv practice.down again",
            )
    removed = layout.root.exists()
    if removed:
        _remove(layout)
    return Down(layout.root, tuple(sorted(ended.items())), removed)


def plan(layout: Layout) -> Down:
    """What `down` would end and remove. Raises what it raises before it begins, and changes nothing."""
    ssh = _ssh_of(layout)
    found = {entry.pid for entry in processes.of(layout)}
    if ssh is not None and is_running(ssh):
        found.add(ssh.pid)
    return Down(
        layout.root, tuple((pid, processes.title(pid)) for pid in sorted(found)), layout.root.exists()
    )


def _ssh_of(layout: Layout) -> SshServer | None:
    """The node's SSH server, None where the node was never finished. Refuses what is no practice node."""
    if layout.root.exists() and not layout.node_json.exists() and any(layout.root.iterdir()):
        raise RefusedError(
            f"{layout.root} is not a practice node: it has no {layout.node_json.name}",
            hint="remove it by hand if it is yours",
        )
    with contextlib.suppress(RefusedError):
        stored = record.read(layout)
        if stored is not None:
            return stored.ssh
    return None


def _remove(layout: Layout) -> None:
    # A fault may have taken the permissions from a directory.
    for folder, names, _ in os.walk(layout.root):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink() and path.stat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
                path.chmod(stat.S_IRWXU)
    # The record goes last: an interrupted removal is still a practice node, and can be taken up again.
    for path in sorted(layout.root.iterdir(), key=lambda path: path == layout.node_json):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    layout.root.rmdir()
