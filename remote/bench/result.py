"""What `inv bench` found out on one node: the contract's entry, and the document that is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import Check
from ..errors import ExitCode
from .baselines import SCHEMA, Baseline
from .compare import Comparison
from .guards import Guard
from .measured import Failure, Request
from .summary import Summary
from .verdict import Verdict


@dataclass(frozen=True)
class WarmUp:
    """`rates`: steps or tokens per second of each run; `spread`: of the last three, see warmup.spread."""

    rates: tuple[float, ...]
    spread: float | None
    settled: bool

    def to_json(self) -> dict[str, Any]:
        rates = [float(f"{rate:.5g}") for rate in self.rates]
        return {"runs": len(rates), "rates": rates, "spread": self.spread, "settled": self.settled}


@dataclass(frozen=True)
class Bench:
    """`summary` is None where nothing was measured: then `refused` says why. `fix`: {name, state, config,
    applied}; `load`: prompts, concurrency and the rest of what was asked; `logged`: what the server logged
    during the run; `second`: figures of SGLang's own client; `kept`: where the run is stored."""

    node: str
    run_id: str
    time: float
    who: str
    requests: tuple[Request, ...]
    failures: tuple[Failure, ...]
    summary: Summary | None
    baseline: Baseline | None
    comparison: Comparison | None
    verdict: Verdict
    expected: Mapping[str, float]
    guards: tuple[Guard, ...]
    warm_up: WarmUp | None
    load: Mapping[str, Any]
    fix: Mapping[str, Any]
    wiring: Mapping[str, Any]
    args: Mapping[str, Any]
    checks: tuple[Check, ...]
    logged: Mapping[str, Any] | None = None
    refused: str | None = None
    interrupted: bool = False
    saved_as: str | None = None
    kept: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        """7 where verify failed and nothing was measured, else as the verdict says."""
        return ExitCode.CHECK_FAILED if self.refused else self.verdict.exit_code

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "run_id": self.run_id,
            "time": self.time,
            "who": self.who,
            "runs": [request.to_json() for request in self.requests],
            "failures": [{"prompt": each.prompt, "error": each.error} for each in self.failures],
            "summary": self.summary.to_json() if self.summary else None,
            "baseline": self.baseline.to_json() if self.baseline else None,
            "comparison": self.comparison.to_json() if self.comparison else None,
            "verdict": self.verdict.word,
            "reasons": list(self.verdict.reasons),
            "claims": [claim.to_json() for claim in self.verdict.claims],
            "expected": dict(self.expected) or None,
            "guards": [guard.to_json() for guard in self.guards],
            "warm_up": self.warm_up.to_json() if self.warm_up else None,
            "load": dict(self.load),
            "fix": dict(self.fix),
            "wiring": dict(self.wiring),
            "args": dict(self.args),
            "logged": dict(self.logged) if self.logged else None,
            "checks": [
                {"id": check.id, "verdict": check.verdict, "observed": check.observed}
                for check in self.checks
            ],
            "refused": self.refused,
            "interrupted": self.interrupted,
            "saved_as": self.saved_as,
            "kept": self.kept,
        }

    def document(self) -> dict[str, Any]:
        """What is kept: the entry itself, so that a run can be a baseline."""
        return {"schema": SCHEMA, "kind": "fixops-bench", **self.to_json()}
