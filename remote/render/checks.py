"""Checks on a terminal: failures first with their evidence, then the rest, then one line of verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..checks import Check

_ORDER = ("fail", "unknown", "pass", "skip")
_WORDS = {"fail": "FAIL", "unknown": "????", "pass": "pass", "skip": "skip"}
# What is shown of a long list of evidence (one line per rank, say): the rest is in --json.
SHOWN_EVIDENCE = 6


def print_checks(out: Console, node: str, checks: Sequence[Check], *, verbose: bool = False) -> None:
    """Every check once; those that did not pass with what was expected, seen, and where."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in sorted(checks, key=lambda check: _ORDER.index(check.verdict)):
        table.add_row(Text(_WORDS[check.verdict], style=check.verdict), check.id, _body(check, verbose))
    out.print(table)
    print_verdict(out, node, checks)


def _body(check: Check, verbose: bool) -> Text:
    text = Text(check.observed, style="skip" if check.verdict == "skip" else "")
    if check.verdict in ("fail", "unknown"):
        text.append(f"\nexpected: {check.expected}")
    if check.verdict in ("fail", "unknown") or verbose:
        for each in check.evidence[:SHOWN_EVIDENCE]:
            text.append(f"\n  {each.source}: ", style="quiet")
            text.append(each.text)
        more = len(check.evidence) - SHOWN_EVIDENCE
        if more > 0:
            text.append(f"\n  and {more} more (--json shows all)", style="quiet")
        if check.remedy:
            text.append("\nnext: ", style="heading")
            text.append(check.remedy)
    return text


def print_verdict(out: Console, node: str, checks: Sequence[Check]) -> None:
    count = {verdict: sum(check.verdict == verdict for check in checks) for verdict in _ORDER}
    if count["fail"]:
        head, style = "FAILED", "fail"
    elif count["unknown"] or not count["pass"]:
        head, style = "NOT PROVEN", "unknown"
    else:
        head, style = "PROVEN", "pass"
    words = [f"{count['pass']} passed"]
    words += [
        f"{count[verdict]} {word}"
        for verdict, word in (("fail", "failed"), ("unknown", "unknown"), ("skip", "skipped"))
        if count[verdict]
    ]
    out.print(Text.assemble((head, style), f" {node}: " + ", ".join(words)))
