"""What was done: one deploy, from the node's journal and manifests. Pure."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable, Sequence

from ..errors import RefusedError
from ..journal import Entry, actions
from .model import Deploy, Replaced, Step

# What replaces files or puts them back; `inv bench` and what only starts or stops servers does neither.
WRITES = ("deploy-fix", "push-fix", "rollback")


def began(id: str) -> float | None:
    """When the deploy or run of this id began, in seconds since the epoch: its id says so (work.new_id)."""
    try:
        return float(calendar.timegm(time.strptime(id.partition("-")[0], "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return None


def known(journal: Sequence[Entry], manifests: Sequence[Entry]) -> list[str]:
    """The ids of all deploys, the oldest first."""
    ids = [str(entry["deploy_id"]) for entry in journal if _is_deploy(entry)]
    ids += [str(each["id"]) for each in manifests if each.get("files")]
    return sorted(set(ids))


def _is_deploy(entry: Entry) -> bool:
    return bool(entry.get("deploy_id")) and str(entry.get("command")).startswith("deploy-fix")


def choose(node: str, ids: Sequence[str], asked: str | None) -> str | None:
    """The deploy to report on: the one asked for, else the last one. RefusedError for an unknown one."""
    if asked is None:
        return ids[-1] if ids else None
    if asked not in ids:
        shown = ", ".join(ids[-5:]) or "none"
        raise RefusedError(f"{node}: there is no deploy {asked}", hint=f"known: {shown}", node=node)
    return asked


def read(id: str, journal: Sequence[Entry], manifest: Entry | None, files: Iterable[Replaced]) -> Deploy:
    """One deploy. `manifest` is None for one that replaced no file."""
    mine = [entry for entry in journal if entry.get("deploy_id") == id]
    steps = tuple(_step(begin, end) for begin, end in actions(mine))
    first: Entry = mine[0] if mine else {}
    ends = [entry["time"] for entry in mine if entry.get("phase") == "end" and "time" in entry]
    return Deploy(
        id=id,
        command=str(first.get("command") or "unknown"),
        who=str(first.get("who") or "unknown"),
        began=first.get("time", began(id)),
        ended=ends[-1] if ends else None,
        steps=steps,
        files=tuple(files),
        restored=(manifest or {}).get("restored"),
        later=tuple(_later(id, journal)),
    )


def _step(begin: Entry, end: Entry | None) -> Step:
    error = (end or {}).get("message")
    times = begin.get("time"), (end or {}).get("time")
    return Step(
        action=str(begin.get("action")),
        detail=str((end or begin).get("detail") or ""),
        outcome=str((end or {}).get("outcome") or "unknown"),
        error=None if error is None else str(error),
        began=times[0],
        seconds=None if times[0] is None or times[1] is None else max(0.0, times[1] - times[0]),
    )


def _later(id: str, journal: Sequence[Entry]) -> list[str]:
    """Commands that changed the node after this deploy, each once: "rollback ... by who"."""
    places = [place for place, entry in enumerate(journal) if entry.get("deploy_id") == id]
    if not places:
        return []
    found: dict[str, str] = {}
    for entry in journal[places[-1] + 1 :]:
        other, command = entry.get("deploy_id"), str(entry.get("command"))
        if other and other != id and command != "bench":
            found.setdefault(str(other), f"{command} ({other}, by {entry.get('who') or 'unknown'})")
    return list(found.values())


def window(id: str | None, journal: Sequence[Entry]) -> tuple[float | None, float | None]:
    """From when on, and until when, what the deploy `id` left was there: until the next one that writes."""
    if id is None:
        return None, None
    start = began(id)
    writes = {
        str(entry["deploy_id"])
        for entry in journal
        if entry.get("deploy_id") and str(entry.get("command")).startswith(WRITES)
    }
    later = [when for when in map(began, writes) if when is not None and start is not None and when > start]
    return start, min(later, default=None)
