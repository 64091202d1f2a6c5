"""Start the server as the inventory describes it: detached, with a log of its own per boot."""

from __future__ import annotations

import os
import shlex

from .errors import RefusedError
from .inventory import command
from .plan import Plan
from .running import Boot
from .secrets import expand
from .work import Done, Work, new_id


def start_server(work: Work, plan: Plan) -> tuple[Done, Boot | None]:
    action = plan.action("start")
    if not plan.restart:
        return Done(action.id, False, action.detail), None
    return start(work, detail=action.detail)


def start(work: Work, *, detail: str) -> tuple[Done, Boot]:
    """Start it and read back that the process lives. Readiness is health's affair.

    RefusedError when it cannot be started at all (no such interpreter, log folder not writable).
    `${VAR}` is filled in here, in memory: the record on the node keeps the reference.
    """
    node = work.session.node
    server = node.server
    argv = command(node)
    work.reporter.begin("start", " ".join(shlex.quote(word) for word in argv))
    reply = work.change(
        "start",
        {
            "argv": [expand(word, os.environ) for word in argv],
            "env": {name: expand(value, os.environ) for name, value in server.env.items()},
            "cwd": server.cwd,
            "log": server.log,
            "boot_id": new_id(),
            "record": {
                "argv": argv,
                "env": dict(server.env),
                "server": node.server_name,
                "deploy_id": work.deploy_id,
                "who": work.session.who,
            },
        },
        action="start",
        detail=detail,
    )
    known = ("boot_id", "pid", "starttime_ticks", "start_time", "log", "alive")
    boot = Boot(**{key: reply[key] for key in known})
    kept = f"; the log found there is kept as {reply['kept']}" if reply.get("kept") else ""
    summary = f"pid {boot.pid}, log {boot.log}{kept}"
    work.reporter.done("start", summary, changed=True)
    return Done("start", True, summary), boot


def refuse_if_up(node: str, pid: int) -> None:
    """A second server is never started beside one of ours."""
    raise RefusedError(
        f"{node}: a server of ours runs already, pid {pid}", hint=f"inv restart --node {node}", node=node
    )
