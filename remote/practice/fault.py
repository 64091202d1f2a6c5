"""What a fault of the practice node is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from remote.practice.file_steps import Step

CONNECT = "connect"


@dataclass(frozen=True)
class Also:
    """A check that truly does not pass either while a fault is there, and why that is so."""

    check: str
    verdict: Literal["fail", "unknown"]
    why: str


@dataclass(frozen=True)
class Fault:
    """`found_by`: the checks that fail, all of them, while the fault is there.

    Where a fault keeps everybody out it is CONNECT in place of a check: every command exits with 3.
    `undetermined`: those of `found_by` that are `unknown`, because the fault takes the evidence away.
    `also`: what follows from it. Every other check says what it says of a healthy node.
    """

    name: str
    title: str
    does: str
    found_by: tuple[str, ...]
    steps: tuple[Step, ...]
    also: tuple[Also, ...] = ()
    undetermined: tuple[str, ...] = ()

    @property
    def verdicts(self) -> dict[str, str]:
        """Every check that does not pass while the fault is there, and how."""
        found = {check: "unknown" if check in self.undetermined else "fail" for check in self.found_by}
        return found | {each.check: each.verdict for each in self.also}


def follows(verdict: Literal["fail", "unknown"], why: str, *checks: str) -> tuple[Also, ...]:
    """The same consequence for several checks."""
    return tuple(Also(check, verdict, why) for check in checks)


STARTED_BEFORE = follows("fail", "the server has run since before the file changed", "process.after_fix")
NOT_FOLLOWED = follows(
    "unknown", "no source is there that could be followed", "source.behaviour", "wiring.eager", "wiring.graph"
)


def no_server(*found_by: str) -> tuple[Also, ...]:
    """What a node without a server cannot pass, but for the checks that find the fault."""
    fail = (
        *("process.single", "process.owner", "process.ranks", "process.after_fix", "gpu.holders"),
        *("log.boot", "health.http", "health.generate"),
    )
    return (
        *follows("fail", "no server of ours is there", *(each for each in fail if each not in found_by)),
        *follows("unknown", "nothing runs that could have arguments", "args.effective"),
    )
