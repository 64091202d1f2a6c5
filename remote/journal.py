"""The node's journal, read: an action is written when it begins and once more when it ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .work import UNLOCK

Entry = Mapping[str, Any]


def actions(entries: Iterable[Entry]) -> list[tuple[Entry, Entry | None]]:
    """(begin, end) of each action in the order of their begins, broken locks left out. An action without
    an end was cut off; one whose begin is not among `entries` stands for it itself."""
    rows: list[tuple[Entry, Entry | None]] = []
    for entry in entries:
        if entry.get("action") == UNLOCK:
            continue
        if entry.get("phase") == "end":
            # One that corrects takes the place of an end which said more than was so.
            place = next((n for n in reversed(range(len(rows))) if _ends(entry, *rows[n])), None)
            if place is not None:
                rows[place] = rows[place][0], entry
                continue
        rows.append((entry, entry if entry.get("phase") == "end" else None))
    return rows


def _ends(entry: Entry, begin: Entry, end: Entry | None) -> bool:
    open_ = end is None or bool(entry.get("corrects"))
    return open_ and all(begin.get(key) == entry.get(key) for key in ("deploy_id", "action"))
