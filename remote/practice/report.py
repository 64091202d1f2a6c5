"""What the practice node's commands answer: an entry for the JSON document, and lines for a person."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from remote.practice import ssh_server
from remote.practice.layout import here
from remote.practice.record import NODE, Record

Answer = tuple[dict[str, Any], list[str]]
Say = Callable[[str], None]


def up(
    version: str | None, ssh: ssh_server.Kind | None, gpus: int | None, say: Say, *, real: bool = False
) -> Answer:
    """Make the node or say what is there."""
    from remote.practice.up import up as make

    done = make(here(), version=version, ssh=ssh, gpus=gpus, real=real, say=say)
    made = done.record
    connect = f"ssh -i {made.ssh.identity_file} -p {made.ssh.port} {made.ssh.user}@{made.ssh.host}"
    entry = {
        "node": NODE,
        "outcome": done.outcome,
        "repaired": list(done.repaired),
        "directory": str(done.layout.root),
        "sglang": made.version,
        "real": made.real,
        "gpus": made.gpus,
        "ssh": {"kind": made.ssh.kind, "host": made.ssh.host, "port": made.ssh.port, "why": made.ssh.why},
        "server": {"port": made.server_port, "pid": done.server_pid},
        "orphans": list(done.orphans),
        "took_s": round(done.took_s, 2),
    }
    head = {
        "made": f"practice node made in {done.took_s:.1f} s",
        "already": "practice node is up already, nothing changed",
        "repaired": f"practice node repaired: {', '.join(done.repaired)}",
    }[done.outcome]
    lines = [
        head,
        f"  SGLang {made.version}, {_without_or_with_gpus(made)}, in {_short(str(done.layout.root))}",
        f"  {made.ssh.kind} on {made.ssh.host}:{made.ssh.port}   {_short(connect)}",
    ]
    if made.ssh.why:
        lines.append(f"  not OpenSSH: {made.ssh.why}")
    if done.server_pid is None:
        lines.append(f"  no server on port {made.server_port}: inv start")
    else:
        kind = "SGLang itself" if made.real else "simulated server"
        lines.append(f"  {kind} on port {made.server_port}, pid {done.server_pid}")
    if done.orphans:
        left = ", ".join(str(pid) for pid in done.orphans)
        lines.append(f"  ranks of an earlier server still hold GPU memory: pid {left}")
    return entry, lines


def _without_or_with_gpus(made: Record) -> str:
    return "on the CPU" if made.real else f"{made.gpus} simulated GPUs"


def down(say: Say) -> Answer:
    """Take the node away."""
    from remote.practice.down import down as take_away

    say("ending the practice node's processes")
    done = take_away(here())
    entry = {
        "node": NODE,
        "directory": str(done.root),
        "removed": done.removed,
        "processes": [{"pid": pid, "title": title} for pid, title in done.ended],
    }
    if not done.removed and not done.ended:
        return entry, ["there is no practice node"]
    return entry, [f"practice node removed, {len(done.ended)} processes ended"]


def break_(name: str, say: Say) -> Answer:
    """Bring a fault about, or list them all."""
    from remote.practice.breaking import break_node, in_force
    from remote.practice.faults import FAULTS

    if name:
        say(f"breaking: {name}")
        fault = break_node(here(), name)
        entry = {"node": NODE, "fault": name, "does": fault.does, "found_by": list(fault.found_by)}
        return entry, [
            f"{fault.title}: {fault.does}",
            f"  to be found by {', '.join(fault.found_by)}: inv verify",
            "  put back with: inv practice.heal",
        ]
    force = in_force(here())
    listed = [
        {"name": each.name, "title": each.title, "does": each.does, "found_by": list(each.found_by)}
        for each in FAULTS.values()
    ]
    width = max(len(each) for each in FAULTS)
    lines = [
        f"{'*' if each.name in force else ' '} {each.name:<{width}}  {each.title}" for each in FAULTS.values()
    ]
    lines += ["", "inv practice.break NAME brings one about, inv practice.heal puts everything back"]
    lines += [f"* in force: {', '.join(force)}"] if force else []
    return {"node": NODE, "faults": listed, "in_force": force}, lines


def heal(name: str, say: Say) -> Answer:
    """Put back what the faults changed."""
    from remote.practice.healing import heal as put_back

    say("healing")
    done = put_back(here(), name)
    entry = {
        "node": NODE,
        "healed": [
            {
                "fault": each.fault,
                "restored": list(each.restored),
                "kept": list(each.kept),
                "ended": list(each.ended),
                "server_pid": each.server_pid,
            }
            for each in done
        ],
    }
    lines = [f"healed: {each.fault}" for each in done] or ["no fault is in force"]
    lines += [
        f"  left as it is, changed since the fault: {_short(path)}" for each in done for path in each.kept
    ]
    return entry, lines


def _short(text: str) -> str:
    return text.replace(os.getcwd() + os.sep, "")  # noqa: PTH109 - a text, not a path
