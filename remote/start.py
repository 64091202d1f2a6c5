"""Start the server as the inventory describes it: detached, with a log of its own per boot."""

from __future__ import annotations

import os
import shlex

from .errors import RefusedError, UnhealthyError
from .inventory import command
from .observe import owners_now
from .plan import Plan
from .running import Boot
from .secrets import expand
from .work import Done, Work, new_id


def start_server(work: Work, plan: Plan) -> tuple[Done, Boot | None]:
    action = plan.action("start")
    if not plan.restart:
        return Done(action.id, False, action.detail), None
    if plan.to_end:
        _refuse_beside_another(work)
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


def _refuse_beside_another(work: Work) -> None:
    """UnhealthyError where what was ended is back: a supervisor (systemd, a loop in a script) starts it anew,
    and two servers would fight for the GPUs and the port."""
    now = owners_now(work.session, work.seen) if work.seen else None
    first = now.server.launcher if now and now.server else None
    if first is not None:
        node = work.session.node.name
        raise UnhealthyError(
            f"{node}: the server was ended, and is there again as pid {first.pid}, started by pid"
            f" {first.ppid}: no second one was started beside it",
            hint=f"stop what starts it (`systemctl status {first.pid}` there names its unit), then:"
            f" inv restart --node {node}",
            node=node,
            data={"reason": "port-foreign"},
        )


def refuse_if_up(node: str, pid: int) -> None:
    """A second server is never started beside one of ours."""
    raise RefusedError(
        f"{node}: a server of ours runs already, pid {pid}", hint=f"inv restart --node {node}", node=node
    )
