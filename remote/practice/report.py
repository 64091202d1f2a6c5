"""What the practice node's commands answer: an entry for the JSON document, and lines for a person."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remote.practice import ssh_server, wheels
from remote.practice.layout import here
from remote.practice.real import environment
from remote.practice.record import NODE

if TYPE_CHECKING:
    from remote.practice.down import Down
    from remote.practice.up import Plan

Answer = tuple[dict[str, Any], list[str]]
Say = Callable[[str], None]

NO_NODE = "there is no practice node"
NO_FAULT = "no fault is in force"


def up(
    version: str | None,
    ssh: ssh_server.Kind | None,
    gpus: int | None,
    say: Say,
    *,
    real: bool = False,
    dry_run: bool = False,
) -> Answer:
    """Make the node or say what is there."""
    from remote.practice.up import plan
    from remote.practice.up import up as make

    if dry_run:
        return _would_up(plan(here(), version=version, ssh=ssh, gpus=gpus, real=real))
    done = make(here(), version=version, ssh=ssh, gpus=gpus, real=real, say=say)
    made = done.record
    connect = f"ssh -i {made.ssh.identity_file} -p {made.ssh.port} {made.ssh.user}@{made.ssh.host}"
    entry = {
        "node": NODE,
        "dry_run": False,
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
        f"  SGLang {made.version}, {_gpus(made.gpus, real=made.real)}, in {_short(str(done.layout.root))}",
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


def _would_up(planned: Plan) -> Answer:
    there, broken, root = planned.there is not None, list(planned.broken), here().root
    entry = {
        "node": NODE,
        "dry_run": True,
        "would_change": not there or bool(broken),
        "would_make": not there,
        "would_repair": broken,
        "directory": str(root),
        "sglang": planned.version,
        "real": planned.real,
        "gpus": planned.gpus,
    }
    if broken:
        head = f"would repair the practice node: {', '.join(broken)}"
    else:
        head = "practice node is up already" if there else "would make the practice node"
    what = f"  SGLang {planned.version}, {_gpus(planned.gpus, real=planned.real)}, in {_short(str(root))}"
    return entry, [head, what, *([] if there else _would_fetch(planned))]


def _would_fetch(planned: Plan) -> list[str]:
    """What of a new node is not in the cache. That it can be had is not known before it is asked for."""
    lines = []
    if not wheels.is_cached(planned.version):
        lines.append(f"  would first fetch SGLang {planned.version} from the package index, if it has that")
    if planned.real and not environment.ready(planned.version):
        lines.append(f"  would first install what it imports: {environment.needs(planned.version)}")
    return lines


def _gpus(count: int, *, real: bool) -> str:
    return "on the CPU" if real else f"{count} simulated GPUs"


def down(say: Say, *, dry_run: bool = False) -> Answer:
    """Take the node away."""
    from remote.practice.down import down as take_away
    from remote.practice.down import plan

    if dry_run:
        return _would_down(plan(here()))
    say("ending the practice node's processes")
    done = take_away(here())
    entry = {
        "node": NODE,
        "dry_run": False,
        "directory": str(done.root),
        "removed": done.removed,
        "processes": [{"pid": pid, "title": title} for pid, title in done.ended],
    }
    if not done.removed and not done.ended:
        return entry, [NO_NODE]
    return entry, [f"practice node removed, {len(done.ended)} processes ended"]


def _would_down(planned: Down) -> Answer:
    change = planned.removed or bool(planned.ended)
    entry = {
        "node": NODE,
        "dry_run": True,
        "would_change": change,
        "directory": str(planned.root),
        "would_remove": planned.removed,
        "would_end": [{"pid": pid, "title": title} for pid, title in planned.ended],
    }
    lines = [f"would end pid {pid}  {_short(title)}" for pid, title in planned.ended]
    lines += [f"would remove {_short(str(planned.root))}"] if planned.removed else []
    return entry, lines or [NO_NODE]


def break_(name: str, say: Say, *, dry_run: bool = False) -> Answer:
    """Bring a fault about, or list them all."""
    from remote.practice.breaking import break_node, may_break

    if not name:
        return _faults(dry_run=dry_run)
    if dry_run:
        fault, _ = may_break(here(), name)
    else:
        say(f"breaking: {name}")
        fault = break_node(here(), name)
    entry = {
        "node": NODE,
        "dry_run": dry_run,
        **({"would_change": True} if dry_run else {}),
        "fault": name,
        "does": fault.does,
        "found_by": list(fault.found_by),
    }
    return entry, [
        f"{'would break: ' if dry_run else ''}{fault.title}: {fault.does}",
        f"  to be found by {', '.join(fault.found_by)}: inv verify",
        "  put back with: inv practice.heal",
    ]


def _faults(*, dry_run: bool) -> Answer:
    from remote.practice.breaking import in_force
    from remote.practice.faults import FAULTS

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
    return {"node": NODE, "dry_run": dry_run, "faults": listed, "in_force": force}, lines


def heal(name: str, say: Say, *, dry_run: bool = False) -> Answer:
    """Put back what the faults changed."""
    from remote.practice.healing import heal as put_back

    if dry_run:
        return _would_heal(name)
    say("healing")
    done = put_back(here(), name)
    entry = {
        "node": NODE,
        "dry_run": False,
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
    lines = [f"healed: {each.fault}" for each in done] or [NO_FAULT]
    lines += [
        f"  left as it is, changed since the fault: {_short(path)}" for each in done for path in each.kept
    ]
    return entry, lines


def _would_heal(name: str) -> Answer:
    from remote.practice.healing import restart_is_due, to_heal

    names = [folder.name for folder in to_heal(here(), name)]
    due = restart_is_due(here())
    entry = {"node": NODE, "dry_run": True, "would_change": bool(names) or due, "would_heal": names}
    lines = [f"would heal: {each}" for each in names] or [NO_FAULT]
    lines += ["would restart the server: it is older than files that were healed"] if due else []
    return entry, lines


def _short(text: str) -> str:
    return text.replace(os.getcwd() + os.sep, "")  # noqa: PTH109 - a text, not a path
