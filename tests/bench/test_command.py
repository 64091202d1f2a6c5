"""`inv bench` on a group: what happens on one node does not keep the others from being measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from remote import commands
from remote.bench import command
from remote.bench.command import Asked
from remote.cli import Options
from remote.errors import UsageError
from tests.support import free_port


def group(tmp_path: Path) -> Options:
    """Two nodes, neither of which can be reached."""
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
    return Options("bench", "both", str(inventory), True)


def test_a_node_that_cannot_be_reached_does_not_end_the_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        commands.bench_node(group(tmp_path), Asked())
    assert ended.value.code == 3
    document = json.loads(capsys.readouterr().out)
    assert [entry["node"] for entry in document["nodes"]] == ["one", "two"]
    assert document["error"]["code"] == "connect"


def test_one_name_is_not_given_to_the_runs_of_several_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run took the place of the one before, and all were said to be kept there."""
    with pytest.raises(SystemExit) as ended:
        commands.bench_node(group(tmp_path), Asked(save_as="before"))
    assert ended.value.code == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "one name cannot hold the runs of 2 nodes" in error["message"]
    assert "inv bench --save-as before-one --node one" in error["hint"]


@pytest.mark.parametrize("typed", ["0", "-1", "abc", "2.5", ""])
@pytest.mark.parametrize("option", ["requests", "concurrency", "max_tokens", "limit_s"])
def test_a_number_that_means_nothing_is_no_default(option: str, typed: str) -> None:
    """`--requests 0` ran the whole benchmark, and `--requests abc` was a traceback."""
    with pytest.raises(UsageError, match="--"):
        command.options_of(Asked(**{option: typed}))  # type: ignore[arg-type]
