"""Checks on a terminal: failures first with their evidence, then the rest, then one line of verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ..checks import Check, exit_code, tally
from ..errors import ExitCode
from ..runbook import of_check
from .console import next_step, print_hanging

_ORDER = ("fail", "unknown", "pass", "skip")
_WORDS = {"fail": "FAIL", "unknown": "????", "pass": "pass", "skip": "skip"}
_VERDICTS = {
    ExitCode.CHECK_FAILED: ("FAILED", "fail"),
    ExitCode.UNDETERMINED: ("NOT PROVEN", "unknown"),
    ExitCode.OK: ("PROVEN", "pass"),
}
# What is shown of a long list of evidence (one line per rank, say): the rest is in --json.
SHOWN_EVIDENCE = 6
# The longest id of the contract: the column after it is aligned.
ID_WIDTH = len("process.after_fix")


def print_checks(
    out: Console, node: str, checks: Sequence[Check], *, verbose: bool = False, only_open: bool = False
) -> None:
    """Every check once; those that did not pass with what was expected, seen, where, and what to type.
    `only_open`: these alone, and the verdict."""
    for check in sorted(checks, key=lambda check: _ORDER.index(check.verdict)):
        is_open = check.verdict in ("fail", "unknown")
        if is_open or not only_open:
            _print_check(out, node, check, in_full=verbose or is_open)
    print_verdict(out, node, checks)


def _print_check(out: Console, node: str, check: Check, *, in_full: bool) -> None:
    quiet = "quiet" if check.verdict == "skip" else ""
    heading = Text.assemble(
        (_WORDS[check.verdict], check.verdict), " ", (f"{check.id:<{ID_WIDTH}}", "heading"), " "
    )
    print_hanging(out, heading, Text(check.observed, style=quiet))
    if not in_full:
        return
    print_hanging(out, Text("       expected ", style="quiet"), Text(check.expected))
    for each in check.evidence[:SHOWN_EVIDENCE]:
        print_hanging(
            out,
            Text("       seen     ", style="quiet"),
            Text.assemble((each.source, "quiet"), ": ", each.text),
        )
    more = len(check.evidence) - SHOWN_EVIDENCE
    if more > 0:
        out.print(Text(f"                and {more} more (--json shows all)", style="quiet"))
    if check.remedy:
        print_hanging(out, Text("       next     ", style="heading"), Text(next_step(check.remedy, node)))
    symptom = of_check(check.id, check.observed) if check.verdict in ("fail", "unknown") else None
    if symptom:
        print_hanging(out, Text("       runbook  ", style="quiet"), Text(f"inv runbook {symptom}"))


def print_verdict(out: Console, node: str, checks: Sequence[Check]) -> None:
    head, style = _VERDICTS[exit_code(checks)]
    out.print(Text.assemble((head, style), f" {node}: {tally(checks)}"))
