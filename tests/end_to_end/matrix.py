"""Faults brought about on a deployed node, alone or together: what each check must say, and what heals."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remote.checks import Check, exit_code
from remote.errors import FixopsError
from remote.practice import processes
from remote.practice.breaking import break_node, in_force
from remote.practice.build import FIXED, bytecode_path
from remote.practice.fault import CONNECT, Fault
from remote.practice.healing import heal
from remote.practice.layout import Layout
from remote.practice.process_steps import ranks
from remote.proofs.process import NO_SERVER
from tests.end_to_end.kit import QUICK, Practice
from tools import faults_page

WORST_LAST = ("skip", "pass", "unknown", "fail")


@dataclass(frozen=True)
class Healthy:
    """A node with the fix on it, and what is seen of it."""

    practice: Practice
    layout: Layout
    verdicts: dict[str, str]
    files: dict[str, str | None]
    server: dict[str, Any]


def deployed(practice: Practice) -> Iterator[Healthy]:
    """For a fixture: the node after a deploy, with servers that come up and answer as fast as they can."""
    practice.deploy()
    layout = Layout(practice.root)
    settings = json.loads(layout.first_settings.read_text())
    layout.first_settings.write_text(json.dumps({**settings, "health_s": QUICK}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIXOPS_PRACTICE_DIR", str(practice.root))
        found = faults_page.look(practice.root)
        assert found.exit_code == 0, found.checks
        yield Healthy(practice, layout, verdicts(found.checks), files(layout), server(practice.server_port))


def verdicts(checks: Sequence[Check]) -> dict[str, str]:
    return {check.id: check.verdict for check in checks}


def expected(healthy: Healthy, faults: Sequence[Fault]) -> dict[str, str]:
    """Of each check the worst that one of the faults does to it, else what it says of a healthy node."""
    found = dict(healthy.verdicts)
    for fault in faults:
        for check, verdict in fault.verdicts.items():
            found[check] = max(found[check], verdict, key=WORST_LAST.index)
    return found


def of_this_node(healthy: Healthy, checks: Sequence[Check]) -> list[Check]:
    """Without what other practice nodes on this machine have left behind.

    Real nodes share no processes. On these, ranks of another node whose launcher is gone can be told from
    ours by the GPUs that they hold alone, and some faults are about not seeing the GPUs.
    """
    ours = healthy.practice.sglang()
    return [
        check
        for check in checks
        if check.id != "process.single"
        or check.verdict != "fail"
        or check.observed == NO_SERVER
        or any(int(each.source.removeprefix("/proc/")) in ours for each in check.evidence)
    ]


def check(healthy: Healthy, *faults: Fault) -> None:
    """Bring faults about; each check must say what the table says, and after the heal all is as before."""
    layout = healthy.layout
    wanted = expected(healthy, faults)
    try:
        for fault in faults:
            break_node(layout, fault.name)
        assert in_force(layout) == sorted(fault.name for fault in faults)
        mine = of_this_node(healthy, faults_page.look(layout.root).checks)
        told = faults_page.said(layout, faults_page.ports_of(layout), mine)
    finally:
        healed = heal(layout)
    assert {**healthy.verdicts, **verdicts(mine)} == wanted, told
    assert exit_code(mine) == (7 if "fail" in wanted.values() else 8)
    if len(faults) == 1:
        is_current(faults[0], told)
    assert all(each.kept == () for each in healed)
    is_healthy(healthy)


def keeps_out(healthy: Healthy, fault: Fault) -> None:
    """A fault of the way to the node: every command ends with exit code 3, and says what to do."""
    assert fault.found_by == (CONNECT,)
    layout = healthy.layout
    try:
        break_node(layout, fault.name)
        with pytest.raises(FixopsError) as refused:
            faults_page.look(layout.root)
        is_current(fault, faults_page.refusal(layout, faults_page.ports_of(layout), refused.value))
        healthy.practice.inv("verify", "--json").refuses(3)
    finally:
        heal(layout)
    is_healthy(healthy)


def is_current(fault: Fault, told: dict[str, tuple[str, str, str]]) -> None:
    """docs/faults.md says of the fault what was said now."""
    on_page = faults_page.entries(faults_page.PAGE.read_text(encoding="utf-8"))
    assert on_page.get(fault.name) == faults_page.entry(fault, told), (
        f"docs/faults.md is not current: python tools/faults_page.py {fault.name}"
    )


def is_healthy(healthy: Healthy) -> None:
    """Nothing is left of any fault."""
    assert in_force(healthy.layout) == []
    assert files(healthy.layout) == healthy.files
    assert server(healthy.practice.server_port) == healthy.server
    found = faults_page.look(healthy.layout.root)
    mine = {**healthy.verdicts, **verdicts(of_this_node(healthy, found.checks))}
    assert mine == healthy.verdicts, [each for each in found.checks if each.verdict in ("fail", "unknown")]


def files(layout: Layout) -> dict[str, str | None]:
    """Content of everything that a fault could change in the node's files; None where there is nothing.

    Of a pyc whether it holds what its source says: its head has the source's time, which a restarted server
    brings up to date, and the same code may be written in several ways (Python 3.10 does).
    """
    sources = [layout.site_packages / name for name in FIXED]
    watched = [*sources, layout.draft / "config.json", layout.nvidia_smi]
    watched += [layout.ssh / "known_hosts", layout.python, layout.site_packages / "other-sglang.pth"]
    weights = layout.draft / "model.safetensors"
    found: dict[str, str | None] = {str(weights): str(weights.exists())}
    for path in watched:
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
    found.update({str(bytecode_path(source)): _bytecode(source) for source in sources})
    return found


def _bytecode(source: Path) -> str | None:
    path = bytecode_path(source)
    if not path.exists():
        return None
    meant = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
    return "of its source" if marshal.loads(path.read_bytes()[16:]) == meant else "of something else"


def server(port: int) -> dict[str, Any]:
    """What can be seen of the server from outside."""
    pid = processes.listener(port)
    if pid is None:
        return {"up": False}
    found = [pid, *(rank.pid for rank in ranks(pid))]
    states = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] for each in found]
    return {
        "up": True,
        "processes": len(states),
        "stopped": "T" in states,
        "faults": "FIXOPS_SIMULATOR_FAULTS" in Path(f"/proc/{pid}/environ").read_text(),
        "log": Path(f"/proc/{pid}/fd/1").readlink().name,
        "argv": processes.title(pid),
    }
