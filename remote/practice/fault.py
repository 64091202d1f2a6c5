"""What a fault of the practice node is."""

from __future__ import annotations

from dataclasses import dataclass

from remote.practice.file_steps import Step

CONNECT = "connect"


@dataclass(frozen=True)
class Fault:
    """`found_by`: the checks of which at least one is `fail` or `unknown` while the fault is there.

    Where a fault keeps everybody out it is CONNECT in place of a check: every command exits with 3.
    """

    name: str
    title: str
    does: str
    found_by: tuple[str, ...]
    steps: tuple[Step, ...]
