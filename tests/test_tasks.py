"""The commands as `inv` finds them: what each of them refuses before it does anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoke.program import Program

import tasks


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
