"""`inv unlock`: who holds the lock, and is that command still running? Releases it when told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import ExitCode
from .holder import ALIVE, told
from .reporting import Silent
from .session import Session
from .work import Work, new_id

# In the journal. A command's own release of its lock is work.UNLOCK: that is nothing to tell, this is.
BREAK = "break-lock"


@dataclass(frozen=True)
class Unlocked:
    node: str
    holder: dict[str, Any] | None
    holder_alive: bool | None
    released: bool
    dry_run: bool = False

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), **({"would_release": self.would_release} if self.dry_run else {})}

    @property
    def would_release(self) -> bool:
        """Of a dry run: is there a lock for `--yes` to release?"""
        return self.dry_run and self.holder is not None


def unlock(session: Session, *, release: bool, dry_run: bool = False) -> Unlocked:
    """Show the lock; with `release` take it away, even from a command that still runs. Not in a dry run.

    A lock file that cannot be read (empty after a full disk or a power loss) has no pid: it goes too.
    """
    state = session.request("facts.state", {})
    holder, alive = state.get("lock"), state.get("lock_alive")
    if holder is None or not release or dry_run:
        return Unlocked(session.node.name, holder, alive, False, dry_run)
    pid, name = holder.get("pid"), session.node.name
    Work(session, new_id(), "unlock --yes", Silent()).change(
        "break_lock", {"expect_pid": pid}, action=BREAK, detail=f"of {told(holder)}, {ALIVE[alive]}"
    )
    left = session.request("facts.state", {}).get("lock")
    return Unlocked(name, holder, alive, left is None)
