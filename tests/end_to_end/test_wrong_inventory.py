"""What is wrong in an inventory is said before anything is connected to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.kit import environment, run

CORRECT = """\
defaults: {node: gpu7, fix: eagle3-embedding-capture}
nodes:
  gpu7: {host: 127.0.0.1, python: /usr/bin/python3, server: kimi}
groups:
  fleet: [gpu7]
servers:
  kimi:
    model_path: /m
    port: 8000
    log: /l
    args: {tp-size: 8}
"""


@pytest.mark.parametrize(
    ("find", "put", "says"),
    [
        ("  gpu7: {host", "  gpu7: {hots", ["3", "hots", "'host'"]),
        ("    port: 8000", "    prot: 8000", ["9", "prot", "'port'"]),
        ("    port: 8000", "    port: eight", ["9", "port", "eight"]),
        ("    port: 8000", "    port: 80000", ["9", "port"]),
        ("server: kimi}", "server: kimmi}", ["3", "kimmi", "'kimi'"]),
        ("fleet: [gpu7]", "fleet: [gpu8]", ["5", "gpu8", "'gpu7'"]),
        ("defaults: {node: gpu7", "defaults: {node: gpu", ["1", "gpu7"]),
        ("groups:", "group:", ["4", "group", "'groups'"]),
        ("    log: /l", "    log: [/l", ["YAML"]),
        ("    log: /l", "    log: /l\n    log: /l", ["11", "log", "twice"]),
        ("    model_path: /m\n", "", ["model_path"]),
        ("host: 127.0.0.1, ", "", ["3", "host"]),
        ("fleet: [gpu7]", "fleet: []", ["5", "groups.fleet"]),
        ("fix: eagle3-embedding", "fix: eagle3-embeding", ["1", "'eagle3-embedding-capture'"]),
        ("tp-size: 8", "tp-size: 2024-13-45", ["11", "YAML"]),
        ("tp-size: 8", "port: 9999", ["11", "args.port", "8000"]),
    ],
)
def test_what_is_wrong_in_an_inventory_is_named_with_its_line(
    tmp_path: Path, find: str, put: str, says: list[str]
) -> None:
    path = tmp_path / "inventory.yaml"
    assert find in CORRECT
    path.write_text(CORRECT.replace(find, put))
    ran = run("history", "--json", "--inventory", str(path), env=environment())
    line = [f"{path}:{says[0]}:"] if says[0].isdigit() else [str(path)]
    ran.refuses(2, *line, *(word for word in says if not word.isdigit()))
    assert ran.document["nodes"] == []
    assert ran.document["error"]["code"] == "inventory"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--inventory", "no-such-file.yaml"], ["no-such-file.yaml"]),
        (["--node", "gpu9"], ["gpu9", "gpu7"]),
        (["--node", ""], ["--node is empty"]),
        (["--fix", "eagle3-embeding-capture"], ["eagle3-embeding-capture", "eagle3-embedding-capture"]),
    ],
)
def test_a_name_that_is_nowhere(tmp_path: Path, words: list[str], says: list[str]) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(CORRECT)
    env = environment(FIXOPS_INVENTORY=str(path))
    run("deploy-fix", "--yes", "--json", *words, env=env).refuses(2, *says)
