"""`--dry-run` tells what would be done and touches nothing, not even the state directory."""

from __future__ import annotations

import pytest

from tests.end_to_end import shapes
from tests.end_to_end.kit import FIXED, Practice


def test_a_deploy_in_dry_run_shows_each_change(incident: Practice) -> None:
    ran = incident.inv("deploy-fix", "--dry-run", "--json").is_(0)
    shapes.hold(ran, "deploy-fix")
    assert ran.entry["deploy_id"] is None
    assert [id for id, action in ran.actions.items() if action["would_change"]] == [
        *("push-code", "push-config", "purge-pycache", "kill-stale", "free-gpus", "start")
    ]
    assert {action["changed"] for action in ran.actions.values()} == {False}
    code, config = ran.actions["push-code"]["diff"], ran.actions["push-config"]["diff"]
    assert all(name in code for name in FIXED)
    assert "\n+        self.capture_embedding_for_eagle3 = False\n" in code
    assert "\n-            self.model.layers_to_capture = [val + 1 for val in layer_ids]\n" in code
    assert "-1" in config
    assert "config.json" in config
    for pid in incident.sglang():
        assert str(pid) in ran.actions["kill-stale"]["detail"] or pid != incident.server_pid()


def test_a_person_sees_the_same(incident: Practice) -> None:
    ran = incident.inv("deploy-fix", "--dry-run").is_(0)
    assert "+        self.capture_embedding_for_eagle3 = False" in ran.out
    assert "change" in ran.out


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["push-fix"], 0),
        (["stop"], 0),
        (["kill-stale"], 0),
        (["restart"], 0),
        (["start"], 5),  # a server runs
        (["rollback"], 5),  # there is nothing to put back
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_every_changing_command_has_one(incident: Practice, command: list[str], code: int) -> None:
    ran = incident.inv(*command, "--dry-run", "--json").is_(code)
    assert ran.document["exit_code"] == code
    for action in ran.entry.get("actions", []):
        assert shapes.mismatch(action, shapes.ACTION) is None
        assert ("processes" in action) is (action["id"] in ("kill-stale", "stop"))
        assert (action["changed"], isinstance(action["would_change"], bool)) == (False, True)
