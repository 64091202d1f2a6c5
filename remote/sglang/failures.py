"""The first cause of a failure, from text alone. The work is done in `incidents` and `failure_rules`."""

from __future__ import annotations

from collections.abc import Iterable

from . import progress
from .incidents import Failure, State, finish, suspected
from .lines import entries, numbered

__all__ = ["Failure", "first_cause", "state_of"]


def state_of(lines: Iterable[tuple[int, str]]) -> State:
    """The failure state at the end of the numbered lines of one boot."""
    state = progress.State()
    for item in entries(lines):
        state = progress.step(state, item)
    return finish(state.incidents)


def first_cause(text: str, first_line: int = 1) -> Failure | None:
    """The first cause of the failure in the log of one boot; None when the text tells of none.

    Also counts a traceback at the very end, which only the end of the process makes a failure: for a
    process that is alive use `progress`, for a file with several boots `boots`."""
    return suspected(state_of(numbered(text, first_line)))
