"""A practice node of its own for each test module that asks for one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from remote.practice import build, nvidia_smi, record, wheels
from remote.practice.down import down
from remote.practice.layout import Layout
from remote.practice.ssh_server import SshServer
from remote.practice.up import DEFAULT_VERSION, Up, up
from tests.support import free_port


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A node with two GPUs, fresh from `up`, taken away afterwards."""
    layout = Layout(tmp_path_factory.mktemp("node").resolve() / "practice")
    made = up(layout, gpus=2)
    try:
        yield made
    finally:
        down(layout)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A node's files alone: no server but a process on a GPU, and an SSH server only on paper."""
    layout = Layout(tmp_path_factory.mktemp("quiet").resolve())
    build.build(layout, wheels.fetch(DEFAULT_VERSION), gpus=2)
    layout.ssh.mkdir()
    names = ("user_key", "known_hosts", "log")
    for name in names:
        layout.ssh.joinpath(name).write_text("as it was\n")
    paths = [layout.ssh / name for name in names]
    ssh = SshServer("openssh", "127.0.0.1", free_port(), "nobody", 1, 1, *paths)
    record.write(layout, record.Record(DEFAULT_VERSION, 2, free_port(), ssh, {}))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10000)"]) as holder:
        try:
            ticks = nvidia_smi.start_ticks(holder.pid)
            entry = {"pid": holder.pid, "starttime_ticks": ticks, "gpu": 0, "used_mib": 9, "name": "x"}
            layout.holders.joinpath("holder.json").write_text(json.dumps(entry))
            yield layout
        finally:
            holder.kill()
