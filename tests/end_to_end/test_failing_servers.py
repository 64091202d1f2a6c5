"""Servers that do not come up, or do not go down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import shapes
from tests.end_to_end.kit import Practice, alive, finish
from tests.support import wait_until

READY = "The server is fired up and ready to roll!"


@pytest.fixture(scope="module")
def deployed(practice: Practice) -> Practice:
    """The module's node with the fix in place, whatever became of its server."""
    practice.settings()
    practice.deploy()
    return practice


def test_one_that_ends_while_it_starts(practice: Practice) -> None:
    practice.settings(faults={"nccl": True})
    ran = practice.inv("deploy-fix", "--yes", "--json").refuses(
        6, "practice", "NCCL error", "inv logs --errors", "inv rollback"
    )
    shapes.hold(ran, "deploy-fix")
    assert ran.entry["failure"] == "nccl"
    # What it was like then is told all the same.
    assert (ran.verdicts["source.state"], ran.verdicts["process.single"]) == ("pass", "fail")
    last = practice.inv("history", "--json").is_(0).entry["actions"][-2:]
    assert [(row["action"], row["outcome"]) for row in last] == [("health", "error"), ("verify", "failed")]
    assert "NCCL error" in last[0]["error"]
    assert "process.single" in last[1]["detail"]
    told = practice.inv("logs", "--errors", "--json").is_(0)
    shapes.hold(told, "logs")
    boot = told.entry["boots"][-1]
    assert (boot["state"], boot["failure"]["code"]) == ("failed", "nccl")
    assert (
        practice.log.read_text().splitlines()[boot["failure"]["line"] - 1].strip() == boot["failure"]["cause"]
    )
    status = practice.inv("status", "--json").is_(0)
    shapes.hold(status, "status")
    assert (status.entry["server"]["state"], status.entry["fix"]["state"]) == ("down", "ours")
    assert practice.inv("verify", "--json").is_(7).verdicts["process.single"] == "fail"

    # This one replaces no file: a rollback would undo the deploy before it.
    again = practice.inv("deploy-fix", "--yes", "--json").refuses(6, "practice", "inv logs --errors")
    assert "rollback" not in again.err

    practice.settings()
    settled = practice.deploy()
    assert [id for id, action in settled.actions.items() if action["changed"]] == ["start"]
    last = practice.inv("history", "--json").is_(0).entry["actions"][-2:]
    assert [(row["action"], row["outcome"]) for row in last] == [("health", "ok"), ("verify", "ok")]
    assert last[0]["detail"].startswith("ready after ")


def test_one_that_does_not_come_up_after_a_rollback(practice: Practice) -> None:
    practice.settings(faults={"nccl": True})
    ran = practice.inv("rollback", "--yes", "--json").refuses(6, "practice", "NCCL error")
    shapes.hold(ran, "rollback")
    assert "go back" not in ran.err
    assert ran.actions["restore"]["changed"]
    assert ran.verdicts["process.single"] == "fail"
    practice.settings()
    practice.deploy()


def test_one_that_ends_at_once_without_a_word(deployed: Practice, tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["servers"]["practice-eagle3"]["command"] = ["/bin/false"]

    mine = deployed.inventory(tmp_path / "inventory.yaml", change)
    deployed.inv("restart", "--yes", "--json", "--inventory", mine).refuses(6, "practice", "inv logs")


def test_one_that_never_gets_ready(deployed: Practice, tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["servers"]["practice-eagle3"]["ready_timeout_s"] = 4

    deployed.settings(faults={"hang_at": "loading-draft"})
    mine = deployed.inventory(tmp_path / "inventory.yaml", change)
    ran = deployed.inv("restart", "--yes", "--json", "--inventory", mine)
    ran.refuses(6, "practice", "no progress for 4 s", "loading-draft", "inv stop")
    hanging = {pid for pid, title in deployed.sglang().items() if title.startswith("sglang::scheduler")}
    assert len(hanging) == 2

    deployed.settings()
    # One that makes no progress is not waited for again.
    settled = deployed.deploy("--inventory", mine)
    ended = {each["pid"] for each in settled.actions["kill-stale"]["processes"]}
    assert hanging <= ended
    assert not [pid for pid in ended if alive(pid)]


def test_one_that_ignores_sigterm(deployed: Practice) -> None:
    deployed.settings(faults={"ignore_sigterm": True})
    deployed.inv("restart", "--yes", "--json").is_(0)
    pid = deployed.server_pid()
    ran = deployed.inv("stop", "--yes", "--json").is_(0)
    ended = {each["pid"]: each["ended_by"] for each in ran.actions["stop"]["processes"]}
    assert ended[pid] == "KILL"
    assert "by KILL" in ran.actions["stop"]["detail"]
    assert not [pid for pid in ended if alive(pid)]
    assert deployed.sglang() == {}


def test_one_that_says_it_is_ready_and_does_not_generate(deployed: Practice) -> None:
    """/health is 200 all the time. A deploy and a verification see it at once, for each takes a minute."""
    deployed.settings(faults={"health_lies": True, "generate_hangs": True})
    deployed.inv("stop", "--yes", "--json").is_(0)
    with deployed.begun("deploy-fix", "--yes", "--json") as deploying:
        wait_until(lambda: READY in deployed.log.read_text(), 60, what="the ready line")
        with deployed.begun("verify", "--json") as verifying:
            seen = finish(verifying).is_(7)
        finish(deploying).refuses(6, "practice", "does not generate")
    assert seen.verdicts["health.generate"] == "fail"
    shapes.hold(seen, "verify")
