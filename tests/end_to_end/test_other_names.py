"""One thing under several names: links of an interpreter, and links of a draft that lead elsewhere later."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.kit import Practice


def test_the_interpreter_by_another_link_of_its_environment(practice: Practice, tmp_path: Path) -> None:
    """As the shebang of the sglang script has it: a deploy succeeds, and the next one has nothing to do."""

    def renamed(content: dict[str, Any]) -> None:
        (server,) = content["servers"].values()
        python, *rest = server["command"]
        server["command"] = [f"{python}3", *rest]

    inventory = practice.inventory(tmp_path / "mine.yaml", renamed)
    assert practice.deploy("--inventory", inventory).verdicts["source.file"] == "pass"
    again = practice.deploy("--inventory", inventory)
    assert [action for action in again.entry["actions"] if action["changed"]] == []


@pytest.fixture
def linked(practice: Practice) -> Iterator[Path]:
    """The draft's directory as a link to one of two that are alike, old.draft and new.draft."""
    practice.undo()
    draft = practice.draft.parent
    old, new = draft.with_name("old.draft"), draft.with_name("new.draft")
    draft.rename(old)
    draft.symlink_to(old.name)
    yield draft
    draft.unlink()
    old.rename(draft)
    if new.exists():
        shutil.rmtree(new)


def test_a_draft_whose_link_is_led_elsewhere_was_not_loaded(practice: Practice, linked: Path) -> None:
    practice.deploy()
    new = linked.with_name("new.draft")
    shutil.copytree(linked, new)
    practice.inv("restart", "--yes", "--json").is_(0)
    assert practice.inv("verify", "--json").is_(0).verdicts["process.after_fix"] == "pass"
    beside = linked.with_name("beside")
    beside.symlink_to(new.name)
    beside.replace(linked)
    found = practice.inv("verify", "--json").is_(7)
    assert found.verdicts["config.values"] == "pass"
    assert {id for id, verdict in found.verdicts.items() if verdict == "fail"} == {"process.after_fix"}
