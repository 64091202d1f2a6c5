"""`inv bench`'s options, and how it ends when it is stopped."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InterruptedByUser
from . import baselines
from .assemble import Options
from .plan import plan
from .result import Bench


@dataclass(frozen=True)
class Asked:
    """The options as they were typed; 0 for numbers that were not given."""

    baseline: str | None = None
    save_as: str | None = None
    prompts: str | None = None
    requests: int = 0
    concurrency: int = 0
    max_tokens: int = 0
    limit_s: int = 0
    client: str = "fixops"
    anyway: bool = False


def options_of(asked: Asked) -> Options:
    """UsageError for what cannot be: told before any node is reached."""
    return Options(
        plan(
            prompts=asked.prompts,
            requests=asked.requests or None,
            concurrency=asked.concurrency or None,
            max_tokens=asked.max_tokens or None,
            limit_s=asked.limit_s or None,
            client=asked.client,
        ),
        baselines.find(asked.baseline) if asked.baseline else None,
        baselines.check_name(asked.save_as) if asked.save_as else None,
        asked.anyway,
    )


def interrupted(found: Bench) -> InterruptedByUser:
    """Exit code 130, with what was measured until then as the node's entry."""
    entry = {key: value for key, value in found.to_json().items() if key != "node"}
    return InterruptedByUser(
        f"{found.node}: interrupted after {len(found.requests)} of {found.load['requests']} requests",
        hint="what was measured until then is shown, and kept without a name",
        node=found.node,
        data=entry,
    )
