"""One view per command: its result on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from ..errors import ExitCode
from ..holder import ALIVE, told
from ..work import replaced_files
from .checks import print_checks
from .console import console, next_step
from .plan import print_actions, print_plan

if TYPE_CHECKING:
    from ..cli import Options
    from ..deploy import Deployed
    from ..fitting import Fitting
    from ..plan import Plan
    from ..rollback import RolledBack
    from ..steps import Stepped
    from ..trusting import Trusted
    from ..unlock import Unlocked
    from ..verify import Verified


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
        dry_run(result.node)
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
    elif replaced_files(result.actions):
        back = next_step(f"inv rollback --node {result.node}")
        out.print(f"deploy {result.deploy_id}; to go back: {back}", soft_wrap=True)
    else:
        out.print(f"deploy {result.deploy_id} replaced no file: there is nothing to go back from")


def rolled_back(result: RolledBack) -> None:
    out = console()
    if result.dry_run:
        print_actions(out, result.actions)
        dry_run(result.node)
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


def verified_in_group(result: Verified) -> None:
    """Of one node of several what did not pass, and its verdict."""
    out = console()
    out.print(Text(result.node, style="heading"))
    print_checks(out, result.node, result.checks, only_open=True)


def stepped(result: Stepped) -> None:
    if result.deploy_id is None:
        print_actions(console(), result.actions)
    if result.dry_run:
        dry_run(result.node)


def started(result: Stepped) -> None:
    stepped(result)
    if result.deploy_id is not None:
        ready = next_step(f"inv health --node {result.node}")
        console().print(f"started; is it ready? {ready}", soft_wrap=True)


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
    if result.dry_run:
        file = result.would_record
        dry_run(result.node, f"--yes would record the key in {file}" if file else "")
    if result.next_step:
        _next(result.next_step)


def message(text: str) -> None:
    console(to_stderr=True).print(Text(text, style="quiet"), soft_wrap=True)


def raw(text: str) -> None:
    """A log as it comes, with its own colours."""
    console().print(Text.from_ansi(text), soft_wrap=True, end="")


def line(text: str) -> None:
    """A line of the practice node's commands, what it says to type next completed."""
    console().print(next_step(text), soft_wrap=True)


def unlocked(result: Unlocked) -> None:
    out = console()
    if result.holder is None:
        out.print(f"{result.node} is not locked")
        if result.dry_run:
            dry_run(result.node)
        return
    pid = result.holder.get("pid", "unknown")
    out.print(
        f"{result.node} is locked by {told(result.holder)}, pid {pid}, {ALIVE[result.holder_alive]}",
        soft_wrap=True,
    )
    if result.released:
        out.print("released")
        return
    if result.dry_run:
        dry_run(result.node, "--yes would release the lock")
    _next(f"inv unlock --yes --node {result.node}")


def dry_run(node: str, would: str = "") -> None:
    """The last word of a dry run; `would` is what the same command with --yes does."""
    told = f"dry run: nothing was changed on {node}" + (f"; {would}" if would else "")
    console().print(Text(told, style="heading"), soft_wrap=True)


def _next(step: str) -> None:
    console().print(Text.assemble(("next: ", "heading"), next_step(step)), soft_wrap=True)
