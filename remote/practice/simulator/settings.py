"""Settings of the simulated server: `simulator.json` beside the package, and the fault switches."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STAGES = ("starting", "loading-target", "loading-draft", "graph-capture", "warmup", "serving")
SETTINGS_ENV = "FIXOPS_SIMULATOR_SETTINGS"
FAULTS_ENV = "FIXOPS_SIMULATOR_FAULTS"


class SettingsError(Exception):
    """The settings file or the faults in the environment are wrong; the server ends with exit code 2."""


@dataclass(frozen=True)
class RankDeath:
    """One rank ends by `signal` when it reaches the stage `at`, as when the kernel's OOM killer takes it."""

    rank: int = 0
    at: str = "loading-target"
    signal: int = 9


@dataclass(frozen=True)
class Faults:
    """Ways in which the server misbehaves on purpose; all off by default."""

    orphans: bool = False
    ignore_sigterm: bool = False
    hang_on_rank_death: bool = False
    rank_dies: RankDeath | None = None
    hang_at: str | None = None
    oom_at: str | None = None
    nccl: bool = False
    health_lies: bool = False
    generate_hangs: bool = False
    warmup_fails: bool = False
    keep_holder: bool = False


@dataclass(frozen=True)
class Settings:
    """Times in seconds at speed 1, memory in MiB of one rank.

    `memory_is_limited`: what others hold of a GPU is missed when loading, so a server beside a running one
    fails. `source_texts`: wheels or trees in which to look for the text that bytecode of unknown source was
    made from.
    """

    gpus_dir: str | None = None
    gpu_total_mib: int = 97887
    context_mib: int = 620
    weights_mib: int = 73000
    draft_mib: int = 600
    kv_mib: int = 12000
    graph_mib: int = 2000
    speed: float = 1.0
    step_ms: float = 20.0
    health_s: float = 1.0
    health_timeout_s: float = 20.0
    drain_s: float = 0.3
    seed: int = 0
    version: str | None = None
    trained_input: tuple[str, ...] = ("embed", "in:3", "in:31")
    acceptance_match: float = 0.769
    acceptance_mismatch: float = 0.341
    source_texts: tuple[str, ...] = ()
    memory_is_limited: bool = True
    faults: Faults = field(default_factory=Faults)


def _fields(kind: type[Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = {item.name for item in dataclasses.fields(kind)}
    for key in given:
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r} (known: {', '.join(sorted(known))})")
    return dict(given)


def make_faults(given: Mapping[str, Any], where: str) -> Faults:
    """Faults from their JSON form. Raises SettingsError for an unknown key or stage."""
    values = _fields(Faults, given, where)
    if values.get("rank_dies") is not None:
        values["rank_dies"] = RankDeath(**_fields(RankDeath, values["rank_dies"], f"{where}: rank_dies"))
    faults = Faults(**values)
    stages = [faults.hang_at, faults.oom_at, faults.rank_dies.at if faults.rank_dies else None]
    for stage in stages:
        if stage is not None and stage not in STAGES:
            raise SettingsError(f"{where}: {stage!r} is no stage (stages: {', '.join(STAGES)})")
    return faults


def load_settings(home: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read `home/simulator.json` (or the file that FIXOPS_SIMULATOR_SETTINGS names) and merge the faults of
    the environment.

    No file means all defaults. Raises SettingsError.
    """
    named = environ.get(SETTINGS_ENV)
    path = Path(named) if named else home / "simulator.json"
    given: dict[str, Any] = {}
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise SettingsError(f"{path} (from {SETTINGS_ENV}) does not exist") from None
    except ValueError as error:
        raise SettingsError(f"{path} is not JSON: {error}") from None
    values = _fields(Settings, given, str(path))
    switches = dict(values.pop("faults", None) or {})
    try:
        switches.update(json.loads(environ.get(FAULTS_ENV) or "{}"))
    except ValueError as error:
        raise SettingsError(f"{FAULTS_ENV} is not JSON: {error}") from None
    for key in ("trained_input", "source_texts"):
        if key in values:
            values[key] = tuple(values[key])
    return Settings(**values, faults=make_faults(switches, str(path)))
