"""A run as JSON holds it: kept by `inv bench`, sent by a colleague, or written by hand from a paper.

Of what is read the types are checked, so that nothing after it meets text where it wants a number; what is
absent or null is None, and what is not read may be anything.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from .stats import MOST, UNKNOWN, Figure, figure


class _Told(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


def _whole(value: object) -> object:
    """5.0 is 5: other languages write whole numbers so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _measured(found: Figure) -> Figure:
    known = [value for value in (found.low, found.median, found.high) if value is not None]
    if known != sorted(known) or min(known, default=1.0) <= 0:
        raise ValueError("it must be above 0, and lie between its own low and high")
    return found


Number = Annotated[float, Field(ge=0, le=MOST)]
Whole = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=MOST)]
# Far above any server's: the implied acceptance is computed step by step.
Drafts = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=1000)]
AFigure = Annotated[Figure, PlainValidator(figure)]
Judged = Annotated[Figure, PlainValidator(figure), AfterValidator(_measured)]


class OfServer(_Told):
    accept_rate: AFigure = UNKNOWN


class Figures(_Told):
    """The contract's `summary`."""

    accept_len: Judged = UNKNOWN
    output_tok_s: Judged = UNKNOWN
    decode_tok_s: AFigure = UNKNOWN
    server_output_tok_s: AFigure = UNKNOWN
    ttft_s: AFigure = UNKNOWN
    accept_rate: AFigure = UNKNOWN
    implied_step_acceptance: AFigure = UNKNOWN
    num_draft_tokens: Drafts | None = None
    num_steps: Drafts | None = None
    eagle_topk: Whole | None = None
    sglang_version: str | None = None
    histogram: list[Whole] | None = None
    server: OfServer | None = None
    definitions: dict[str, Any] | None = None
    completion_tokens: Whole | None = None
    requests: Whole | None = None
    failed: Whole | None = None
    concurrency: Number | None = None
    elapsed_s: Number | None = None
    simulated: bool | None = None


class Answer(_Told):
    """One of the contract's `runs`."""

    prompt: str | None = None
    prompt_sha256: str | None = None
    accept_len: Number | None = None
    output_tok_s: Number | None = None
    e2e_s: Number | None = None
    ttft_s: Number | None = None
    output_sha256: str | None = None


class Asked(_Told):
    prompts_sha256: str | None = None
    concurrency: Whole | None = None
    max_tokens: Whole | None = None
    client: str | None = None
    cached_share: Annotated[float, Field(ge=0, le=1)] | None = None


class Fix(_Told):
    name: str | None = None
    applied: bool | None = None


class Args(_Told):
    model_path: str | None = None


class Guarded(_Told):
    id: str | None = None
    state: str | None = None
    detail: str | None = None
    spoils: list[str] | None = None


class Warmed(_Told):
    spread: Number | None = None


class Compared(_Told):
    ratio: AFigure = UNKNOWN
    why_not: str | None = None


class Comparison(_Told):
    accept_len: Compared | None = None
    output_tok_s: Compared | None = None


class Against(Figures):
    """The baseline that a run was held against."""

    time: Number | None = None
    load: Asked | None = None


class Run(_Told):
    """What `inv bench --json` says of a node."""

    summary: Figures
    runs: list[Answer] | None = None
    load: Asked | None = None
    fix: Fix | None = None
    args: Args | None = None
    expected: dict[str, Any] | None = None
    guards: list[Guarded] | None = None
    warm_up: Warmed | None = None
    saved_as: str | None = None
    time: Number | None = None
    baseline: Against | None = None
    comparison: Comparison | None = None


def load(path: Path) -> Any:
    """The JSON of a file. OSError, or ValueError where it is none."""
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Any:
    """JSON as somebody may have written it. ValueError also for what Python reads and nobody can use: NaN,
    numbers beyond every float, halves of surrogate pairs."""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number in JSON")
    return value
