"""`inv status` on a terminal: one screen of one node, one line of each of several."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..clock import utc
from ..intent import uses_no_gpu
from ..runbook import of_state
from ..status import Status
from .console import console, next_step

_STATES = {"up": "pass", "starting": "unknown", "down": "fail", "sick": "fail"}


def show(result: Status) -> None:
    out, facts = console(), result.to_json()
    server = facts["server"]
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(style="heading", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("node", result.node)
    table.add_row("server", Text.assemble((result.state, _STATES[result.state]), f", {result.why}"))
    if server["pid"] is not None:
        since = utc(server["started_at"])
        table.add_row("", f"pid {server['pid']} on port {server['port']} since {since}, {_version(result)}")
    table.add_row("ranks", f"{server['ranks']['alive']} of {server['ranks']['expected']} alive")
    for each in facts["stale"][:8]:
        table.add_row("stale", Text(f"pid {each['pid']} {each['title']}: {each['why']}", style="fail"))
    owned = result.picture.ownership
    taken = any(each.gpu is None for each in owned.foreign) if owned else False
    symptom = of_state(result.state, stale=bool(facts["stale"]), port_taken=taken)
    if symptom:
        table.add_row("runbook", f"inv runbook {symptom}")
    table.add_row("fix", _fix(facts["fix"]))
    for gpu in facts["gpus"]:
        table.add_row(f"gpu {gpu['index']}", _gpu(gpu))
    if not facts["gpus"] and uses_no_gpu(result.picture.node):
        table.add_row("gpus", Text("none: the server runs on the CPU (device: cpu)", style="quiet"))
    elif not facts["gpus"]:
        why = (result.picture.facts.get("gpus") or {}).get("why") or "not reported"
        table.add_row("gpus", Text(f"unknown: {why}", style="unknown"))
    last = facts["last_deploy"]
    if last:
        undone = ", rolled back" if last["rolled_back"] else ""
        table.add_row("last deploy", f"{last['id']} by {last['who'] or 'unknown'}{undone}")
    if facts["lock"]:
        table.add_row("lock", Text(f"held by {facts['lock'].get('who')}", style="unknown"))
    out.print(table)


def watched(read: Callable[[], Status], every_s: float) -> None:
    """The same screen again and again, until Ctrl-C."""
    out = console()
    while True:
        result = read()
        if out.is_terminal:
            out.clear()
        show(result)
        out.print(Text(f"{utc(time.time())}, every {every_s:.0f} s, Ctrl-C ends", style="quiet"))
        time.sleep(every_s)


def show_several(results: Sequence[Status]) -> None:
    """A line for each node; of one that is not up also why, and where to look."""
    out = console()
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="heading")
    for column in ("node", "server", "ranks", "SGLang", "fix", "config", "last deploy"):
        table.add_column(column, no_wrap=column != "node", overflow="fold")
    for result in results:
        facts = result.to_json()
        ranks, last = facts["server"]["ranks"], facts["last_deploy"]
        table.add_row(
            Text(result.node, style="heading"),
            Text(result.state, style=_STATES[result.state]),
            f"{ranks['alive']}/{ranks['expected']}",
            str(facts["server"]["version"] or "unknown"),
            _state(facts["fix"]),
            str(facts["fix"]["config"] or "unknown"),
            last["id"] if last else "-",
        )
    out.print(table)
    for result in results:
        if result.state != "up":
            look = next_step(f"inv status --node {result.node}", result.node)
            out.print(f"{result.node}: {result.why}; {look}", soft_wrap=True)


def _version(result: Status) -> str:
    """Of the server that runs; files of another one may have been installed under it."""
    installed, serves = result.picture.version, result.to_json()["server"]["version"]
    other = f" (installed now: {installed})" if installed not in (serves, None) else ""
    return f"SGLang {serves or 'of unknown version'}{other}"


def _state(fix: dict[str, Any]) -> Text:
    state = fix["state"] or "unknown"
    return Text(state, style="pass" if state in ("ours", "native") else "unknown")


def _fix(fix: dict[str, Any]) -> Text:
    text = Text.assemble(f"{fix['name']}: ", _state(fix))
    if fix["local_changes"]:
        text.append(", with local changes")
    return text.append(f", config {fix['config'] or 'unknown'}")


def _gpu(gpu: dict[str, Any]) -> Text:
    """The memory, and a line for each holder."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    memory = "memory unknown" if used is None else f"{used:>6} of {total if total is not None else '?'} MiB"
    holders = [Text(f"pid {each['pid']} {each['name']}", style="") for each in gpu["holders"]]
    for each, text in zip(gpu["holders"], holders, strict=True):
        if not each["ours"]:
            whose = "stale" if each["stale"] else f"{each['user'] or 'not visible'}: not the server's"
            text.append(f", {whose}")
            text.stylize("fail")
    beside = Text("\n" + " " * (len(memory) + 2)).join(holders)
    return Text.assemble(memory, "  " if holders else "", beside)
