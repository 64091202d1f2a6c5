"""What reaches the draft's `fc`, computed from the installed files by the wiring engine that lies beside this package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .install import Install, load, remember
from .models import Model

SERVER_MODULES = (
    "sglang/srt/models/deepseek_v2.py",
    "sglang/srt/models/kimi_k25.py",
    "sglang/srt/model_executor/cuda_graph_runner.py",
    "sglang/srt/model_executor/model_runner.py",
)


@dataclass(frozen=True)
class Mode:
    """One forward mode: the layers captured (None unknown), or the error that the real one would raise."""

    layers: tuple[str, ...] | None
    error: str | None = None
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """What the server found out before starting its ranks."""

    eager: Mode
    graph: Mode
    overlap: Mode
    logged: tuple[
        tuple[str, str], ...
    ] = ()  # level, message: what the installed code logs in the order of its calls
    syntax_errors: tuple[tuple[str, str, int], ...] = ()  # relative file, message, line
    stale: tuple[str, ...] = ()  # files whose bytecode is not their source's


def _mode(result: Any) -> Mode:
    return Mode(
        None if result.layers is None else tuple(result.layers),
        result.error,
        result.unknown or result.explain or "",
    )


def _needed(wiring: Any, version: str, architecture: str) -> list[str]:
    return sorted({*SERVER_MODULES, *wiring.needed_files(version, architecture)})


def make_plan(
    install: Install, target: Model, draft: Model | None, memory: Path, known: Sequence[Path]
) -> Plan:
    """Import the patched modules' text through the bytecode rules and compute the wiring of every mode."""
    try:
        wiring = importlib.import_module("wiring")
    except ImportError:
        nothing = Mode(None, None, "no wiring engine beside the simulator")
        return Plan(nothing, nothing, nothing)
    sources: dict[str, str] = {}
    broken: list[tuple[str, str, int]] = []
    stale: list[str] = []
    unknown: list[str] = []
    for relative in _needed(wiring, install.version, target.architecture):
        try:
            loaded = load(install, relative, [memory, *known])
        except FileNotFoundError:
            continue
        if loaded.error is not None:
            broken.append((relative, loaded.error.msg or "invalid syntax", loaded.error.lineno or 0))
        elif loaded.text is None:
            unknown.append(relative)
        else:
            sources[relative] = loaded.text
            remember(memory, relative, loaded.text)
        if loaded.stale:
            stale.append(relative)
    nothing = Mode(None, None, "no speculation")
    if unknown:
        nothing = Mode(None, None, f"bytecode of unknown source: {', '.join(unknown)}")
    if broken or unknown or draft is None:
        return Plan(nothing, nothing, nothing, (), tuple(broken), tuple(stale))
    logged: list[tuple[str, str]] = []
    found = wiring.compute(
        sources,
        version=install.version,
        architecture=target.architecture,
        num_layers=target.num_layers,
        first_k_dense_replace=target.first_k_dense_replace,
        draft_config=draft.config,
        log=lambda level, message: logged.append((level, message)),
    )
    return Plan(_mode(found.eager), _mode(found.graph), _mode(found.overlap), tuple(logged), (), tuple(stale))
