"""A report as a few lines of text, for a chat message."""

from __future__ import annotations

from ...clock import utc
from ...report.model import Deploy, Report
from . import figures
from .figures import duration, shown

_MODES = {"eager": "prefill", "graph": "decode", "overlap": "two-batch overlap"}


def text(report: Report) -> str:
    """Plain text; every line stands for itself."""
    note = " (SIMULATED server)" if report.simulated else ""
    lines = [
        f"fixops report on {report.node}{note}, SGLang {report.version or 'not found'}, {utc(report.time)}"
    ]
    lines += _done(report.deploy) if report.deploy else ["deploy: none"]
    lines.append(f"{figures.proven(report).upper()}: {figures.proof_line(report)} (inv verify)")
    for check in report.checks:
        if check.verdict in ("fail", "unknown"):
            lines.append(f"- {check.verdict} {check.id}: {check.observed}")
    lines += _wiring(report)
    lines += _brought(report)
    for each in report.missing:
        lines.append(f"missing: {each.what}" + (f" ({each.command})" if each.command else ""))
    return "\n".join(lines) + "\n"


def _done(deploy: Deploy) -> list[str]:
    took = None if deploy.began is None or deploy.ended is None else deploy.ended - deploy.began
    lines = [
        f"deploy {deploy.id}: {deploy.command}",
        ", ".join(each for each in (f"by {deploy.who}", utc(deploy.began), duration(took)) if each),
    ]
    steps = [f"{step.action} {step.outcome}" for step in deploy.steps]
    if steps:
        lines.append("done: " + ", ".join(steps))
    if deploy.files:
        names = ", ".join(each.label.rpartition("/")[2] for each in deploy.files)
        lines.append(f"files: {names}; originals kept on the node")
    return lines


def _wiring(report: Report) -> list[str]:
    if report.contract is None:
        return []
    words = {"match": "right", "mismatch": "WRONG", "crash": "DIES"}
    parts = [
        f"{_MODES[mode.name]} {mode.gets} {words.get(mode.verdict, 'unknown')}"
        for mode in report.modes
        if mode.applies is not False
    ]
    return [f"trained with [{', '.join(report.contract)}]", "served: " + "; ".join(parts)]


def _brought(report: Report) -> list[str]:
    found = report.brought
    lines = []
    for row in figures.rows(found):
        before, after = shown(row.before, row.places), shown(row.after, row.places)
        ratio = f", x {shown(row.ratio, 2)}" if row.ratio.median is not None else ""
        lines.append(
            f"{row.name}: {before} -> {after}{ratio}" if found.after else f"{row.name}: {before} before"
        )
    word = figures.verdict(report)
    if word and found.after:
        reasons = "; ".join(str(each) for each in found.after.document.get("reasons") or ())
        lines.append(f"{word.upper()}" + (f": {reasons}" if reasons else ""))
    return lines
