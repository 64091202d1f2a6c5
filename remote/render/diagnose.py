"""A diagnosis on a terminal: the wiring against the contract, every hypothesis, then the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .checks import SHOWN_EVIDENCE
from .console import console, next_step

if TYPE_CHECKING:
    from ..diagnose import Diagnosis, Mode
    from ..hypotheses import Hypothesis

_MODES = {"eager": "prefill (eager)", "graph": "decode (CUDA graph)", "overlap": "two-batch overlap"}
_WORDS = {"match": ("right", "pass"), "mismatch": ("WRONG", "fail"), "crash": ("DIES", "fail")}
_ANSWERS = {"holds": ("HOLDS", "fail"), "unknown": ("????", "unknown"), "refuted": ("no", "pass")}


def show(result: Diagnosis, *, verbose: bool) -> None:
    """One page. Evidence of what holds and of what is open; of everything with `verbose`."""
    out = console()
    fix = result.picture.bundle.name
    out.print(Text(f"{result.node}: SGLang {result.picture.version or 'not found'}, {fix}", style="heading"))
    out.print()
    _wiring(out, result)
    out.print()
    _hypotheses(out, result, verbose=verbose)
    out.print()
    style = "fail" if result.cause is not None else "heading"
    out.print(Text.assemble(("answer: ", style), result.answer), soft_wrap=True)
    out.print(Text.assemble(("next:   ", "heading"), next_step(result.next, result.node)), soft_wrap=True)


def _table() -> Table:
    return Table(box=None, show_header=False, padding=(0, 1, 0, 0))


def _wiring(out: Console, result: Diagnosis) -> None:
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    contract = result.picture.contract
    trained = ", ".join(contract) if contract else "the bundle promises no wiring"
    table.add_row(Text("trained with", style="heading"), "", trained)
    for mode in result.modes:
        table.add_row(Text(_MODES[mode.name], style="heading"), _word(mode), _gets(mode))
    out.print(table)


def _word(mode: Mode) -> Text:
    if mode.applies is False:
        return Text("off", style="skip")
    word, style = _WORDS.get(mode.verdict, ("????", "unknown"))
    return Text(word, style=style)


def _gets(mode: Mode) -> Text:
    gets = mode.gets[1:-1] if mode.gets.startswith("[") else mode.gets.removeprefix("dies with ")
    text = Text(gets, style="skip" if mode.applies is False else "")
    if mode.applies is None:
        text.append(" (not known whether it is on)", style="quiet")
    if mode.call_site:
        text.append(f"\nset by {mode.call_site}", style="quiet")
    return text


def _hypotheses(out: Console, result: Diagnosis, *, verbose: bool) -> None:
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    order = list(_ANSWERS)
    for each in sorted(result.hypotheses, key=lambda hypothesis: order.index(hypothesis.verdict)):
        word, style = _ANSWERS[each.verdict]
        body = _body(each, result.node, verbose=verbose)
        table.add_row(Text(word, style=style), each.id, body)
    out.print(table)


def _body(each: Hypothesis, node: str, *, verbose: bool) -> Text:
    if each.verdict == "refuted" and not verbose:
        return Text(each.says, style="quiet")
    text = Text(each.claim, style="heading")
    text.append(f"\n{each.says}", style="")
    for evidence in each.evidence[:SHOWN_EVIDENCE]:
        text.append(f"\n  {evidence.source}: ", style="quiet")
        text.append(evidence.text)
    more = len(each.evidence) - SHOWN_EVIDENCE
    if more > 0:
        text.append(f"\n  and {more} more (--json shows all)", style="quiet")
    if each.remedy:
        text.append("\nnext: ", style="heading").append(next_step(each.remedy, node))
    return text
