"""`inv status`: one screen. What runs, on which GPUs, with which fix, and what was last done to it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from .bundles import Bundle
from .errors import ExitCode
from .intent import expected_ranks, spanned_nodes
from .observe import observe
from .picture import Picture, generated, outcome
from .running import boot_id, launcher, still_starting
from .secrets import unauthorized
from .session import Session
from .strangers import instead

State = Literal["up", "starting", "down", "sick"]


@dataclass(frozen=True)
class Status:
    node: str
    picture: Picture
    state: State
    why: str

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        picture = self.picture
        group = picture.ownership.server if picture.ownership else None
        first = launcher(picture)
        fix, config = picture.fix, picture.config
        return {
            "node": self.node,
            "server": {
                "state": self.state,
                "why": self.why,
                "pid": first.pid if first else None,
                "port": picture.node.server.port,
                "started_at": first.start_time if first else None,
                "boot_id": boot_id(picture),
                "version": (picture.effective or {}).get("version") or picture.version,
                "ranks": {
                    "expected": expected_ranks(picture.node.server),
                    "alive": len(group.ranks()) if group else 0,
                },
            },
            "gpus": gpus(picture),
            "fix": {
                "name": picture.bundle.name,
                "state": fix.state if fix else None,
                "local_changes": fix.local_changes if fix else None,
                "config": config.state.state if config and config.state else None,
            },
            "stale": [
                {"pid": s.process.pid, "title": s.process.title, "why": s.why}
                for s in (picture.ownership.stale if picture.ownership else ())
            ],
            "last_deploy": last_deploy(picture),
            "lock": (picture.facts.get("state") or {}).get("lock"),
        }


def status(session: Session, bundle: Bundle) -> Status:
    picture = observe(session, bundle)
    state, why = judge(picture)
    nodes = spanned_nodes(session.node.server)
    # Only the first of them ever says that it is ready.
    why += f" (one of {nodes} nodes of the server)" if nodes > 1 else ""
    return Status(session.node.name, picture, state, why)


def judge(picture: Picture) -> tuple[State, str]:
    """up: it generates. starting: alive, and not yet ready. sick: alive, and not as it should be."""
    owned = picture.ownership
    group = owned.server if owned else None
    if owned is None:
        return "sick", "the processes could not be read"
    if group is None or group.launcher is None:
        left = f"{len(owned.stale)} stale processes" if owned.stale else None
        return "down", "; ".join(filter(None, ("no server of ours", left, instead(picture))))
    want, alive = expected_ranks(picture.node.server), len(group.ranks())
    http = picture.facts.get("http") or {}
    generate = http.get("generate") or {}
    answered = generate.get("status") == 200
    if alive == want and answered and (generated(generate) or 0) > 0:
        return "up", f"{alive} of {want} ranks, it generates"
    if picture.boot is not None and still_starting(picture):
        return "starting", f"{picture.boot.stage}, {alive} of {want} ranks"
    refused = unauthorized(picture.node, generate, os.environ)
    # /health wants no key.
    if refused is not None and alive == want and (http.get("health") or {}).get("status") == 200:
        return "up", f"{alive} of {want} ranks; whether it generates is unknown: {refused.why}"
    return "sick", f"{alive} of {want} ranks alive, /generate: {outcome(generate)}" + (
        ", no tokens" if answered else ""
    )


def gpus(picture: Picture) -> list[dict[str, Any]]:
    """The contract's `gpus`; figures that the node does not report are null. `stale`: an earlier server's."""
    facts = picture.facts.get("gpus") or {}
    owned = picture.ownership
    ours = {member.pid for member in owned.server.members} if owned and owned.server else set()
    stale = {each.process.pid for each in owned.stale} if owned else set()
    users = {p["pid"]: p["user"] for p in (picture.facts.get("procs") or {}).get("processes", [])}
    return [
        {
            "index": board["index"],
            "memory_used_mib": board["memory_used_mib"],
            "memory_total_mib": board["memory_total_mib"],
            "holders": [
                {
                    "pid": holder["pid"],
                    "name": holder["name"],
                    "user": users.get(holder["pid"]),
                    "ours": holder["pid"] in ours,
                    "stale": holder["pid"] in stale,
                }
                for holder in facts.get("holders", [])
                if holder["gpu_index"] == board["index"]
            ],
        }
        for board in facts.get("gpus", [])
    ]


def last_deploy(picture: Picture) -> dict[str, Any] | None:
    """The last deploy that replaced files: id, when, by whom."""
    deploys = (picture.facts.get("state") or {}).get("deploys", [])
    if not deploys:
        return None
    last = deploys[-1]
    # Records of older versions do not tell who; the journal's last entries may.
    journal = (picture.facts.get("state") or {}).get("journal_tail", [])
    told: dict[str, Any] = next((e for e in journal if e.get("deploy_id") == last["id"]), {})
    entry = {**told, **(last.get("about") or {})}
    return {
        "id": last["id"],
        "who": entry.get("who"),
        "command": entry.get("command"),
        "files": [file["named"] for file in last.get("files", [])],
        "rolled_back": bool(last.get("restored")),
    }
