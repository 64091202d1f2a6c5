"""What the launcher does before it starts other processes: command line, models, effective arguments,
imports.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import argspec, logs, modelcheck, serverargs, tracebacks
from .dialect import dialect
from .install import Install
from .models import Model, read_model
from .rank import Server
from .settings import Settings
from .tracebacks import SimulatedError
from .wired import make_plan

DESCRIPTION = (
    "SIMULATED SGLang server of the practice node: no GPU and no model. "
    "It takes the flags of the installed SGLang and imitates its processes, log and replies."
)
SERVER_ARGS = "sglang/srt/server_args.py"


def _target(path: str) -> Model:
    try:
        return read_model(path)
    except (OSError, ValueError):
        raise SimulatedError(tracebacks.MODEL_CONFIG_FRAMES, modelcheck.no_config(path)) from None


def _draft(path: str | None) -> Model | None:
    try:
        return None if path is None else read_model(path)
    except (OSError, ValueError):
        return None


def _normalised(
    values: dict[str, Any], target: Model, settings: Settings, install: Install, source: str
) -> serverargs.Effective:
    asked = os.environ.get("SGLANG_ENABLE_SPEC_V2")
    return serverargs.normalise(
        values,
        target,
        version=install.version,
        source=source,
        gpu_mem_mib=settings.gpu_total_mib,
        spec_v2=None if asked is None else asked.lower() in {"1", "true", "yes"},
    )


def _import_failure(install: Install, error: SyntaxError) -> str:
    """The launcher's last words when a file that it imports itself does not compile."""
    frames = (
        ("sglang/launch_server.py", "<module>", "run_server(server_args)"),
        (
            "sglang/launch_server.py",
            "run_server",
            "from sglang.srt.entrypoints.http_server import launch_server",
        ),
        ("sglang/srt/entrypoints/http_server.py", "<module>", "from sglang.srt.entrypoints.engine import"),
    )
    ending = "".join(traceback.format_exception_only(error)).rstrip("\n")
    return tracebacks.render(install, frames, ending)


def prepare(argv: Sequence[str], settings: Settings, install: Install, home: Path) -> bytes:
    """Everything that is known before the ranks start, as a pickled Server; logs what the launcher does
    meanwhile.

    Raises SystemExit: 2 for a usage error, 1 where the real launcher ends with a traceback, which is then
    written.
    """
    source = install.path(SERVER_ARGS).read_text(encoding="utf-8")
    spec = argspec.read_spec(source)
    values = argspec.parse(spec, argspec.make_parser(spec, "launch_server.py", DESCRIPTION), argv)
    try:
        target = _target(values["model_path"])
        effective = _normalised(values, target, settings, install, source)
    except SimulatedError as error:
        logs.raw(tracebacks.render(install, error.frames, error.last))
        raise SystemExit(1) from None
    values = effective.values
    for warned in effective.warnings:
        logs.early(warned.message, warned.where)
    draft_path = values["speculative_draft_model_path"] if values["speculative_algorithm"] else None
    draft = _draft(draft_path)
    plan = make_plan(install, target, draft, home / "seen", [Path(place) for place in settings.source_texts])
    if plan.syntax_error is not None:
        logs.raw(_import_failure(install, plan.syntax_error))
        raise SystemExit(1)
    logs.log(f"server_args={serverargs.record(values)}")
    if draft is not None and plan.eager.layers is None and not (plan.eager.error or plan.fallback):
        logs.raw(f"SIMULATED: what reaches the draft is not known, taken for wrong: {plan.eager.why}\n")
    logs.log("Using default HuggingFace chat template with detected content format: string")
    return pickle.dumps(
        Server(
            install=install,
            spoken=dialect(install.version),
            settings=settings,
            values=values,
            target=target,
            draft_path=draft_path,
            draft=draft,
            plan=plan,
            launcher_pid=os.getppid(),
        )
    )
