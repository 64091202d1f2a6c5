"""`inv diagnose`: applied but not effective, why? The wiring of every forward mode, and every known cause.

Exit code 0 when it ran, whatever it found: a cause is an answer, and `inv verify` is what judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import wiring
from .bundles import Bundle
from .errors import ExitCode
from .hypotheses import Hypothesis, first_cause, weigh
from .hypotheses.base import command
from .hypotheses.wired import outcome
from .observe import observe
from .picture import Picture
from .proofs.server_args import arguments
from .session import Session
from .verify import wiring_json


@dataclass(frozen=True)
class Mode:
    """One forward mode: what the draft gets there. `applies` None: not known whether the server uses it."""

    name: str
    applies: bool | None
    verdict: str
    gets: str
    call_site: str | None
    explain: str


@dataclass(frozen=True)
class Diagnosis:
    """`answer` is one line, `next` the command to type."""

    node: str
    picture: Picture
    modes: tuple[Mode, ...]
    hypotheses: tuple[Hypothesis, ...]
    cause: Hypothesis | None
    answer: str
    next: str

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "version": self.picture.version,
            "fix": self.picture.bundle.name,
            "wiring": wiring_json(self.picture),
            "modes": {mode.name: vars(mode) for mode in self.modes},
            "hypotheses": [each.to_json() for each in self.hypotheses],
            "answer": {
                "cause": self.cause.id if self.cause else None,
                "text": self.answer,
                "next": self.next,
            },
        }


def diagnose(session: Session, bundle: Bundle) -> Diagnosis:
    """Read the node once, and weigh every hypothesis. Changes nothing; works on a stopped server too."""
    return conclude(observe(session, bundle))


def conclude(picture: Picture) -> Diagnosis:
    """The page about one picture. Pure."""
    found = weigh(picture)
    cause = first_cause(found)
    modes = _modes(picture)
    answer, then = _answer(picture, modes, found, cause)
    return Diagnosis(picture.node.name, picture, modes, tuple(found), cause, answer, then)


def _modes(picture: Picture) -> tuple[Mode, ...]:
    told, contract = arguments(picture).values, picture.contract
    modes = []
    for name in wiring.MODES:
        applies = wiring.applies(name, told) if told is not None else None
        if picture.wiring is None:
            modes.append(Mode(name, applies, "unknown", "not known", None, "the source was not followed"))
            continue
        result = picture.wiring.mode(name)
        verdict = wiring.compare(result, contract) if contract is not None else "unknown"
        modes.append(Mode(name, applies, verdict, outcome(result), result.call_site, result.explain))
    return tuple(modes)


def _answer(
    picture: Picture, modes: Sequence[Mode], found: Sequence[Hypothesis], cause: Hypothesis | None
) -> tuple[str, str]:
    if cause is not None:
        return f"{cause.id}: {cause.says}", cause.remedy
    open_ = [each for each in found if each.verdict == "unknown"]
    if open_:
        named = ", ".join(each.id for each in open_)
        return f"no known cause holds, and {len(open_)} could not be decided: {named}", open_[0].remedy
    used = [mode.name for mode in modes if mode.applies is not False]
    says = f"no known cause holds: {' and '.join(used)} give the draft what it was trained on"
    return f"{says}; measure whether that is enough", command(picture, "bench")
