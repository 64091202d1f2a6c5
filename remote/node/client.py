"""SGLang's own benchmark client, run with the interpreter that runs the server: a second opinion."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import os
import sys

from .base import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

LOOK_EVERY_S = 0.2
TAIL = 16 * 1024
RESULT_LIMIT = 8 << 20
# Requests go to loopback and the tokenizer lies beside the model: no proxy and no model hub is asked.
_ENV = {"NO_PROXY": "*", "no_proxy": "*", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        return file.read().decode("utf-8", "replace")


def _last_line(path: str) -> str | None:
    """The last line of the client's result file; null when it wrote none."""
    try:
        with open(path, "rb") as file:
            lines = [line for line in file.read(RESULT_LIMIT).split(b"\n") if line.strip()]
    except FileNotFoundError:
        return None
    return lines[-1].decode("utf-8", "replace") if lines else None


def bench_client(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Run `python -m MODULE ARGS --dataset-path FILE --output-file FILE` and read its result.

    {module, args: [text], dataset: text of the file, env?: {..added}, cwd?}
    Events: {elapsed_s}. -> {exit: status (negative: signal), result: the last line of the result file or
    null, stdout, stderr: the last 16 kB of each, ended: "done|cancelled|limit", elapsed_s}. Everything that
    it writes lies in a directory of its own, which is removed. OpError "missing" if it cannot be started.
    """
    import shutil
    import subprocess
    import tempfile
    import time

    folder = tempfile.mkdtemp(prefix="fixops-client-")
    began = time.monotonic()
    process = None
    try:
        paths = {name: os.path.join(folder, name) for name in ("dataset", "result", "stdout", "stderr")}
        with open(paths["dataset"], "w", encoding="utf-8") as file:
            file.write(params["dataset"])
        argv = [sys.executable, "-B", "-m", params["module"], *params["args"]]
        argv += ["--dataset-path", paths["dataset"], "--output-file", paths["result"]]
        env = {**os.environ, **(params.get("env") or {}), **_ENV}
        with open(paths["stdout"], "wb") as out, open(paths["stderr"], "wb") as err:
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=env,
                    cwd=params.get("cwd") or folder,
                )
            except OSError as error:
                raise OpError("missing", f"the client cannot be started: {error}") from None
        ended = "done"
        while process.poll() is None:
            if ctx.wait(LOOK_EVERY_S) or ctx.remaining_s() <= 0:
                ended = "limit" if ctx.remaining_s() <= 0 else "cancelled"
                process.terminate()
                try:
                    process.wait(5.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                break
            ctx.event({"elapsed_s": round(time.monotonic() - began, 1)})
        return {
            "exit": process.returncode,
            "result": _last_line(paths["result"]),
            "stdout": _tail(paths["stdout"]),
            "stderr": _tail(paths["stderr"]),
            "ended": ended,
            "elapsed_s": round(time.monotonic() - began, 3),
        }
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


OPS = {"bench_client": bench_client}
