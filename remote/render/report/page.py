"""The page: a report in, HTML out. All that came from the node is escaped by jinja2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...clock import utc
from ...report.model import Report, Run
from . import figures, plots, wiring
from .figures import duration, shown

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"

MODES = {"eager": "Prefill (eager)", "graph": "Decode (CUDA graph)", "overlap": "Two-batch overlap"}
_WORDS = {"match": ("as trained", "pass"), "mismatch": ("wrong", "fail"), "crash": ("dies", "fail")}
_KINDS = {
    "effective": "pass",
    "ineffective": "fail",
    "inconclusive": "unknown",
    "no-baseline": "skip",
    "proven": "pass",
    "failed": "fail",
    "not proven": "unknown",
}
_GUARDS = {"shown": ("note", "skip"), "spoils": ("spoils", "fail"), "unknown": ("unknown", "unknown")}
_ORDER = ("fail", "unknown", "pass", "skip")
_HEADLINE = ("accept length", "output tok/s of one request")


def html(report: Report) -> str:
    """The whole page. `report` has been cleaned of secrets and of characters that a page cannot show."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = figures.rows(report.brought)
    after = report.brought.after
    guards = list((after.document.get("guards") if after else None) or ())
    return environment.get_template("report.html.j2").render(
        report=report,
        verdict=figures.verdict(report),
        kinds=_KINDS,
        proven=figures.proven(report),
        proof_line=figures.proof_line(report),
        headline=[row for row in rows if row.name in _HEADLINE],
        rows=rows,
        files=[_file(each) for each in (report.deploy.files if report.deploy else ())],
        modes=_modes(report),
        plots=_plots(report),
        reasons=list((after.document.get("reasons") if after else None) or ()),
        guards=[_guard(each) for each in guards if each.get("state") in _GUARDS],
        guards_ok=[each.get("id") for each in guards if each.get("state") == "ok"],
        runs=_runs(report),
        checks=sorted(report.checks, key=lambda check: _ORDER.index(check.verdict)),
        definitions=_definitions(after),
        number=lambda value, places: f"{value:.{places}f}",
        utc=utc,
        duration=duration,
    )


def _file(found: Any) -> dict[str, Any]:
    return {**vars(found), "lines": [(_kind(line), line) for line in (found.diff or "").splitlines()]}


def _kind(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "head"
    return {"@": "hunk", "+": "add", "-": "del"}.get(line[:1], "same")


def _modes(report: Report) -> list[dict[str, Any]]:
    before = report.brought.before.wiring if report.brought.before else None
    found = []
    for mode in report.modes:
        word, kind = _WORDS.get(mode.verdict, ("unknown", "unknown"))
        if mode.applies is False:
            word, kind = "off", "skip"
        rows = wiring.lanes(mode.name, report.contract, report.wiring, before)
        drawn = wiring.draw(MODES[mode.name], rows)
        found.append({**vars(mode), "title": MODES[mode.name], "word": word, "kind": kind, "svg": drawn})
    return found


def _guard(guard: Mapping[str, Any]) -> dict[str, Any]:
    word, kind = _GUARDS[str(guard.get("state"))]
    spoils = ", ".join(guard.get("spoils") or ())
    detail = f"{guard.get('detail')}" + (f" (not judged: {spoils})" if spoils else "")
    return {"word": word, "kind": kind, "id": guard.get("id"), "detail": detail}


def _runs(report: Report) -> list[tuple[str, Run]]:
    sides = (("before", report.brought.before), ("after", report.brought.after))
    return [(side, run) for side, run in sides if run is not None]


def _definitions(after: Run | None) -> list[tuple[str, str]]:
    told = (after.document.get("summary") or {}).get("definitions") if after else None
    return [(str(name).replace("_", " "), str(text)) for name, text in (told or {}).items()]


def _plots(report: Report) -> list[dict[str, Any]]:
    """Those for which there is something to draw."""
    return [*_intervals(report), *_pairs(report), *_histogram(report)]


def _most(report: Report) -> float | None:
    """The longest that an accept length can be: every draft step accepted, and one token more."""
    steps = [run.summary.speculation.num_steps for _, run in _runs(report)]
    known = [each for each in steps if each]
    return max(known) + 1.0 if known else None


def _expected(report: Report, name: str) -> float | None:
    after = report.brought.after
    value = ((after.document.get("expected") if after else None) or {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _intervals(report: Report) -> Iterable[dict[str, Any]]:
    cases: Sequence[tuple[str, str, str, int, float, float | None]] = (
        ("accept_len", "Accept length", "tokens per verification of the draft", 2, 1.0, _most(report)),
        ("output_tok_s", "Output tok/s of one request", "tokens per second", 1, 0.0, None),
    )
    colors = {"before": plots.BEFORE, "after": plots.AFTER}
    for name, title, note, places, low, high in cases:
        rows = [(side, colors[side], getattr(run.summary, name)) for side, run in _runs(report)]
        known = [row for row in rows if row[2].median is not None]
        if not known:
            continue
        expected = _expected(report, name)
        legend = [(side, f"{side} {shown(found, places)}") for side, _, found in known]
        if expected is not None:
            legend.append(("expected", f"expected {expected:g}"))
        drawn = plots.intervals(name.replace("_", "-"), title, known, low=low, high=high, expected=expected)
        yield {
            "name": name,
            "title": title,
            "legend": legend,
            "svg": drawn,
            "note": f"{note}, 95 % intervals",
        }


def _histogram(report: Report) -> Iterable[dict[str, Any]]:
    counts = {side: sum(run.summary.histogram or ()) for side, run in _runs(report)}
    legend = [(side, f"{side}, {total} verifications") for side, total in counts.items() if total]
    if legend:
        title = "Drafts accepted per verification"
        found = {side: run.summary.histogram for side, run in _runs(report)}
        drawn = plots.histogram("histogram", title, found.get("before"), found.get("after"))
        note = "share of all verifications of a run"
        yield {"name": "histogram", "title": title, "legend": legend, "svg": drawn, "note": note}


def _pairs(report: Report) -> Iterable[dict[str, Any]]:
    cases = (
        ("accept_len", "Accept length by prompt", 1.0, _most(report)),
        ("output_tok_s", "Output tok/s by prompt", 0.0, None),
    )
    for name, title, low, high in cases:
        found = [(pair.prompt, getattr(pair, name)) for pair in report.brought.pairs]
        rows = [(prompt, *both) for prompt, both in found if both is not None]
        if rows:
            drawn = plots.paired(f"pairs-{name.replace('_', '-')}", title, rows, low=low, high=high)
            better = sum(after > before for _, before, after in rows)
            note = f"{better} of {len(rows)} prompts gain"
            legend = [("before", "before"), ("after", "after")]
            yield {"name": f"pairs-{name}", "title": title, "legend": legend, "svg": drawn, "note": note}
