"""The commands as `inv` finds them: what each takes, and what it refuses before it does anything."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from invoke.program import Program

import tasks
from remote import commands
from remote.cli import Options

# All others change something.
READING = {
    *("verify", "diagnose", "bench", "report", "status", "health", "fixes", "logs", "history", "runbook"),
}
PRACTICE = ["practice.up", "practice.down", "practice.break", "practice.heal"]
INVENTORY = """\
defaults: {node: blackwell}
nodes:
  lab: {practice: true}
  blackwell: {host: blackwell, python: python3, server: kimi}
servers:
  kimi: {model_path: /m, port: 8000, log: /l}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An inventory, on a machine without a practice node whose own inventory is not there."""
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "practice"))
    monkeypatch.setenv("FIXOPS_INVENTORY", str(tmp_path / "none.yaml"))
    tmp_path.joinpath("mine.yaml").write_text(INVENTORY)
    return str(tmp_path / "mine.yaml")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """`inv WORDS... --json`: the document."""
    with pytest.raises(SystemExit) as caught:
        Program(namespace=tasks.namespace, version="0").run(["inv", *words, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    assert caught.value.code == document["exit_code"]
    return document


@pytest.mark.parametrize("command", sorted(tasks.namespace.task_names))
def test_every_command_takes_what_the_contract_says(command: str) -> None:
    wanted = {"node", "inventory", "json"} | (set() if command in READING else {"yes", "dry_run"})
    # From the function: Invoke hands out the help of a parameter only once, and test_help.py reads that.
    assert wanted - set(inspect.signature(tasks.namespace[command].body).parameters) == set()


@pytest.mark.parametrize("command", PRACTICE)
@pytest.mark.parametrize(
    ("node", "told", "next_"),
    [
        ("blackwell", "'blackwell' is no practice node", "--node lab"),
        ("labb", "no node or group 'labb' (did you mean 'lab'?)", "lab"),
        ("", "--node is empty", "shell variable"),
    ],
)
def test_what_is_for_the_practice_node_is_refused_for_another(
    command: str, node: str, told: str, next_: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = run(capsys, command, "--node", node, "--inventory", file)
    assert (error["exit_code"], error["error"]["code"]) == (2, "usage")
    assert told in error["error"]["message"]
    assert next_ in error["error"]["hint"]


def test_an_inventory_without_a_practice_node_is_not_about_one(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(INVENTORY.replace("  lab: {practice: true}\n", ""))
    for words in (["--node", "blackwell"], []):
        error = run(capsys, "practice.down", *words, "--inventory", file)
        assert error["exit_code"] == 2
        assert "practice: true" in error["error"]["hint"]


@pytest.mark.parametrize(
    ("words", "name"), [(["--node", "lab"], "lab"), ([], "lab"), (["--node", "lab", "--dry-run"], "lab")]
)
def test_the_practice_node_has_the_inventorys_name(
    words: list[str], name: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (entry,) = run(capsys, "practice.down", "--inventory", file, *words)["nodes"]
    assert entry["node"] == name


def test_the_practice_nodes_commands_need_no_inventory_and_ask_nothing(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not Path(file).with_name("none.yaml").exists()
    for words in ([], ["--yes"], ["--dry-run"], ["--yes", "--dry-run"]):
        (entry,) = run(capsys, "practice.down", *words)["nodes"]
        assert (entry["node"], entry["dry_run"]) == ("practice", "--dry-run" in words)


def test_a_dry_run_says_that_nothing_was_changed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        Program(namespace=tasks.namespace, version="0").run(
            ["inv", "practice.up", "--dry-run", "--node", "lab", "--inventory", file]
        )
    assert caught.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "dry run: nothing was changed on lab"
    assert not Path(file).with_name("practice").exists()


@pytest.mark.parametrize("command", sorted(tasks.namespace.task_names))
def test_invokes_own_dry_run_is_refused_by_every_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it says it would not do: with practice.down it once removed the node."""
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "practice"))
    monkeypatch.setenv("FIXOPS_INVENTORY", str(tmp_path / "none.yaml"))
    with pytest.raises(SystemExit) as caught:
        Program(namespace=tasks.namespace, version="0").run(["inv", "--dry", command, "--json"])
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["command"] == command
    assert "--dry-run" in told.err


def test_what_to_type_next_is_for_the_node_that_was_named(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        commands.practice(
            Options("practice.break", "lab", file), lambda _: ({"dry_run": False}, ["found by: inv verify"])
        )
    assert capsys.readouterr().out == f"found by: inv verify --node lab --inventory {file}\n"
