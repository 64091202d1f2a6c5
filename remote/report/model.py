"""What a report holds. Pure data; times are seconds since the epoch, None where they are not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..bench.stored import Asked
from ..bench.summary import Summary
from ..checks import Check
from ..diagnose import Mode

# What is now where the deploy wrote: its own content, the original, something else, nothing known.
Now = Literal["as deployed", "the original", "changed since", "unknown"]


@dataclass(frozen=True)
class Step:
    """One action from the node's journal. `outcome`: "ok", "error", "failed" (a check), or "unknown" where it
    was cut off."""

    action: str
    detail: str
    outcome: str
    error: str | None
    began: float | None
    seconds: float | None


@dataclass(frozen=True)
class Replaced:
    """One file that the deploy wrote. `kind`: what stood there ("file", "symlink", "absent"); `kept`: where
    on the node the original lies. `diff` is None where a content could not be had: see `why_no_diff`."""

    path: str
    label: str
    kind: str
    before_sha256: str | None
    after_sha256: str
    now: Now
    kept: str | None
    diff: str | None
    why_no_diff: str | None


@dataclass(frozen=True)
class Deploy:
    """`restored`: when a rollback put its files back. `later`: commands that changed the node since."""

    id: str
    command: str
    who: str
    began: float | None
    ended: float | None
    steps: tuple[Step, ...]
    files: tuple[Replaced, ...]
    restored: float | None
    later: tuple[str, ...]


@dataclass(frozen=True)
class PromptFigures:
    """What one prompt gave in a run, repeats averaged."""

    prompt: str
    accept_len: float | None
    output_tok_s: float | None


@dataclass(frozen=True)
class Run:
    """One benchmark. `source`: the file it is kept in, or "the node's journal", which has the figures only.
    `wiring` as in verify's JSON at that time, None where it was not kept; `prompts` by the prompt's hash.
    Of a baseline written by hand anything may be missing: None, or empty."""

    run_id: str
    name: str | None
    time: float
    who: str
    source: str
    summary: Summary
    prompts: Mapping[str, PromptFigures]
    wiring: Mapping[str, Any] | None
    load: Asked
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """One prompt that both runs answered: (before, after)."""

    prompt: str
    accept_len: tuple[float, float] | None
    output_tok_s: tuple[float, float] | None


@dataclass(frozen=True)
class Brought:
    """`comparison`: as `inv bench` judged the two runs, None where `after` was held against another."""

    before: Run | None
    after: Run | None
    pairs: tuple[Pair, ...]
    comparison: Mapping[str, Any] | None


@dataclass(frozen=True)
class Missing:
    """What the page cannot show, and the command that makes it."""

    what: str
    command: str


@dataclass(frozen=True)
class Report:
    """`contract`: what the draft was trained with. `answer`: diagnose's line, where a check fails."""

    node: str
    host: str
    time: float
    who: str
    simulated: bool
    version: str | None
    fix: str
    fix_title: str
    fix_why: str
    fix_state: str | None
    deploy: Deploy | None
    checks: tuple[Check, ...]
    contract: tuple[str, ...] | None
    wiring: Mapping[str, Any]
    modes: tuple[Mode, ...]
    answer: str | None
    brought: Brought
    missing: tuple[Missing, ...]

    def count(self, verdict: str) -> int:
        return sum(check.verdict == verdict for check in self.checks)
