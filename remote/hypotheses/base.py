"""What a hypothesis is: a known cause of "applied but not effective", with its answer and its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..checks import Evidence
from ..intent import wanted_args
from ..picture import Picture
from ..proofs import prove
from ..proofs.server_args import told

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


@dataclass(frozen=True)
class Arguments:
    """The server's arguments by SGLang's names, and where they were read. `values` None: nobody tells."""

    values: Mapping[str, Any] | None
    source: str

    def get(self, name: str) -> Any:
        return None if self.values is None else self.values.get(name)

    def tell(self, name: str) -> bool:
        return self.values is not None and name in self.values


def command(picture: Picture, verb: str, *options: str) -> str:
    """A command to type about this node."""
    return " ".join(["inv", verb, *options, "--node", picture.node.name])


def deploy(picture: Picture) -> str:
    return command(picture, "deploy-fix", "--fix", picture.bundle.name)


def in_inventory(picture: Picture, what: str) -> str:
    """A change of the inventory, and the command that brings it about."""
    return f"{what} (inventory, server '{picture.node.server_name}'), then: {command(picture, 'restart')}"


def running(picture: Picture) -> bool | None:
    """Whether a server of ours runs; None when the processes could not be read."""
    if picture.ownership is None:
        return None
    return picture.ownership.server is not None and picture.ownership.server.launcher is not None


def arguments(picture: Picture) -> Arguments:
    """What the server runs with; where none runs, what the next one would be started with."""
    if running(picture) is False:
        # SGLang's own defaults (server_args.py, 0.5.5 to 0.5.23) for the switches that are asked about here.
        off = ("disable_cuda_graph", "enable_two_batch_overlap", "enable_attn_tp_input_scattered")
        defaults = {"speculative_algorithm": None, **dict.fromkeys(off, False)}
        wanted = {**defaults, **wanted_args(picture.node.server)}
        return Arguments(wanted, "inventory (no server runs)")
    values, source = told(picture)
    if values is not None:
        return Arguments(values, source)
    return Arguments(None, "the server does not tell its arguments, nor does the log")


def algorithm_of(values: Mapping[str, Any] | None) -> str | None:
    """The speculative algorithm in capitals, as SGLang takes it; None where there is none."""
    found = (values or {}).get("speculative_algorithm")
    return str(found).upper() if found is not None else None
