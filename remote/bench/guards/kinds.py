"""What a guard says, and everything that guards look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..meanwhile import Meanwhile
from ..measured import Phase, Request
from ..summary import Speculation

State = Literal["ok", "shown", "spoils", "unknown"]
ACCEPT, SPEED = "accept_len", "output_tok_s"
BOTH = (ACCEPT, SPEED)

# Fewer different prompts than this say nothing about prompts in general.
LEAST_PROMPTS = 5


@dataclass(frozen=True)
class Guard:
    """`spoils`: the figures that must not be judged; empty unless `state` is "spoils"."""

    id: str
    state: State
    detail: str
    spoils: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "state": self.state, "detail": self.detail, "spoils": list(self.spoils)}


@dataclass(frozen=True)
class Seen:
    """`rates`: of the warm-up runs; `gap_s`: from the warm-up's end to the run's beginning, None without one;
    `failed_checks`: of verify; `meant_model`: the inventory's; `changing`: who holds the node's lock."""

    phase: Phase
    concurrency: int
    max_tokens: int
    speculation: Speculation
    version: str | None
    installed: str | None
    meant_model: str
    rates: tuple[float, ...]
    gap_s: float | None
    failed_checks: tuple[str, ...]
    changing: str | None
    meanwhile: Meanwhile


def cached_share(requests: Sequence[Request]) -> float | None:
    """Prompt tokens that came from the cache, of all of them, 0 to 1."""
    known = [r for r in requests if r.told.cached_tokens is not None and r.told.prompt_tokens]
    total = sum(r.told.prompt_tokens or 0 for r in known)
    return sum(r.told.cached_tokens or 0 for r in known) / total if total else None
