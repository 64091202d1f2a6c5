"""What is sent to start the helper: a command line for any shell, whole code, a table of the operations."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from remote import bootstrap
from remote.frames import FrameReader
from tests.helper.kit import TRIAL, trial_code


def test_the_command_is_read_alike_by_every_shell() -> None:
    """In single quotes sh, csh and fish leave everything but these alone."""
    assert not set("'!\\\n") & set(bootstrap.BOOTSTRAP)
    assert "sglang" not in bootstrap.BOOTSTRAP  # field case 086: pkill -f sglang does not mean the helper


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_odd_paths_reach_the_interpreter_unharmed(tmp_path: Path, shell: str) -> None:
    odd = tmp_path / "it's a $HOME `x` dir"
    odd.mkdir()
    python = odd / "python"
    python.symlink_to(sys.executable)
    code = trial_code()
    line = bootstrap.command(str(python), sudo=False, length=len(code), nonce="0123456789abcdef")
    requests = b'{"id": 1, "op": "hello", "params": {"state_dir": "/x"}}\n'
    requests += b'{"id": 2, "op": "echo", "params": {"a": 1}}\n'
    done = subprocess.run(
        [shell, "-c", line], input=code + requests, capture_output=True, timeout=60, check=True
    )
    frames = FrameReader("0123456789abcdef").feed(done.stdout)
    assert [json.loads(frame)["id"] for frame in frames] == [1, 2]
    assert json.loads(frames[0])["result"]["state_dir"] == "/x"
    assert json.loads(frames[1])["result"] == {"a": 1}


def test_code_that_is_cut_off_starts_nothing() -> None:
    code = trial_code()
    line = bootstrap.command(sys.executable, sudo=False, length=len(code), nonce="0123456789abcdef")
    done = subprocess.run(shlex.split(line), input=code[:-1], capture_output=True, timeout=60, check=False)
    assert done.returncode == 9
    assert done.stdout == b""


def test_the_names_of_the_operations_are_read_from_the_text() -> None:
    """The table that is sent names the operations that the modules really have."""
    import importlib

    sources = {name: text for name, text in bootstrap.node_sources().items() if name != "loader"}
    real = {
        op: name
        for name in sources
        for op in getattr(importlib.import_module(f"remote.node.{name}"), "OPS", {})
    }
    assert bootstrap.op_index(sources) == real
    assert bootstrap.op_index({"trial": TRIAL})["chatter"] == "trial"
