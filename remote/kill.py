"""End stale servers: by pid and start time, TERM first, KILL last, each end read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import UnhealthyError
from .ownership import Process
from .plan import Plan
from .work import Done, Work

# SGLang drains requests on SIGTERM; a launcher took 5 s idle, a busy one longer (captures of 0.5.23).
TERM_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 10.0


def kill_stale(work: Work, plan: Plan) -> Done:
    action = plan.action("kill-stale")
    return end(work, plan.to_end, id=action.id, detail=action.detail)


def end(work: Work, processes: Sequence[Process], *, id: str, detail: str) -> Done:
    """UnhealthyError when a process is still there: what it holds stays held."""
    if not processes:
        return Done(id, False, detail, processes=())
    work.reporter.begin(id, detail)
    node = work.session.node
    reply = work.change(
        "terminate",
        {
            "processes": [{"pid": p.pid, "starttime_ticks": p.starttime_ticks} for p in processes],
            "term_timeout_s": TERM_TIMEOUT_S,
            "kill_timeout_s": KILL_TIMEOUT_S,
        },
        action=id,
        detail=detail,
        timeout_s=TERM_TIMEOUT_S + KILL_TIMEOUT_S + 30.0,
    )
    ended = [_known_as(each, processes) for each in reply["processes"]]
    left = [each for each in ended if each["left"] in ("unkillable", "permission")]
    if left:
        named = "; ".join(f"pid {each['pid']} {each['title']}: {each['left']}" for each in left)
        raise UnhealthyError(
            f"{node.name}: could not be ended: {named}",
            hint="one that KILL does not end waits in the kernel (state D): its machine may need a reboot",
            node=node.name,
            data={"reason": "not-ended", "processes": ended},
        )
    counts = {how: sum(each["ended_by"] == how for each in ended) for how in ("TERM", "KILL", "none")}
    parts = [f"{count} by {how}" for how, count in counts.items() if count and how != "none"]
    if counts["none"]:
        parts.append(f"{counts['none']} had already gone")
    summary = f"{len(ended)} processes ended: {', '.join(parts)}"
    work.reporter.done(id, summary, changed=True)
    fields = ("pid", "title", "ended_by")
    return Done(id, True, summary, tuple({field: each[field] for field in fields} for each in ended))


def _known_as(ended: dict[str, Any], processes: Sequence[Process]) -> dict[str, Any]:
    """The title as it was seen before: a zombie has none."""
    title = next((p.title for p in processes if p.pid == ended["pid"]), ended.get("title"))
    return {**ended, "title": title}
