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
    """The options as they were typed; None for what was not given."""

    baseline: str | None = None
    save_as: str | None = None
    prompts: str | None = None
    requests: str | int | None = None
    concurrency: str | int | None = None
    max_tokens: str | int | None = None
    limit_s: str | int | None = None
    client: str = "fixops"
    anyway: bool = False


def options_of(asked: Asked) -> Options:
    """UsageError for what cannot be: told before any node is reached."""
    return Options(
        plan(
            prompts=asked.prompts,
            requests=_number("--requests", asked.requests),
            concurrency=_number("--concurrency", asked.concurrency),
            max_tokens=_number("--max-tokens", asked.max_tokens),
            limit_s=_number("--limit", asked.limit_s),
            client=asked.client,
        ),
        None if asked.baseline is None else baselines.find(asked.baseline),
        None if asked.save_as is None else baselines.check_name(asked.save_as),
        asked.anyway,
    )


def _number(option: str, typed: str | int | None) -> int | None:
    """What was typed, which is not left to Invoke: `--requests 0` would be as if nothing had been."""
    try:
        return None if typed is None else int(typed)
    except ValueError:
        raise UsageError(
            f"{option} {typed}: not a whole number", hint="leave it out for the default"
        ) from None


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
