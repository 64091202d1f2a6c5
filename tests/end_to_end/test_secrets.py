"""A value `${VAR}` of the inventory reaches the server, and is shown and kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.kit import Practice, Ran

KEY, TOKEN = "kq7-Zr4mWpt9Xv2LcE", "tb3_Hn8yJf5Sd1Qa6U"
# Of an argument and a variable whose names tell nobody that they hold a secret.
MODEL, PLACE = "quiet-quail-v3", "north-attic-shelf"
GIVEN = {"E2E_API_KEY": KEY, "E2E_TOKEN": TOKEN, "E2E_MODEL": MODEL, "E2E_PLACE": PLACE}
SECRETS = (KEY, TOKEN, MODEL, PLACE)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("verify", "--json"),
    ("verify", "--verbose"),
    ("status", "--json"),
    ("logs", "--lines", "400"),
    ("logs", "--args"),
    ("logs", "--args", "--json"),
    ("logs", "--grep", "api_key"),
    ("logs", "--grep", "server_args", "--json"),
    ("diagnose", "--verbose"),
    ("diagnose", "--json"),
    ("history", "--json"),
)
# Those need the variables.
DEPLOYS: tuple[tuple[str, ...], ...] = (
    ("deploy-fix", "--from-pristine", "--dry-run"),
    ("deploy-fix", "--yes", "--json"),
)
# A colleague sees the processes of the server that somebody else started.
COLLEAGUES: tuple[tuple[str, ...], ...] = (
    ("stop", "--dry-run"),
    ("stop", "--dry-run", "--json"),
    ("deploy-fix", "--dry-run", "--json"),
)


@pytest.fixture(scope="module")
def secretive(practice: Practice, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An inventory with references among the arguments and in the environment."""

    def change(content: dict[str, Any]) -> None:
        server = content["servers"]["practice-eagle3"]
        server["args"]["api-key"] = "${E2E_API_KEY}"
        server["args"]["served-model-name"] = "kimi-${E2E_MODEL}"
        server["env"] = {"HF_TOKEN": "${E2E_TOKEN}", "PYTHONPATH": "${E2E_PLACE}"}

    return practice.inventory(tmp_path_factory.mktemp("mine") / "inventory.yaml", change)


def holding(folder: Path) -> list[Path]:
    """The files below this folder that hold a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS)]


def leaking(shown: dict[tuple[str, ...], Ran]) -> list[tuple[str, ...]]:
    """The commands that showed a secret."""
    return [words for words, ran in shown.items() if any(one in ran.out + ran.err for one in SECRETS)]


def test_a_variable_that_is_not_set_is_told_before_anything_is_touched(
    practice: Practice, secretive: str
) -> None:
    before = practice.everything()
    for command in ("deploy-fix", "restart"):
        ran = practice.inv(command, "--yes", "--json", "--inventory", secretive, env={"E2E_TOKEN": TOKEN})
        ran.refuses(2, "E2E_API_KEY", "export E2E_API_KEY")
        assert practice.everything() == before


def test_secrets_are_nowhere(practice: Practice, secretive: str, tmp_path: Path) -> None:
    env = {**GIVEN, "FIXOPS_CACHE": str(tmp_path / "cache")}
    named = ("--inventory", secretive)
    done = practice.inv("deploy-fix", "--yes", *named, env=env)
    shown: dict[tuple[str, ...], Ran] = {("deploy-fix", "--yes"): done}
    arguments = Path(f"/proc/{practice.server_pid()}/cmdline").read_bytes().split(b"\0")
    assert arguments[arguments.index(b"--api-key") + 1] == KEY.encode()
    assert f"HF_TOKEN={TOKEN}".encode() in Path(f"/proc/{practice.server_pid()}/environ").read_bytes()
    shown.update({words: practice.inv(*words, *named, env=env) for words in COMMANDS + DEPLOYS})
    assert leaking(shown) == []
    assert holding(practice.state) == []
    assert holding(tmp_path) == []
    stored = [json.loads(path.read_text()) for path in practice.state.glob("boots/*/boot.json")]
    assert all("${E2E_API_KEY}" in boot["record"]["argv"] for boot in stored)
    # A server with a key answers those who have it: the checks have it.
    assert {words: ran.code for words, ran in shown.items() if ran.code} == {}


def test_a_colleague_who_has_not_set_the_variables_is_not_shown_them(
    practice: Practice, secretive: str
) -> None:
    practice.inv("deploy-fix", "--yes", "--inventory", secretive, env=GIVEN)
    line = Path(f"/proc/{practice.server_pid()}/cmdline").read_bytes()
    assert f"kimi-{MODEL}".encode() in line.split(b"\0")
    shown = {words: practice.inv(*words, "--inventory", secretive) for words in COMMANDS + COLLEAGUES}
    assert leaking(shown) == []
    assert "kimi-***" in shown[("logs", "--args", "--json")].out
    assert "kimi-***" in shown[("stop", "--dry-run", "--json")].out


def test_a_failing_start_does_not_tell_them_either(practice: Practice, secretive: str) -> None:
    practice.settings(faults={"nccl": True})
    try:
        for words in (("restart", "--yes"), ("restart", "--yes", "--json"), ("logs", "--errors", "--json")):
            ran = practice.inv(*words, "--inventory", secretive, env=GIVEN).is_(0 if "logs" in words else 6)
            assert leaking({words: ran}) == []
    finally:
        practice.settings()
    assert holding(practice.state) == []
