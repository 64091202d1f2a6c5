"""Put the fix in place: code and configuration, all of it or nothing."""

from __future__ import annotations

import base64
import os
import zlib
from typing import Any

from .errors import RefusedError
from .plan import Plan, Write
from .secrets import environment_of
from .work import Done, Work

IMPORT_TIMEOUT_S = 180.0


def push(work: Work, plan: Plan, version: str | None) -> list[Done]:
    """Write what differs. Originals are kept first; every file is staged and compiled before any moves.

    `version`: of the SGLang whose files these are; the record of the deploy keeps it for the way back,
    and who made it, which the journal tells only for so long, and for which of the inventory's servers.
    """
    writes = [*plan.code, *plan.config]
    if not writes:
        return [_unchanged(plan, "push-code"), _unchanged(plan, "push-config")]
    for action in ("push-code", "push-config"):
        if plan.action(action).would_change:
            work.reporter.begin(action, plan.action(action).detail)
    reply = work.change(
        "write_files",
        {
            "deploy_id": work.deploy_id,
            "about": {
                "version": version,
                "who": work.session.who,
                "command": work.command,
                "server": work.session.node.server_name,
            },
            "files": [_file(write) for write in writes],
        },
        action="push",
        detail=", ".join(write.label for write in writes),
    )
    written = {each["path"]: each for each in reply["files"]}
    return [
        _read_back(work, "push-code", plan.code, written, plan),
        _read_back(work, "push-config", plan.config, written, plan),
    ]


def _file(write: Write) -> dict[str, Any]:
    return {
        "path": write.path,
        "z": base64.b64encode(zlib.compress(write.content, 9)).decode("ascii"),
        "expect_sha256": write.expect_sha256,
        "mode": None,
        "compile": write.compile,
        "replace_symlink": write.replace_symlink,
    }


def _unchanged(plan: Plan, id: str) -> Done:
    return Done(id, False, plan.action(id).detail)


def _read_back(work: Work, id: str, writes: tuple[Write, ...], written: dict[str, Any], plan: Plan) -> Done:
    if not writes:
        return _unchanged(plan, id)
    hashes = [f"{write.label} {written[write.path]['after_sha256'][:12]}" for write in writes]
    detail = "read back: " + ", ".join(hashes)
    work.reporter.done(id, detail, changed=True)
    return Done(id, True, detail)


def check_imports(work: Work, plan: Plan, root: str) -> list[str]:
    """Import each changed module with the server's interpreter, where its environment allows.

    Returns one line per module. RefusedError, with the files put back, when one does not import or
    another file than the patched one is imported.
    """
    lines = []
    server = work.session.node.server
    paths = {write.path[len(root) + 1 : -len(".py")].replace("/", "."): write.path for write in plan.code}
    work.reporter.progress(f"importing {len(paths)} modules")
    replies = work.session.request(
        "import_check",
        {
            "modules": list(paths),
            "env": environment_of(server, os.environ),
            "cwd": server.cwd,
            "timeout_s": IMPORT_TIMEOUT_S,
        },
        timeout_s=IMPORT_TIMEOUT_S + 10,
    )["modules"]
    # It ends at the first that is not imported: what one misses (no torch, too slow), the others miss too.
    for reply in replies:
        module, outcome = reply["module"], reply["outcome"]
        if outcome == "failed":
            _give_up(work, f"{module} does not import: {reply['message']}")
        if outcome == "imported" and reply["file"] != paths[module]:
            _give_up(work, f"the interpreter imports {reply['file']}, not {paths[module]}")
        if (
            plan.restart
            and server.command is None
            and str(reply["message"]).startswith("ModuleNotFoundError")
        ):
            _give_up_python(work, str(reply["message"]))
        lines.append(f"{module}: {outcome}" + (f" ({reply['message']})" if outcome != "imported" else ""))
    return lines


def _give_up_python(work: Work, message: str) -> None:
    """The interpreter that is to start the server lacks what SGLang imports: the old server is not ended for
    one that cannot start. With a `command` of its own the server may have another interpreter."""
    node = work.session.node
    _give_up(
        work,
        f"{node.python} would start no server: {message}",
        hint=f"set `python` of the node, or `command` and `env` of server '{node.server_name}', to what its"
        " server is started with",
    )


def _give_up(
    work: Work, problem: str, hint: str = "mend the bundle (docs/fixes.md), then run the command again"
) -> None:
    restore_files(work, force=False)
    node = work.session.node
    raise RefusedError(
        f"{node.name}: {problem}; the files were put back",
        hint=hint,
        node=node.name,
        data={"reason": "does-not-import"},
    )


def restore_files(work: Work, *, deploy_id: str | None = None, force: bool) -> list[dict[str, Any]]:
    """Put back what a deploy replaced (default: this one); returns what the node read back."""
    reply = work.change(
        "restore",
        {"deploy_id": deploy_id or work.deploy_id, "force": force},
        action="restore",
        detail=f"files of {deploy_id or work.deploy_id}",
    )
    return list(reply["files"])
