"""The other versions: each starts from its own wheel and speaks its own dialect."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from remote.sglang import failures
from tests.sglang.data import read_log

from .kit import DEEPSEEK, KIMI, make_node, rank_pid, started


@pytest.mark.parametrize(
    ("version", "architecture"), [("0.5.5", DEEPSEEK), ("0.5.10", KIMI), ("0.5.12", KIMI)]
)
def test_a_version_starts_and_generates(tmp_path: Path, version: str, architecture: str) -> None:
    node = make_node(tmp_path, version, architecture)
    with started(node) as server:
        server.wait_ready()
        reply = server.generate(150)
        info = server.get("/get_server_info")
        assert info["version"] == version
        assert reply["meta_info"]["spec_accept_length"] == 150 / reply["meta_info"]["spec_verify_ct"]
        assert (server.request("GET", "/server_info")[0] == 200) == (version != "0.5.5")
        (boot,) = read_log(server.log())
        assert boot.state == "ready"
        assert boot.decode is not None
        assert boot.decode.accept_len is not None
        os.kill(rank_pid(server, 1), signal.SIGKILL)
        assert server.wait_end() == -signal.SIGKILL
        assert failures.first_cause(server.log()) is not None
