"""Would it compile, would it import: asked of the server's own interpreter, nothing written."""

from __future__ import annotations

import json
import os
import sys

from .bytecode import compile_source, unpack
from .fsio import op_error, read_bytes
from .server import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context


def compile_check(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{path_label, z: base64(zlib(source))} -> {ok, error: {line, message}|null}; nothing is written."""
    error = compile_source(unpack(params["z"]), str(params["path_label"]))
    return {"ok": error is None, "error": error}


def compile_files(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{paths: [absolute]} -> {path: {ok: bool|null, error: {line, message}|null}}; null: not readable."""
    found: dict[str, Any] = {}
    for path in params["paths"]:
        try:
            error = compile_source(read_bytes(path), path)
        except OSError as problem:
            message = op_error(problem, path).message
            found[path] = {"ok": None, "error": {"line": None, "message": message}}
            continue
        found[path] = {"ok": error is None, "error": error}
    return found


# Runs in the server's interpreter and environment. Standard output is the answer's alone.
_TRIAL = """
import importlib, json, os, sys, traceback
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def judge(error, name):
    top = name.partition(".")[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = name.replace(".", os.sep)
    if isinstance(error, SyntaxError):
        return error.filename is not None and (os.sep + top + os.sep) in str(error.filename)
    if isinstance(error, ImportError):
        missing = (error.name or "").partition(".")[0] == top
        return missing and "circular import" not in str(error)
    last = frames[-1].filename if frames else ""
    return last.endswith((own + ".py", own + os.sep + "__init__.py"))
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
        result = {"outcome": "imported", "file": getattr(module, "__file__", None), "message": None}
    except BaseException as error:
        outcome = "failed" if judge(error, name) else "not-possible"
        text = type(error).__name__ + ": " + str(error)
        if isinstance(error, SyntaxError):
            text += " (%s, line %s)" % (error.filename, error.lineno)
        result = {"outcome": outcome, "file": None, "message": text[:2000]}
    answer.write(json.dumps(dict(result, module=name)) + "\\n")
    answer.flush()
    if result["outcome"] != "imported":
        break
os._exit(0)
"""


def import_check(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{modules, env, cwd, timeout_s} -> {modules: [{module, outcome, file, message}]}, up to the first that
    is not imported.

    All in one process of their own: on a real node each process takes as long as SGLang takes to be imported.
    outcome: "imported"; "failed": the module or its package is at fault (syntax, a name that is not there);
    "not-possible": something else is missing here (torch, a GPU), which tells nothing; "timeout".
    """
    import signal
    import subprocess

    modules = [str(name) for name in params["modules"]]
    timeout_s = float(params.get("timeout_s") or 60)
    cut = None
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", _TRIAL, *modules],
        cwd=params.get("cwd"),
        env=environment(params.get("env") or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        data, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        data, _ = process.communicate()
        cut = {"outcome": "timeout", "file": None, "message": f"not imported within {timeout_s:g} s"}
    found = [json.loads(line) for line in data.splitlines()]
    if len(found) < len(modules) and all(each["outcome"] == "imported" for each in found):
        message = f"the interpreter ended with {process.returncode} in the middle of the import"
        cut = cut or {"outcome": "not-possible", "file": None, "message": message}
        found.append({**cut, "module": modules[len(found)]})
    return {"modules": found}


OPS = {
    "compile_check": compile_check,
    "compile_files": compile_files,
    "import_check": import_check,
}
