"""Boots of a log on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..logs import Logs
from ..runbook import ACCEPTS_NOTHING, FAILURES
from ..sglang.boots import Boot
from .console import console

_STYLES = {"ready": "pass", "failed": "fail", "starting": "unknown", "stopped": "quiet", "unknown": "unknown"}


def show(result: Logs, *, errors: bool, args: bool) -> None:
    """The boots; with `errors` the last boot's first cause, with `args` its arguments, else its lines."""
    out = console()
    if not result.exists:
        out.print(f"{result.path} does not exist on {result.source}", soft_wrap=True)
        return
    _boots(out, result)
    last = result.boots[-1] if result.boots else None
    if errors:
        _errors(out, last)
    elif args:
        _args(out, last)
    else:
        for number, text in result.lines:
            out.print(Text.assemble((f"{number:>7} ", "quiet"), Text.from_ansi(text)), soft_wrap=True)


def _boots(out: Console, result: Logs) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="heading")
    for column in ("boot", "started", "ready", "accept len", "tok/s"):
        table.add_column(column, no_wrap=True)
    table.add_column("state", overflow="fold")
    for number, boot in enumerate(result.boots, start=result.older_boots + 1):
        decode = boot.decode
        table.add_row(
            str(number),
            boot.started_at or "?",
            # The time of day: the date stands before it, and a narrow terminal has room for one.
            (boot.ready_at or "-").rpartition(" ")[2],
            f"{decode.accept_len:.2f}" if decode and decode.accept_len is not None else "-",
            f"{decode.gen_tok_s:.1f}" if decode and decode.gen_tok_s is not None else "-",
            Text(_state(boot), style=_STYLES[boot.state]),
        )
    if result.older_boots:
        out.print(f"{result.older_boots} older boots are in the log, and are not shown", style="quiet")
    out.print(table)
    decode = result.boots[-1].decode if result.boots else None
    if decode is not None and decode.accepts_nothing:
        out.print(Text(f"speculation accepts nothing: inv runbook {ACCEPTS_NOTHING}", style="fail"))


def _state(boot: Boot) -> str:
    record = "" if boot.args_record == "complete" else f", record of arguments {boot.args_record}"
    return f"{boot.state} ({boot.stage}){record}"


def _errors(out: Console, boot: Boot | None) -> None:
    if boot is None or boot.failure is None:
        out.print("no failure in the last boot")
        return
    failure = boot.failure
    out.print(Text.assemble((failure.code, "fail"), f" at line {failure.line}, while {boot.stage}"))
    out.print(Text(failure.cause), soft_wrap=True)
    if failure.code in FAILURES:
        out.print(Text.assemble(("runbook: ", "quiet"), f"inv runbook {FAILURES[failure.code]}"))


def _args(out: Console, boot: Boot | None) -> None:
    if boot is None or not boot.args:
        out.print("the last boot has no record of its arguments")
        return
    for each in boot.adjusted:
        was = "not told" if each.requested is None else repr(each.requested)
        out.print(Text(f"adjusted: {each.name} was {was}, runs with {each.effective!r}", style="unknown"))
    for name, value in boot.args.items():
        out.print(Text.assemble((name, "heading"), f" = {value!r}"), soft_wrap=True)
