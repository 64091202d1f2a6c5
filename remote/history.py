"""`inv history`: what was done to the node, by whom, when, with what outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import ExitCode
from .session import Session
from .work import UNLOCK


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
        """One row per action. An action without an end was cut off: its outcome is `unknown`."""
        rows: list[dict[str, Any]] = []
        for entry in self.entries:
            if entry.get("action") == UNLOCK:
                continue
            if entry.get("phase") == "end":
                row = next((r for r in reversed(rows) if _same(r, entry)), None)
                if row is not None:
                    row["outcome"] = entry.get("outcome", "unknown")
                    row["error"] = entry.get("error")
                    continue
            kept = ("time", "who", "command", "deploy_id", "action", "detail")
            rows.append({**{key: entry.get(key) for key in kept}, "outcome": "unknown", "error": None})
        return rows


def _same(row: dict[str, Any], entry: dict[str, Any]) -> bool:
    return row["outcome"] == "unknown" and all(row[k] == entry.get(k) for k in ("deploy_id", "action"))


def history(session: Session, limit: int) -> History:
    reply = session.request("journal_read", {"limit": limit})
    return History(session.node.name, tuple(reply["entries"]))
