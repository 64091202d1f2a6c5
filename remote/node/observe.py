"""One observation: every section that was asked for, at the same time; one that fails hides no other."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH113, PTH118

from __future__ import annotations

import os
import threading
from importlib import import_module

from . import about
from .base import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context, Op

# Modules are imported when their section is asked for.
SECTIONS = {
    "node": "observe",
    "package": "pyenv",
    "files": "files",
    "configs": "files",
    "bytecode": "bytecode",
    "procs": "procs",
    "gpus": "gpus",
    "http": "http",
    "log": "logs",
    "state": "state",
    "weights": "weights",
    "startable": "server",
}


def node(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{} -> {hostname, boot_id, uid, euid, user, python, version, pycache_prefix, pythonpath, time,
    state_dir}.

    pythonpath: what the login sets, and so a server that is started here unless it is told otherwise.
    """
    described = about.describe(ctx.state.dir)
    wanted = ("hostname", "boot_id", "user", "python", "version", "pycache_prefix", "state_dir")
    facts = {key: described[key] for key in wanted}
    return {
        **facts,
        "uid": os.getuid(),
        "euid": os.geteuid(),
        "pythonpath": os.environ.get("PYTHONPATH"),
        "time": ctx.now(),
    }


def section(name: str) -> Op:
    """The operation behind a section. OpError "unsupported"."""
    if name not in SECTIONS:
        raise OpError("unsupported", f"there is no section {name!r}")
    op: Op = import_module(f".{SECTIONS[name]}", __package__).OPS[f"facts.{name}"]
    return op


# What a section takes from another one, when both are asked for: so that one observation is one request.
FIRST = {"files": "package", "bytecode": "package", "procs": "gpus"}


def completed(name: str, wanted: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """The section's params with what only `first`, the result of FIRST[name], could tell.

    files and bytecode with `root` null are those of the package that was found; the processes that hold
    a GPU are described among the others. OpError "missing" without a package.
    """
    if name == "procs":
        holders = [holder["pid"] for holder in first.get("holders", []) if holder["pid"] is not None]
        return {**wanted, "extra_pids": [*wanted.get("extra_pids", []), *holders]}
    if "root" not in wanted or wanted["root"] is not None:
        return wanted
    root = (first.get("imported") or {}).get("root")
    if root is None:
        raise OpError("missing", first.get("error", {}).get("message") or "the package was not found")
    if name == "files":
        return {**wanted, "root": root}
    there = [os.path.join(root, path) for path in wanted["files"]]
    return {**wanted, "files": [path for path in there if os.path.isfile(path)]}


def observe(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{sections: {NAME: params}} -> {NAME: result | {"error": {kind, message}}}."""
    found: dict[str, Any] = {}
    done = {name: threading.Event() for name in params["sections"]}

    def look(name: str, wanted: dict[str, Any]) -> None:
        try:
            first = FIRST.get(name)
            if first is not None and first in done:
                done[first].wait()
                wanted = completed(name, wanted, found[first])
            found[name] = section(name)(wanted, ctx)
        except OpError as error:
            found[name] = {"error": {"kind": error.kind, "message": error.message}}
        except Exception as error:  # a section's fault must not hide the others
            found[name] = {"error": {"kind": "internal", "message": f"{type(error).__name__}: {error}"}}
        finally:
            done[name].set()

    threads = [
        threading.Thread(target=look, args=(name, wanted or {}), daemon=True)
        for name, wanted in params["sections"].items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


OPS = {"observe": observe, "facts.node": node}
