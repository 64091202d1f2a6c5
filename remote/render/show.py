"""One view per command: its result on the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from ..errors import ExitCode
from ..holder import ALIVE, told
from ..intent import uses_no_gpu
from ..runbook import of_state
from .checks import print_checks
from .console import console, next_step
from .plan import print_actions, print_plan

if TYPE_CHECKING:
    from ..cli import Options
    from ..deploy import Deployed
    from ..fitting import Fitting
    from ..history import History
    from ..plan import Plan
    from ..rollback import RolledBack
    from ..status import Status
    from ..steps import Stepped
    from ..trusting import Trusted
    from ..unlock import Unlocked
    from ..verify import Verified

_STATES = {"up": "pass", "starting": "unknown", "down": "fail", "sick": "fail"}


def plan(options: Options, node: str, plan: Plan) -> None:
    """Before the question: on stderr when stdout is kept for JSON."""
    print_plan(console(to_stderr=options.json), node, plan)


def quiet(_: Any) -> None:
    """The progress lines have said it all."""


def deployed(result: Deployed) -> None:
    out = console()
    if result.dry_run or result.deploy_id is None:
        print_actions(out, result.actions)
    if result.dry_run:
        out.print(Text(f"dry run: nothing was changed on {result.node}", style="heading"))
        return
    if result.stopped is not None:  # it says all there is; the checks are in --json
        return
    print_checks(out, result.node, result.checks)
    if result.benches is not None:
        from . import bench

        for run in (result.benches.before, result.benches.after):
            if run is not None:
                bench.show(run)
    if result.deploy_id is None:
        meant = result.exit_code == ExitCode.OK
        what = "was already as meant" if meant else "has nothing that a deploy would mend"
        out.print(f"{result.node} {what}: nothing was changed")
    elif any(each["changed"] for each in result.actions if each["id"] in ("push-code", "push-config")):
        back = next_step(f"inv rollback --node {result.node}")
        out.print(f"deploy {result.deploy_id}; to go back: {back}", soft_wrap=True)
    else:  # a rollback would undo an earlier one
        out.print(f"deploy {result.deploy_id} replaced no file: there is nothing to go back from")


def rolled_back(result: RolledBack) -> None:
    out = console()
    if result.dry_run:
        print_actions(out, result.actions)
        out.print(Text(f"dry run: nothing was changed on {result.node}", style="heading"))
        return
    if result.stopped is not None:
        return
    print_checks(out, result.node, result.checks)
    if result.changed:
        out.print(f"deploy {result.deploy_id} was put back")
    else:
        out.print(f"{result.node} is as before deploy {result.deploy_id}: nothing was changed")


def verified(result: Verified, *, verbose: bool) -> None:
    print_checks(console(), result.node, result.checks, verbose=verbose)


def stepped(result: Stepped) -> None:
    if result.deploy_id is None:
        print_actions(console(), result.actions)


def started(result: Stepped) -> None:
    stepped(result)
    if result.deploy_id is not None:
        ready = next_step(f"inv health --node {result.node}")
        console().print(f"started; is it ready? {ready}", soft_wrap=True)


def status(result: Status) -> None:
    out, facts = console(), result.to_json()
    server = facts["server"]
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(style="heading", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("node", result.node)
    table.add_row("server", Text.assemble((result.state, _STATES[result.state]), f", {result.why}"))
    if server["pid"] is not None:
        since = _utc(server["started_at"])
        table.add_row("", f"pid {server['pid']} on port {server['port']} since {since}, {_version(result)}")
    table.add_row("ranks", f"{server['ranks']['alive']} of {server['ranks']['expected']} alive")
    for each in facts["stale"][:8]:
        table.add_row("stale", Text(f"pid {each['pid']} {each['title']}: {each['why']}", style="fail"))
    symptom = of_state(result.state, stale=bool(facts["stale"]))
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


def _version(result: Status) -> str:
    """Of the server that runs; files of another one may have been installed under it."""
    installed, serves = result.picture.version, result.to_json()["server"]["version"]
    other = f" (installed now: {installed})" if installed not in (serves, None) else ""
    return f"SGLang {serves or 'of unknown version'}{other}"


def watched(read: Callable[[], Status], every_s: float) -> None:
    """The same screen again and again, until Ctrl-C."""
    out = console()
    while True:
        result = read()
        if out.is_terminal:
            out.clear()
        status(result)
        out.print(Text(f"{_utc(time.time())} UTC, every {every_s:.0f} s, Ctrl-C ends", style="quiet"))
        time.sleep(every_s)


def fitting(result: Fitting) -> None:
    out = console()
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="heading")
    for column in ("fix", "fits", "what it does"):
        table.add_column(column, no_wrap=column != "what it does", overflow="fold")
    for row in result.rows:
        style = "pass" if row.state in ("ours", "native", "pristine", "partial") else "quiet"
        what = row.title + (f" ({row.problem})" if row.problem else "")
        table.add_row(row.name, Text(row.state, style=style), what)
    out.print(f"{result.node}: SGLang {result.version or 'not found'}")
    out.print(table)


def trusted(result: Trusted) -> None:
    out = console()
    for key in result.keys:
        style = "pass" if key["status"] == "known" else "unknown"
        told = f"{result.node}: {key['host']}  {key['type']}  {key['fingerprint']}  "
        out.print(Text.assemble(told, (key["status"], style)), soft_wrap=True)
        if key["status"] == "changed":
            for old in key["known"]:
                told = f"{old['type']}  {old['fingerprint']}  known so far ({old['place']})"
                out.print(f"{result.node}: {key['host']}  {told}", soft_wrap=True)
    if result.recorded:
        lines = ", ".join(map(str, result.replaced_lines))
        instead = f" in place of line {lines}" if lines else ""
        out.print(f"{result.node}: recorded in {result.recorded}{instead}", soft_wrap=True)


def message(text: str) -> None:
    console(to_stderr=True).print(Text(text, style="quiet"), soft_wrap=True)


def raw(text: str) -> None:
    """A log as it comes, with its own colours."""
    console().print(Text.from_ansi(text), soft_wrap=True, end="")


def line(text: str) -> None:
    console().print(text, soft_wrap=True)


def _fix(fix: dict[str, Any]) -> Text:
    state = fix["state"] or "unknown"
    style = "pass" if state in ("ours", "native") else "unknown"
    text = Text.assemble(f"{fix['name']}: ", (state, style))
    if fix["local_changes"]:
        text.append(", with local changes")
    return text.append(f", config {fix['config'] or 'unknown'}")


def _gpu(gpu: dict[str, Any]) -> Text:
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    memory = "memory unknown" if used is None else f"{used:>6} of {total if total is not None else '?'} MiB"
    text = Text(memory)
    for holder in gpu["holders"]:
        owner = "" if holder["ours"] else f", {holder['user'] or 'not visible'}: not the server's"
        text.append(f"  pid {holder['pid']} {holder['name']}{owner}", style="" if holder["ours"] else "fail")
    return text


def history(result: History) -> None:
    out = console()
    rows = result.actions()
    if not rows:
        out.print(f"nothing was ever done to {result.node} with this toolkit")
        return
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="heading")
    for column in ("when (UTC)", "who", "command", "action", "outcome", "detail"):
        table.add_column(column, no_wrap=column not in ("detail", "command"), overflow="fold")
    for row in rows:
        style = {"ok": "pass", "unknown": "unknown"}.get(row["outcome"], "fail")
        detail = str(row["error"] or row["detail"] or "")
        table.add_row(
            _utc(row["time"]),
            str(row["who"]),
            str(row["command"]),
            str(row["action"]),
            Text(row["outcome"], style=style),
            detail,
        )
    out.print(table)


def unlocked(result: Unlocked) -> None:
    out = console()
    if result.holder is None:
        out.print(f"{result.node} is not locked")
        return
    pid = result.holder.get("pid", "unknown")
    out.print(
        f"{result.node} is locked by {told(result.holder)}, pid {pid}, {ALIVE[result.holder_alive]}",
        soft_wrap=True,
    )
    if result.released:
        out.print("released")
    else:
        out.print(Text.assemble(("next: ", "heading"), next_step(f"inv unlock --yes --node {result.node}")))


def _utc(epoch_s: Any) -> str:
    if not isinstance(epoch_s, int | float):
        return str(epoch_s or "unknown")
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch_s))
