"""Remove bytecode that the interpreter would believe, and read back that it is gone."""

from __future__ import annotations

import os

from .errors import RefusedError
from .plan import Plan
from .push import restore_files
from .secrets import environment_of
from .work import Done, Work


def purge(work: Work, plan: Plan) -> Done:
    """RefusedError, with the files put back, when bytecode remains: the old code might run."""
    action = plan.action("purge-pycache")
    if not plan.purge:
        return Done(action.id, False, action.detail)
    work.reporter.begin(action.id, action.detail)
    node = work.session.node
    reply = work.change(
        "purge",
        {"files": list(plan.purge), "env": environment_of(node.server, os.environ)},
        action=action.id,
        detail=action.detail,
    )
    if reply["remaining"]:
        named = "; ".join(f"{r['path']} ({r['why']}, owner {r['owner']})" for r in reply["remaining"])
        put_back = ""
        if plan.code or plan.config:
            restore_files(work, force=False)
            put_back = "; the files were put back"
        raise RefusedError(
            f"{node.name}: removed {len(reply['removed'])} of "
            f"{len(reply['removed']) + len(reply['remaining'])} pycs, these remain: {named}{put_back}",
            hint="remove them as their owner (or set `sudo: true`), then run the command again",
            node=node.name,
        )
    detail = f"removed {len(reply['removed'])} pycs, none remains"
    work.reporter.done(action.id, detail, changed=bool(reply["removed"]))
    return Done(action.id, bool(reply["removed"]), detail)
