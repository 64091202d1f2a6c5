"""`inv history`: what was done to the node, by whom, when, with what outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import journal
from .errors import ExitCode, UsageError
from .session import Session


@dataclass(frozen=True)
class History:
    """Journal entries, oldest first: each action's beginning and end."""

    node: str
    entries: tuple[dict[str, Any], ...]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "entries": list(self.entries), "actions": self.actions()}

    def actions(self) -> list[dict[str, Any]]:
        """One row per action. An action without an end was cut off: its outcome is `unknown`. Of a damaged
        line nothing is known but its beginning, which is its detail."""
        kept = ("time", "who", "command", "deploy_id", "action", "detail")
        return [
            {
                **{key: begin.get(key) for key in kept},
                "detail": (end or begin).get("detail", begin.get("unreadable")),
                "outcome": (end or {}).get("outcome", "unknown"),
                "error": (end or {}).get("message"),
            }
            for begin, end in journal.actions(self.entries)
        ]


def history(session: Session, limit: int) -> History:
    if limit < 1:
        raise UsageError(f"--limit {limit}: less than one entry", hint="leave it out for the last 100")
    reply = session.request("journal_read", {"limit": limit})
    return History(session.node.name, tuple(reply["entries"]))
