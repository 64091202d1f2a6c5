"""The prompts of a run: ours from templates/prompts, or the user's own file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ..errors import UsageError
from . import stored

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "prompts"
WARM_UP = TEMPLATES / "warm-up.txt"
_LINE = 'each line is {"id": "name", "text": "the prompt"}; id may be left out'


@dataclass(frozen=True)
class Prompt:
    """`id` names it in tables; `sha256` (16 digits) of its text pairs it with the same one in another run."""

    id: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def load(path: str | None = None) -> tuple[Prompt, ...]:
    """The project's prompts, or those of a file: JSON lines {"id"?, "text"}, or plain text with one prompt
    per line. UsageError with file and line for what is neither."""
    if path is not None:
        return read(Path(path))
    kinds = [read(file) for file in sorted(TEMPLATES.glob("*.jsonl"))]
    # One of each kind in turn, so that --requests with a small number still asks for all kinds.
    return tuple(prompt for turn in zip_longest(*kinds) for prompt in turn if prompt is not None)


def warm_up() -> Prompt:
    """One long prompt of its own: a measured prompt must not be in the server's cache because of us."""
    return Prompt("warm-up", WARM_UP.read_text(encoding="utf-8"))


def read(path: Path) -> tuple[Prompt, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark in front
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompts {path} cannot be read: {error}", hint="--prompts FILE") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no prompt", hint="one per line, as text or as JSON")
    _refuse_array(path, text)
    if lines[0][1].lstrip().startswith("{"):
        found = [_from_json(path, number, line) for number, line in lines]
    else:
        found = [Prompt(f"{path.stem}:{number}", line.strip()) for number, line in lines]
    _refuse_twice(path, found)
    return tuple(found)


def _refuse_array(path: Path, text: str) -> None:
    """One JSON list of everything: line by line it would be taken for text."""
    try:
        listed = text.lstrip().startswith("[") and isinstance(stored.parse(text), list)
    except ValueError:
        return
    if listed:
        raise UsageError(f"{path} is one JSON list, and prompts are JSON lines", hint=_LINE)


def _from_json(path: Path, number: int, line: str) -> Prompt:
    try:
        value = stored.parse(line)
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not JSON: {error}", hint=_LINE) from None
    text = value.get("text", value.get("prompt")) if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{path}:{number}: no text", hint=_LINE)
    return Prompt(str(value.get("id") or f"{path.stem}:{number}"), text)


def _refuse_twice(path: Path, prompts: Sequence[Prompt]) -> None:
    seen: set[str] = set()
    for prompt in prompts:
        for name, value in (("id", prompt.id), ("text", prompt.sha256)):
            if f"{name} {value}" in seen:
                raise UsageError(
                    f"{path}: prompt {prompt.id} is there twice (its {name})",
                    hint="a second answer to the same prompt comes from the cache: use --requests for more",
                )
            seen.add(f"{name} {value}")


def set_digest(prompts: Sequence[Prompt]) -> str:
    """One name (16 digits) for the whole set, whatever its order."""
    return hashlib.sha256("".join(sorted(p.sha256 for p in prompts)).encode()).hexdigest()[:16]
