"""The whole procedure on every version that the bundle covers, and on one that it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.end_to_end import shapes
from tests.end_to_end.kit import Practice, standing

COVERED = ("0.5.5", "0.5.6", "0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12")
CONTRACT = ["embed", "in:3", "in:31"]


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A practice node with the version that the test names."""
    yield from standing(tmp_path_factory.mktemp("node").resolve() / "p", "--sglang", request.param)


@pytest.mark.parametrize("node", COVERED, indirect=True)
def test_a_deploy_proves_all_of_it_and_the_next_one_changes_nothing(node: Practice) -> None:
    before = node.sglang()
    first = node.deploy()
    shapes.hold(first, "deploy-fix")
    assert set(first.verdicts.values()) <= {"pass", "skip"}, first
    assert [id for id, verdict in first.verdicts.items() if verdict == "skip"] == ["wiring.overlap"]
    wiring = first.entry["wiring"]
    assert (wiring["contract"], wiring["eager"], wiring["graph"]) == (CONTRACT, CONTRACT, CONTRACT)
    changed = [id for id, action in first.actions.items() if action["changed"]]
    assert changed == ["push-code", "push-config", "purge-pycache", "kill-stale", "free-gpus", "start"]
    ended = {process["pid"] for process in first.actions["kill-stale"]["processes"]}
    assert set(before) <= ended
    assert not set(before) & set(node.sglang())
    config = json.loads(node.draft.read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [-1, 2, 30]

    seen, pid = node.everything(), node.server_pid()
    again = node.deploy()
    shapes.hold(again, "deploy-fix")
    assert not [action for action in again.entry["actions"] if action["changed"]]
    assert again.entry["deploy_id"] is None
    assert again.verdicts == first.verdicts
    assert node.server_pid() == pid
    assert node.everything() == seen


@pytest.mark.parametrize("node", ["0.5.13"], indirect=True)
def test_a_version_that_the_bundle_does_not_cover_is_refused(node: Practice) -> None:
    before = node.everything()
    ran = node.inv("deploy-fix", "--yes", "--json").refuses(5, "0.5.13", "practice", "inv fixes")
    shapes.hold(ran, "deploy-fix")
    assert node.everything() == before
    listed = node.inv("fixes", "--json").is_(0)
    assert "0.5.13" in listed.out
