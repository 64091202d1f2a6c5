"""The dispatcher as a process of its own: signals, the end of its input, and what it loads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from remote import bootstrap
from remote.frames import FrameReader
from tests.node.dispatcher import NONCE

PROBE = """
import sys

def modules(params, ctx):
    return {"modules": sorted(sys.modules), "path": sys.path}

OPS = {"modules": modules}
"""


@contextlib.contextmanager
def process(cwd: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], dict[str, Any]]]]:
    """The helper as it runs on the node, and a way to ask it."""
    code = bootstrap.pack({**bootstrap.node_sources(), "probe": PROBE})
    command = [sys.executable, "-B", "-u", "-c", bootstrap.BOOTSTRAP, str(len(code)), NONCE]
    helper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
    )
    assert helper.stdin is not None
    assert helper.stdout is not None
    reader = FrameReader(NONCE)

    def ask(op: str) -> dict[str, Any]:
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.write(json.dumps({"id": 1, "op": op}).encode() + b"\n")
        helper.stdin.flush()
        while True:
            piece = os.read(helper.stdout.fileno(), 65536)
            assert piece, "the helper ended"
            for frame in reader.feed(piece):
                result: dict[str, Any] = json.loads(frame)["result"]
                return result

    try:
        helper.stdin.write(code)
        helper.stdin.flush()
        yield helper, ask
    finally:
        helper.kill()
        helper.wait()
        for stream in (helper.stdin, helper.stdout, helper.stderr):
            assert stream is not None
            stream.close()


def test_a_hangup_is_survived_and_a_termination_ends_it(tmp_path: Path) -> None:
    with process(tmp_path) as (helper, ask):
        assert ask("hello")["pid"] == helper.pid
        helper.send_signal(signal.SIGHUP)
        assert ask("ping") == {}
        helper.send_signal(signal.SIGTERM)
        assert helper.wait(30) == 0


def test_the_end_of_the_input_ends_it(tmp_path: Path) -> None:
    with process(tmp_path) as (helper, ask):
        ask("ping")
        assert helper.stdin is not None
        helper.stdin.close()
        assert helper.wait(30) == 0
        assert helper.stderr is not None
        assert helper.stderr.read() == b""


def test_the_helper_imports_little_and_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """What it needs costs CPU and memory of a node that has a model to serve."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')\n")
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    with process(tmp_path) as (helper, ask):
        ask("hello")
        answer = ask("modules")
        status = Path(f"/proc/{helper.pid}/status").read_text()
    assert "" not in answer["path"]
    assert str(tmp_path) not in answer["path"]
    added = set(answer["modules"]) - set(bare.stdout.split())
    assert not added & {
        "subprocess",
        "ssl",
        "socket",
        "http",
        "typing",
        "pathlib",
        "logging",
        "hashlib",
        "tempfile",
    }
    assert {name for name in added if name.startswith("fixops_node.")} == {
        f"fixops_node.{name}" for name in ("main", "base", "about", "procfs", "probe")
    }
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak_kib < 30 * 1024
