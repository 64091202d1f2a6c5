"""`inv unlock`: who holds the lock, and is that command still running? Releases it when told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import ExitCode
from .session import Session


@dataclass(frozen=True)
class Unlocked:
    node: str
    holder: dict[str, Any] | None
    holder_alive: bool | None
    released: bool

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return vars(self)


def unlock(session: Session, *, release: bool) -> Unlocked:
    """Show the lock; with `release` take it away, even from a command that still runs."""
    state = session.request("facts.state", {})
    holder, alive = state.get("lock"), state.get("lock_alive")
    if holder is None or not release:
        return Unlocked(session.node.name, holder, alive, False)
    session.request("break_lock", {"expect_pid": holder["pid"]})
    left = session.request("facts.state", {}).get("lock")
    return Unlocked(session.node.name, holder, alive, left is None)
