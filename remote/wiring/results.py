"""What the wiring engine answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MODES = ("eager", "graph", "overlap")
Verdict = Literal["match", "mismatch", "crash", "unknown"]


@dataclass(frozen=True)
class ModeResult:
    """What reaches the draft's `fc` in one forward mode.

    `layers`: `embed` and `in:K` in order, () when nothing is captured, None when unknown. A state that is
    neither is given as `hidden:K`, `residual:K` or `other:...`. `error`: the server, or the first request in
    this mode, dies with it. `unknown`: why it cannot be told. `call_site`: `path:line` of the call of the
    hook that set the layers of this mode, None when none did.
    """

    layers: tuple[str, ...] | None
    error: str | None
    unknown: str | None
    call_site: str | None
    explain: str


@dataclass(frozen=True)
class Wiring:
    """The wiring of every mode: eager (prefill, extend), CUDA graph (decode, verify), two-batch overlap."""

    eager: ModeResult
    graph: ModeResult
    overlap: ModeResult

    def mode(self, name: str) -> ModeResult:
        """The result of `eager`, `graph` or `overlap`."""
        return {"eager": self.eager, "graph": self.graph, "overlap": self.overlap}[name]


def compare(result: ModeResult, contract: Sequence[str]) -> Verdict:
    """Hold one mode against what the draft was trained with."""
    if result.error is not None:
        return "crash"
    if result.unknown is not None or result.layers is None:
        return "unknown"
    return "match" if list(result.layers) == list(contract) else "mismatch"


def to_json(wiring: Wiring, contract: Sequence[str]) -> dict[str, object]:
    """The `wiring` object of `--json`: a list, null where unknown, `{"error": ...}` where it would crash."""

    def entry(result: ModeResult) -> object:
        if result.error is not None:
            return {"error": result.error}
        if result.unknown is not None or result.layers is None:
            return None
        return list(result.layers)

    return {"contract": list(contract), **{name: entry(wiring.mode(name)) for name in MODES}}
