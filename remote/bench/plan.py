"""What a run is to ask of the server, from the command's options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import UsageError
from . import prompts as prompt_files
from .prompts import Prompt, set_digest

CONCURRENCY = 4
MAX_TOKENS = 256
LIMIT_S = 900.0

Client = Literal["fixops", "sglang"]


@dataclass(frozen=True)
class Plan:
    """`prompts`: those that are used; `order`: their ids as they are sent, with repeats where more requests
    are wanted than there are prompts. `limit_s`: of the measurement, without warm-up."""

    prompts: tuple[Prompt, ...]
    order: tuple[str, ...]
    source: str
    concurrency: int
    max_tokens: int
    limit_s: float
    client: Client

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Greedy, and with the natural end of the answer: what is generated after it is nobody's text."""
        return {
            "text": prompt.text,
            "sampling_params": {"temperature": 0, "max_new_tokens": self.max_tokens},
        }

    def bodies(self) -> dict[str, dict[str, Any]]:
        return {prompt.id: self.body(prompt) for prompt in self.prompts}

    def to_json(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "prompts": self.source,
            "prompts_sha256": set_digest(self.prompts),
            "requests": len(self.order),
            "concurrency": self.concurrency,
            "max_tokens": self.max_tokens,
            "temperature": 0,
        }


def plan(
    *,
    prompts: str | None = None,
    requests: int | None = None,
    concurrency: int | None = None,
    max_tokens: int | None = None,
    limit_s: float | None = None,
    client: str = "fixops",
) -> Plan:
    """UsageError for numbers that mean nothing and for a file that holds no prompts."""
    _refuse(requests is not None and requests < 1, "--requests", requests, "at least 1")
    _refuse(
        concurrency is not None and not 1 <= concurrency <= 1024, "--concurrency", concurrency, "1 to 1024"
    )
    _refuse(max_tokens is not None and max_tokens < 8, "--max-tokens", max_tokens, "at least 8")
    _refuse(limit_s is not None and limit_s <= 0, "--limit", limit_s, "seconds, above 0")
    if client not in ("fixops", "sglang"):
        raise UsageError(f"--client {client}: there is no such client", hint="fixops or sglang")
    found = prompt_files.load(prompts)
    count = requests or len(found)
    order = [found[place % len(found)] for place in range(count)]
    return Plan(
        prompts=_used(order),
        order=tuple(prompt.id for prompt in order),
        source=prompts or "templates/prompts",
        concurrency=min(concurrency or CONCURRENCY, count),
        max_tokens=max_tokens or MAX_TOKENS,
        limit_s=limit_s or LIMIT_S,
        client="sglang" if client == "sglang" else "fixops",
    )


def _used(order: Sequence[Prompt]) -> tuple[Prompt, ...]:
    return tuple({prompt.id: prompt for prompt in order}.values())


def _refuse(wrong: bool, option: str, value: object, hint: str) -> None:
    if wrong:
        raise UsageError(f"{option} {value} is not possible", hint=hint)
