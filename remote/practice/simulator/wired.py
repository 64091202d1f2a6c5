"""What reaches the draft's `fc`, computed from the installed files by the wiring engine that lies beside this
package.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import registry
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
    site: str = ""  # "path:line" of the call that set the layers


@dataclass(frozen=True)
class Plan:
    """What the server found out before starting its ranks."""

    eager: Mode
    graph: Mode
    overlap: Mode
    logged: tuple[
        tuple[str, str], ...
    ] = ()  # level, message: what the installed code logs, in the order of its calls
    ignored: tuple[str, ...] = ()  # the registry's lines about model files that do not import
    fallback: bool = False  # the target's own file is one of them
    members: frozenset[str] | None = None  # methods of the target's class; None where not known
    syntax_error: SyntaxError | None = None  # in a file that the launcher itself imports: it ends with it
    stale: tuple[str, ...] = ()  # files whose bytecode is not their source's

    def hook_lines(self) -> tuple[list[str], list[str]]:
        """What is logged before the graphs are captured, and what after.

        The engine gives the messages in their order without the place. Where one call sets the layers of both
        modes (0.5.11) all come before; else the last call is the model runner's, after the graphs, and every
        call logs as much as the others.
        """
        messages = [message for level, message in self.logged if level != "debug"]
        if self.eager.site == self.graph.site:
            return messages, []
        after = len(messages) // 2 if len(messages) % 2 == 0 else max(1, len(messages) // 3)
        return messages[: len(messages) - after], messages[len(messages) - after :]


@dataclass(frozen=True)
class Texts:
    """The files that matter, as this interpreter would run them."""

    sources: dict[str, str]
    broken: dict[str, SyntaxError]
    unknown: tuple[str, ...]  # bytecode runs whose text is not known
    stale: tuple[str, ...]


def read_texts(install: Install, wanted: Sequence[str], memory: Path, known: Sequence[Path]) -> Texts:
    """Import each file's text through the bytecode rules; files that do not exist are left out."""
    sources: dict[str, str] = {}
    broken: dict[str, SyntaxError] = {}
    unknown: list[str] = []
    stale: list[str] = []
    for relative in wanted:
        try:
            loaded = load(install, relative, [memory, *known])
        except FileNotFoundError:
            continue
        if loaded.stale:
            stale.append(relative)
        if loaded.error is not None:
            broken[relative] = loaded.error
        elif loaded.text is None:
            unknown.append(relative)
        else:
            sources[relative] = loaded.text
            remember(memory, relative, loaded.text)
    return Texts(sources, broken, tuple(unknown), tuple(stale))


def _mode(result: Any) -> Mode:
    layers = None if result.layers is None else tuple(result.layers)
    return Mode(layers, result.error, result.unknown or result.explain or "", result.call_site or "")


def _defines(install: Install, relative: str, architecture: str) -> bool:
    path = install.path(relative)
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return bool(re.search(rf"^class {re.escape(architecture)}\(", text, re.MULTILINE))


def _compute(
    wiring: Any, texts: Texts, install: Install, target: Model, draft: Model
) -> tuple[Any, list[tuple[str, str]]]:
    logged: list[tuple[str, str]] = []
    found = wiring.compute(
        texts.sources,
        version=install.version,
        architecture=target.architecture,
        num_layers=target.num_layers,
        first_k_dense_replace=target.first_k_dense_replace,
        draft_config=draft.config,
        log=lambda level, message: logged.append((level, message)),
    )
    return found, logged


def make_plan(
    install: Install, target: Model, draft: Model | None, memory: Path, known: Sequence[Path]
) -> Plan:
    """Import the patched modules and compute the wiring of every mode."""
    wiring = importlib.import_module("wiring")
    wanted = sorted({*SERVER_MODULES, *wiring.needed_files(install.version, target.architecture)})
    texts = read_texts(install, wanted, memory, known)
    broken = {
        Path(relative).stem: f"{error.msg} ({Path(relative).name}, line {error.lineno})"
        for relative, error in texts.broken.items()
        if relative.startswith(registry.MODELS)
    }
    failing = registry.failing_imports(install, broken)
    nothing = Mode(None, None, "no speculation")
    plan = Plan(
        nothing,
        nothing,
        nothing,
        ignored=tuple(registry.ignored_imports(failing)),
        fallback=any(
            _defines(install, f"{registry.MODELS}/{name}.py", target.architecture) for name in failing
        ),
        members=registry.class_members(texts.sources, target.architecture),
        syntax_error=next(
            (texts.broken[name] for name in wanted if name in texts.broken and Path(name).stem not in broken),
            None,
        ),
        stale=texts.stale,
    )
    if texts.broken or draft is None:
        return plan
    if texts.unknown:
        nothing = Mode(None, None, f"bytecode of unknown source: {', '.join(texts.unknown)}")
        return replace(plan, eager=nothing, graph=nothing, overlap=nothing)
    found, logged = _compute(wiring, texts, install, target, draft)
    return replace(
        plan,
        eager=_mode(found.eager),
        graph=_mode(found.graph),
        overlap=_mode(found.overlap),
        logged=tuple(logged),
    )
