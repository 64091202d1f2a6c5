"""`inv practice.heal`: put back what faults replaced, end what they started, start what they ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from remote.errors import UsageError
from remote.node import procfs
from remote.practice import journal, processes, record, server
from remote.practice.journal import Running
from remote.practice.layout import Layout
from remote.practice.process_steps import WAIT_S, running, session
from remote.practice.processes import Known
from remote.practice.record import Record


@dataclass(frozen=True)
class Healed:
    """`kept` names what was changed since the fault by somebody else, and was therefore left as it is."""

    fault: str
    restored: tuple[str, ...]
    kept: tuple[str, ...]
    ended: tuple[int, ...]
    server_pid: int | None


def heal(layout: Layout, name: str = "") -> list[Healed]:
    """Heal one fault, or all that are in force, the newest first. Raises what `to_heal` does.

    Files come before servers, because a server starts only on files that are right.
    """
    there, folders = record.require(layout), to_heal(layout, name)
    begun = [_undo(layout, folder) for folder in folders]
    done = [
        _finish(layout, there, folder, healed, older=folders[number + 1 :])
        for number, (folder, healed) in enumerate(zip(folders, begun, strict=True))
    ]
    if any(_is_read_at_start(layout, path) for healed in done for path in healed.restored):
        layout.restart_due.touch()
    if restart_is_due(layout):
        _restart(layout, there)
        layout.restart_due.unlink()
    return done


def to_heal(layout: Layout, name: str = "") -> list[Path]:
    """The folders of the faults that `heal` would heal, in this order. Changes nothing.

    RefusedError without a practice node, UsageError for a fault that is not in force.
    """
    record.require(layout)
    folders = sorted(layout.faults.glob("*"), key=_since, reverse=True)
    if name:
        folders = [folder for folder in folders if folder.name == name]
        if not folders:
            raise UsageError(f"the fault '{name}' is not in force", hint="inv practice.break shows which are")
    return folders


def restart_is_due(layout: Layout) -> bool:
    """Is nothing broken any more, and the server older than files that were healed?"""
    return layout.restart_due.exists() and not any(layout.faults.glob("*"))


def heal_one(layout: Layout, there: Record, folder: Path) -> Healed:
    """Undo the one fault that keeps its journal in `folder`, and forget it."""
    return _finish(layout, there, folder, _undo(layout, folder), older=[])


def _undo(layout: Layout, folder: Path) -> Healed:
    ended = []
    for entry in journal.entries(folder):
        if entry.started is not None:
            members = session(layout, entry.started.pid)
            ended += [each.pid for each in members]
            processes.end(members)
    restored, kept = journal.restore_paths(folder)
    return Healed(folder.name, tuple(restored), tuple(kept), tuple(ended), None)


def _finish(layout: Layout, there: Record, folder: Path, healed: Healed, *, older: list[Path]) -> Healed:
    """Bring the server back that ran before the fault, and forget the fault.

    Not if it was one that an older fault, healed in the same go, had put there; and not while a newer fault
    is in force that ended it, too: healing that one brings it back.
    """
    was = journal.server(folder)
    if was is not None and not any(_began(each, was.process) for each in older):
        newer = [each for each in layout.faults.glob("*") if _since(each) > _since(folder)]
        ended_by = [each for each in newer if _ended_server(each)]
        if not ended_by:
            healed = replace(healed, server_pid=_server_back(layout, there, was))
        for each in ended_by:
            theirs = journal.server(each)
            if theirs is not None and _began(folder, theirs.process):
                journal.save_server(each, was)
    shutil.rmtree(folder)
    return healed


def _ended_server(folder: Path) -> bool:
    was = journal.server(folder)
    return was is not None and not processes.alive(was.process)


def _is_read_at_start(layout: Layout, path: str) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in (layout.site_packages, layout.draft))


def _restart(layout: Layout, there: Record) -> None:
    """Start the server anew, so that it is younger than the files that were put back.

    A file's time of change cannot be put back: whoever compares it with the server's start would rightly say
    that the server may have read something else.
    """
    if processes.listener(there.server_port) is None:
        return
    was = running(there.server_port)
    processes.end(session(layout, was.process.pid))
    _start_again(layout, was)


def _server_back(layout: Layout, there: Record, was: Running) -> int | None:
    """The server that listens afterwards: the same, one that somebody started since, or a new one."""
    if processes.alive(was.process):
        for member in session(layout, was.process.pid):
            processes.send(member, signal.SIGCONT)
        return was.process.pid
    listener = processes.listener(there.server_port)
    if listener is not None:
        return listener
    processes.end(session(layout, was.process.pid))
    return _start_again(layout, was)


def _start_again(layout: Layout, was: Running) -> int:
    """Start the server as it was, in the place of the one that the toolkit started last, if it started any.

    It writes to that boot's log and that boot's record names it: what somebody restarted on broken files, and
    what then died, is healed too.
    """
    boots = _boots(layout)
    placed = any(boot["log"] == was.how.log for boot in boots.values())
    last = max(boots, key=lambda path: boots[path]["begun"]) if placed else None
    log = boots[last]["log"] if last else was.how.log
    started = server.start(layout, replace(was.how, env=server.quick(layout, was.how.env), log=log))
    server.wait_ready(started, timeout_s=WAIT_S)
    for folder in layout.faults.glob("*"):
        if _began(folder, was.process):
            journal.save_started(folder, started.process)
    if last:
        now = started.process
        start_time = procfs.start_time(now.starttime_ticks)
        text = json.dumps({**boots[last], **asdict(now), "start_time": start_time})
        beside = last.with_name(f".{last.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(last)
    return started.process.pid


def _boots(layout: Layout) -> dict[Path, dict[str, Any]]:
    """The toolkit's records of the servers that it started on the node (remote/node/server.py)."""
    found = {}
    for path in layout.state_dir.glob("boots/*/boot.json"):
        with contextlib.suppress(OSError, ValueError):
            stored = json.loads(path.read_text(encoding="utf-8"))
            if {"log", "begun", "pid", "starttime_ticks"} <= set(stored):
                found[path] = stored
    return found


def _began(folder: Path, process: Known) -> bool:
    return any(entry.started == process for entry in journal.entries(folder))


def _since(folder: Path) -> int:
    try:
        return int(folder.joinpath("since").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
