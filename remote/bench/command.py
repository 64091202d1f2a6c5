"""`inv bench`'s options, and how it ends when it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InterruptedByUser, UsageError
from ..inventory import Node
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
        None if asked.baseline is None else baselines.find(asked.baseline),
        None if asked.save_as is None else baselines.check_name(asked.save_as),
        asked.anyway,
    )


def one_name(asked: Asked, nodes: Sequence[Node]) -> None:
    """UsageError for one name for the runs of several nodes: each would take the place of the one before."""
    if asked.save_as and len(nodes) > 1:
        first = nodes[0].name
        raise UsageError(
            f"--save-as {asked.save_as}: one name cannot hold the runs of {len(nodes)} nodes",
            hint=f"name them one by one: inv bench --save-as {asked.save_as}-{first} --node {first}",
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
