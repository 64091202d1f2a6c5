"""A report rendered: the page's file written, or its text printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from ...bench import baselines
from ...errors import ExitCode, UsageError
from ...report.model import Report
from ..console import console, next_step
from . import figures
from .clean import cleaned
from .page import html
from .text import text


@dataclass(frozen=True)
class Written:
    """A report and where its page lies; None where only the text was asked for."""

    report: Report
    text: str
    path: str | None

    @property
    def exit_code(self) -> ExitCode:
        """0: a report is written whatever it tells; `inv verify` and `inv bench` judge."""
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        report, brought = self.report, self.report.brought
        return {
            "node": report.node,
            "deploy_id": report.deploy.id if report.deploy else None,
            "path": self.path,
            "simulated": report.simulated,
            "proven": figures.proven(report),
            "verdict": figures.verdict(report),
            "runs": {
                "before": brought.before.run_id if brought.before else None,
                "after": brought.after.run_id if brought.after else None,
            },
            "missing": [vars(each) for each in report.missing],
            "text": self.text,
        }


def target(report: Report, output: str | None, *, many: bool) -> Path:
    """Where the page goes: `output`, a file or a folder; else $XDG_STATE_HOME/fixops/reports. UsageError for
    one file for many nodes."""
    id = report.deploy.id if report.deploy else "no-deploy"
    name = f"fixops-report-{report.node}-{id}.html"
    if output is None:
        return baselines.directory() / "reports" / name
    path = Path(output).expanduser()
    if output.endswith("/") or path.is_dir():
        return path / name
    if many:
        raise UsageError(
            f"--output {output} is one file for several nodes", hint="give a folder: --output DIR/"
        )
    return path


def write(
    report: Report, clean: Callable[[str], str], output: str | None, *, page: bool = True, many: bool = False
) -> Written:
    """Render, and write the page whole or not at all. UsageError where it cannot be written."""
    shown = cleaned(report, clean)
    if not page:
        return Written(shown, text(shown), None)
    path = target(shown, output, many=many).absolute()
    beside = path.with_name(f".{path.name}.part")
    try:
        if output is None or output.endswith("/"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside.write_text(html(shown), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="--output PATH") from None
    return Written(shown, text(shown), str(path))


def show(result: Written, *, as_text: bool) -> None:
    """The text, or the figures in short and the path of the page."""
    out = console()
    if as_text:
        out.print(result.text, soft_wrap=True, end="")
    if result.path is None:
        return
    if not as_text:
        for each in result.report.missing:
            out.print(Text.assemble(("missing: ", "unknown"), each.what), soft_wrap=True)
            if each.command:
                out.print(Text.assemble(("next:    ", "heading"), next_step(each.command)), soft_wrap=True)
    out.print(Text(f"report: {result.path}"), soft_wrap=True)
