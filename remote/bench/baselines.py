"""Runs that were kept: every one by node and id, and those that were given a name, as baselines.

    $XDG_STATE_HOME/fixops/bench/NODE/RUN.json      every run measured from this machine
    $XDG_STATE_HOME/fixops/baselines/NAME.json      the same, under the name of --save-as

Both hold what `inv bench --json` shows of a node. A baseline from elsewhere (a colleague, a paper) needs
no more than {"schema": 1, "summary": {"accept_len": 1.8}}: see docs/bench.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import UsageError
from ..yamlfile import what_is_wrong
from . import stored, summary
from .summary import Summary

SCHEMA = 1
TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "baselines"
_HINT = "a file that `inv bench --save-as` wrote, or one as docs/bench.md describes"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Past:
    """One request of an earlier run."""

    prompt_sha256: str
    accept_len: float | None
    output_tok_s: float | None
    e2e_s: float | None
    ttft_s: float | None
    output_sha256: str | None


@dataclass(frozen=True)
class Load:
    """What was asked of the server; None where it was not told."""

    prompts_sha256: str | None
    concurrency: int | None
    max_tokens: int | None
    client: str | None


@dataclass(frozen=True)
class Baseline:
    """`model`: the path of what was served. `fix_applied`: whether the fix was in effect in it,
    None if not told. `cached_share`: of its prompt tokens. `spread`: how far from warm the server was
    (warmup.spread). `spoiled`: figures that its own guards rejected."""

    name: str
    path: Path
    summary: Summary
    load: Load
    runs: tuple[Past, ...]
    model: str | None
    fix: str | None
    fix_applied: bool | None
    cached_share: float | None
    spread: float | None
    spoiled: tuple[str, ...]
    document: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The contract's `baseline`: like `summary`, and where it is from."""
        kept = ("node", "time", "run_id", "note")
        return {
            **self.summary.to_json(),
            "name": self.name,
            **{key: self.document.get(key) for key in kept},
            "fix": self.document.get("fix"),
            "load": self.document.get("load"),
        }


def directory() -> Path:
    """$XDG_STATE_HOME/fixops, else ~/.local/state/fixops."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state") / "fixops"


def check_name(name: str) -> str:
    """A name that is a file name too. UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot be a baseline's name", hint="letters, digits, '.', '_' and '-', at most 64"
        )
    return name


def prepare(node: str) -> None:
    """Make the folder where a run will be kept: better to learn before measuring that it cannot be."""
    folder = directory() / "bench" / node
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written")
    except OSError as error:
        raise _cannot_keep(error) from None


def _cannot_keep(error: OSError) -> UsageError:
    return UsageError(
        f"the run cannot be kept: {error}", hint="set XDG_STATE_HOME to a folder that can be written"
    )


def is_there(name: str) -> bool:
    """Whether a run of this machine has that name."""
    return (directory() / "baselines" / f"{check_name(name)}.json").exists()


def keep(document: Mapping[str, Any], *, save_as: str | None) -> Path:
    """Store a run, and under its name if it has one. UsageError where nothing can be written."""
    paths = [directory() / "bench" / str(document["node"]) / f"{document['run_id']}.json"]
    if save_as is not None:
        paths.append(directory() / "baselines" / f"{check_name(save_as)}.json")
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
    except OSError as error:
        raise _cannot_keep(error) from None
    return paths[-1]


def names() -> list[str]:
    """The baselines that --baseline NAME finds."""
    folders = (directory() / "baselines", TEMPLATES)
    return sorted({path.stem for folder in folders for path in folder.glob("*.json")})


def find(name_or_file: str) -> Baseline:
    """A baseline by name, run id or file. UsageError names those that there are."""
    places = []
    if "/" in name_or_file or name_or_file.endswith(".json"):
        places.append(Path(name_or_file))
    if _NAME.fullmatch(name_or_file):
        file = f"{name_or_file}.json"
        places += [directory() / "baselines" / file, TEMPLATES / file]
        places += sorted((directory() / "bench").glob(f"*/{file}"))
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        known = ", ".join(names()) or "none yet"
        raise UsageError(
            f"there is no baseline '{name_or_file}'", hint=f"known: {known}; --save-as NAME makes one"
        )
    return read(path, name=None if path.name != f"{name_or_file}.json" else name_or_file)


def read(path: Path, *, name: str | None = None) -> Baseline:
    """A stored run. UsageError when it is none."""
    try:
        document = stored.load(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"the baseline {path} cannot be read: {error}", hint=_HINT) from None
    return parse(document, path, name)


def parse(document: Any, path: Path, name: str | None) -> Baseline:
    """A run from its JSON, by the name that it was saved as unless one is given. UsageError names what in it
    is no such thing."""
    if not isinstance(document, dict) or not isinstance(document.get("summary"), dict):
        raise UsageError(f"{path} is no baseline: it has no summary", hint=_HINT)
    if document.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"{path} is of schema {document['schema']}, known is {SCHEMA}", hint=_HINT)
    try:
        told = stored.Run.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: {what_is_wrong(place, first)}", hint=_HINT) from None
    found = summary.from_json(told.summary)
    if found.accept_len.median is None and found.output_tok_s.median is None:
        raise UsageError(
            f"{path} has neither accept_len nor output_tok_s", hint="a baseline needs at least one of them"
        )
    load, fix = told.load or stored.Asked(), told.fix or stored.Fix()
    return Baseline(
        name=name or told.saved_as or path.stem,
        path=path,
        summary=found,
        load=Load(load.prompts_sha256, load.concurrency, load.max_tokens, load.client),
        runs=tuple(_past(each) for each in told.runs or ()),
        model=told.args.model_path if told.args else None,
        fix=fix.name,
        fix_applied=fix.applied,
        cached_share=load.cached_share,
        spread=told.warm_up.spread if told.warm_up else None,
        spoiled=tuple(sorted({figure for guard in told.guards or () for figure in guard.spoils or ()})),
        document=document,
    )


def _past(run: stored.Answer) -> Past:
    return Past(
        str(run.prompt_sha256), run.accept_len, run.output_tok_s, run.e2e_s, run.ttft_s, run.output_sha256
    )
