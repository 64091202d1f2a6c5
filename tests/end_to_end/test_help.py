"""`--help` of every command shows its parameters and runs nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from invoke.parser.context import ParserContext

import tasks
from tests.end_to_end.kit import environment, run

CONTEXTS = tasks.namespace.to_contexts()
COMMANDS = sorted(str(context.name) for context in CONTEXTS)


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """An environment in which a command that ran would be seen."""
    return environment(
        FIXOPS_PRACTICE_DIR=str(tmp_path / "practice"), FIXOPS_INVENTORY=str(tmp_path / "none")
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, nowhere: dict[str, str], tmp_path: Path) -> None:
    ran = run(command, "--help", env=nowhere).is_(0)
    assert ran.err == ""
    assert f"{command} [--options]" in ran.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)
def test_every_parameter_says_what_it_is_for(context: ParserContext) -> None:
    arguments = set(context.args.values())
    assert [argument.name for argument in arguments if not (argument.help or "").strip()] == []


def test_the_list_has_every_command_of_the_contract(nowhere: dict[str, str]) -> None:
    ran = run("--list", "--list-format", "json", env=nowhere).is_(0)
    listed = {task["name"] for task in json.loads(ran.out)["tasks"]}
    contract = {
        *("deploy-fix", "verify", "rollback", "status", "logs", "push-fix", "purge-pycache", "kill-stale"),
        *("free-gpus", "start", "stop", "restart", "health", "fixes", "history", "unlock", "trust"),
    }
    assert contract <= listed
    assert all(re.search(r"\w", task["help"]) for task in json.loads(ran.out)["tasks"])
