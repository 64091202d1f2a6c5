"""A benchmark on a terminal: figures beside the baseline's, what was guarded against, the verdict."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..bench.result import Bench
from ..bench.stats import UNKNOWN, Figure
from ..bench.summary import Summary, server_definition
from ..clock import utc
from ..runbook import INEFFECTIVE
from ..sglang.accept import OUR_RATE
from .console import console, next_step

_STYLES = {
    "effective": "pass",
    "ineffective": "fail",
    "inconclusive": "unknown",
    "no-baseline": "heading",
}
_STATES = {"ok": "pass", "shown": "unknown", "spoils": "fail", "unknown": "unknown"}
_MARKS = {"ok": "ok", "shown": "note", "spoils": "SPOILS", "unknown": "????"}


def show(result: Bench) -> None:
    out = console()
    if result.refused:
        out.print(Text(f"{result.node}: not measured, {result.refused}"), soft_wrap=True)
        _hint(out, f"inv verify --node {result.node}; --anyway measures all the same")
        return
    if result.summary is not None:
        _head(out, result, result.summary)
        _figures(out, result, result.summary)
        _guards(out, result)
    _verdict(out, result)


def _head(out: Console, result: Bench, summary: Summary) -> None:
    load, fix = result.load, result.fix
    draft, plain = summary.speculation.num_draft_tokens, summary.accept_len.median is None
    asked = f"{summary.requests} of {load['requests']} requests, {load['concurrency']} at once"
    out.print(
        Text.assemble(
            (result.node, "heading"),
            f": SGLang {summary.sglang_version or '?'}, {asked}, {load['max_tokens']} tokens each; ",
            f"{draft} draft tokens" if draft else "no speculation" if plain else "draft tokens not told",
            f"; fix {fix['name']}: {fix['state'] or 'unknown'}",
            "" if fix["applied"] else ", not in effect",
        ),
        soft_wrap=True,
    )
    if summary.simulated:
        out.print(Text("SIMULATED server: these figures are drawn from the wiring", style="unknown"))
    for failure in result.failures[:3]:
        out.print(Text(f"failed: {failure.prompt}: {failure.error}", style="fail"), soft_wrap=True)


def _figures(out: Console, result: Bench, now: Summary) -> None:
    before = result.baseline.summary if result.baseline else None
    ratios = result.comparison
    speed = ratios.output_tok_s.ratio if ratios else None
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="heading")
    table.add_column("")
    table.add_column("now", no_wrap=True)
    if result.baseline:
        table.add_column(result.baseline.name, no_wrap=True)
        table.add_column("ratio", no_wrap=True)
    rows: list[tuple[str, Callable[[Summary], Figure], int, Figure | None]] = [
        ("accept length", lambda s: s.accept_len, 2, ratios.accept_len.ratio if ratios else None),
        ("accept rate", lambda s: s.accept_rate, 2, None),
        ("implied acceptance per draft step", lambda s: s.implied_step_acceptance, 3, None),
        ("output tok/s of one request", lambda s: s.output_tok_s, 1, speed),
        ("output tok/s of all requests together", lambda s: s.server_output_tok_s, 1, None),
        ("seconds to the first token", lambda s: s.ttft_s, 3, None),
    ]
    for name, figure, places, ratio in rows:
        cells = [figure_text(figure(now), places)]
        if before is not None:
            cells += [figure_text(figure(before), places), figure_text(ratio or UNKNOWN, 2, "")]
        table.add_row(name, *cells)
    out.print(table)
    _server(out, result, now)


def _server(out: Console, result: Bench, now: Summary) -> None:
    """The server's own figures, by their own definitions."""
    rate, definition = now.accept_rate_server.median, server_definition(now.sglang_version)
    lines = [f"accept rate: {OUR_RATE}"] if now.accept_rate.median is not None else []
    if rate is not None:
        lines.append(f"the server's own accept rate: {rate:.2f} ({definition})")
    if now.pooled:
        pooled = now.pooled
        lines.append(
            f"all {pooled.completion_tokens} tokens over all {pooled.verify_ct} verifications:"
            f" {figure_text(pooled.accept_len, 2)}"
        )
    if now.cumulative and now.cumulative.middle is not None:
        mean = now.cumulative.accept_len
        value = f"{now.cumulative.middle if mean is None else mean:.2f}"
        if mean is None and now.cumulative.known > 1:
            value += f" (the median of {now.cumulative.known} ranks)"
        lines.append(f"the server's accept length since its start, not this run's: {value}")
    if result.comparison and result.comparison.same_outputs:
        same, pairs = result.comparison.same_outputs
        lines.append(f"{same} of {pairs} answers are the baseline's to the last token")
    for line in lines:
        out.print(Text(line, style="quiet"), soft_wrap=True)


def _guards(out: Console, result: Bench) -> None:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    quiet = [guard.id for guard in result.guards if guard.state == "ok"]
    for guard in result.guards:
        if guard.state != "ok":
            spoils = f" (not judged: {', '.join(guard.spoils)})" if guard.spoils else ""
            mark = Text(_MARKS[guard.state], style=_STATES[guard.state])
            table.add_row(mark, guard.id, f"{guard.detail}{spoils}")
    if quiet:
        table.add_row(Text("ok", style="pass"), f"{len(quiet)} guards", Text(", ".join(quiet), style="quiet"))
    out.print(table)


def _verdict(out: Console, result: Bench) -> None:
    for reason in result.verdict.reasons:
        out.print(Text(f"  {reason}"), soft_wrap=True)
    word = result.verdict.word
    out.print(Text.assemble((word.upper(), _STYLES[word]), f" {result.node}: {result.fix['name']}"))
    if result.fix["applied"] is False:
        _hint(out, f"inv deploy-fix --node {result.node}")
    elif word == "ineffective":
        _hint(out, f"inv diagnose --node {result.node}")
        out.print(Text.assemble(("runbook: ", "quiet"), f"inv runbook {INEFFECTIVE}"))
    elif word == "no-baseline" and not result.saved_as:
        _hint(out, "--save-as NAME keeps a run as a baseline, --baseline NAME compares with it")
    if result.kept:
        when = utc(result.time)
        out.print(
            Text(f"run {result.run_id} of {when}, kept in {result.kept}", style="quiet"), soft_wrap=True
        )


def _hint(out: Console, text: str) -> None:
    out.print(Text.assemble(("next: ", "heading"), next_step(text)), soft_wrap=True)


def figure_text(figure: Figure, places: int, unknown: str = "unknown") -> str:
    """`3.41 [3.32, 3.50]`."""
    if figure.median is None:
        return unknown
    text = f"{figure.median:.{places}f}"
    if figure.low is not None and figure.high is not None:
        text += f" [{figure.low:.{places}f}, {figure.high:.{places}f}]"
    return text
