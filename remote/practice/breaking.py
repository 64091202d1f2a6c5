"""`inv practice.break`: bring one known fault about, so that one can see the toolkit find it."""

from __future__ import annotations

import difflib
import time

from remote.errors import FixopsError, RefusedError, UsageError
from remote.practice import processes, record
from remote.practice.fault import Fault
from remote.practice.faults import FAULTS
from remote.practice.file_steps import Breaking
from remote.practice.healing import heal_one
from remote.practice.journal import close, save_server
from remote.practice.layout import Layout
from remote.practice.process_steps import running
from remote.practice.record import Record


def break_node(layout: Layout, name: str) -> Fault:
    """Bring the fault about. A fault that fails half-way is undone before the error is raised.

    Raises what `may_break` does, and RefusedError if the fault has no place on this node.
    """
    fault, there = may_break(layout, name)
    folder = layout.faults / name
    folder.mkdir(parents=True)
    folder.joinpath("since").write_text(str(time.time_ns()), encoding="utf-8")
    at = Breaking(layout, there, folder)
    if processes.listener(there.server_port) is not None:
        save_server(folder, running(there.server_port))
    try:
        for step in fault.steps:
            step(at)
    except FixopsError:
        heal_one(layout, there, folder)
        raise
    close(folder)
    return fault


def may_break(layout: Layout, name: str) -> tuple[Fault, Record]:
    """The fault, and the node that it is for. Changes nothing.

    Raises UsageError for an unknown name, RefusedError if the node is not up or a real one, or if the fault
    is in force already.
    """
    fault = FAULTS.get(name)
    if fault is None:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        raise UsageError(
            f"there is no fault '{name}'" + (f", did you mean '{near[0]}'?" if near else ""),
            hint="inv practice.break lists them",
        )
    there = record.require(layout)
    if there.real:
        raise RefusedError(
            "faults are for the simulated practice node, and this one is real",
            hint="break it by hand, as docs/practice-real.md shows",
        )
    if layout.faults.joinpath(name).exists():
        raise RefusedError(f"the fault '{name}' is in force already", hint="inv practice.heal")
    return fault, there


def in_force(layout: Layout) -> list[str]:
    """The names of the faults that have not been healed."""
    return sorted(path.name for path in layout.faults.glob("*"))
