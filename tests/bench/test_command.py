"""`inv bench` on a group: what happens on one node does not keep the others from being measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from remote import commands
from remote.bench.command import Asked
from remote.cli import Options
from tests.support import free_port


def test_a_node_that_cannot_be_reached_does_not_end_the_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = {"model_path": "/models/kimi", "port": 8000, "log": "/logs/server.log"}
    node = {"host": "127.0.0.1", "user": "nobody", "python": "python3", "server": "kimi"}
    inventory = tmp_path / "inventory.yaml"
    content = {
        "defaults": {"fix": "eagle3-embedding-capture"},
        "nodes": {name: {**node, "port": free_port()} for name in ("one", "two")},
        "groups": {"both": ["one", "two"]},
        "servers": {"kimi": server},
    }
    inventory.write_text(yaml.safe_dump(content))
    with pytest.raises(SystemExit) as ended:
        commands.bench_node(Options("bench", "both", str(inventory), True), Asked())
    assert ended.value.code == 3
    document = json.loads(capsys.readouterr().out)
    assert [entry["node"] for entry in document["nodes"]] == ["one", "two"]
    assert document["error"]["code"] == "connect"
