"""What a hypothesis is: a known cause of "applied but not effective", with its answer and its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..checks import Evidence
from ..picture import Picture
from ..proofs import prove

Answer = Literal["holds", "refuted", "unknown"]
_ANSWERS: Mapping[str, Answer] = {"fail": "holds", "pass": "refuted"}


@dataclass(frozen=True)
class Hypothesis:
    """`claim`: the cause, as a sentence. `says`: what speaks for or against it. `remedy`: what to type."""

    id: str
    claim: str
    verdict: Answer
    says: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Cause:
    """A hypothesis before it is weighed."""

    id: str
    claim: str

    def holds(self, says: str, *evidence: Evidence, remedy: str) -> Hypothesis:
        return Hypothesis(self.id, self.claim, "holds", says, evidence, remedy)

    def refuted(self, says: str, *evidence: Evidence) -> Hypothesis:
        return Hypothesis(self.id, self.claim, "refuted", says, evidence)

    def unknown(self, says: str, *evidence: Evidence, remedy: str) -> Hypothesis:
        return Hypothesis(self.id, self.claim, "unknown", says, evidence, remedy)

    def as_check(self, picture: Picture, id: str, *, remedy: str | None = None) -> Hypothesis:
        """The cause is what the check `id` of `inv verify` is about: it holds where the check fails."""
        (check,) = prove(picture, [id])
        verdict = _ANSWERS.get(check.verdict, "unknown")
        return Hypothesis(
            self.id, self.claim, verdict, check.observed, check.evidence, remedy or check.remedy
        )


def command(picture: Picture, verb: str, *options: str) -> str:
    """A command to type about this node."""
    return " ".join(["inv", verb, *options, "--node", picture.node.name])


def deploy(picture: Picture) -> str:
    return command(picture, "deploy-fix", "--fix", picture.bundle.name)


def in_inventory(picture: Picture, what: str) -> str:
    """A change of the inventory, and the command that brings it about."""
    return f"{what} (inventory, server '{picture.node.server_name}'), then: {command(picture, 'restart')}"


def algorithm_of(values: Mapping[str, Any] | None) -> str | None:
    """The speculative algorithm in capitals, as SGLang takes it; None where there is none."""
    found = (values or {}).get("speculative_algorithm")
    return str(found).upper() if found is not None else None
