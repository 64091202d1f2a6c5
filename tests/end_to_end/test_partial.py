"""Files that somebody was at before: completed, kept, or refused; never silently replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.end_to_end.kit import DEEPSEEK, Practice, tree

# The three edits of the incident, as somebody types them; each statement of SGLang occurs once.
BY_HAND = (
    (
        "        self.layers_to_capture = []\n",
        "        self.layers_to_capture = []\n        self.capture_embedding_for_eagle3 = False  # ours\n",
    ),
    (
        "            self.model.layers_to_capture = [val + 1 for val in layer_ids]\n",
        "            # -1 is the embedding\n"
        "            self.model.capture_embedding_for_eagle3 = -1 in layer_ids\n"
        "            self.model.layers_to_capture = [val+1 for val in layer_ids if val != -1]\n",
    ),
    (
        "        aux_hidden_states = []\n",
        "        aux_hidden_states = []\n"
        "        if self.capture_embedding_for_eagle3:\n"
        "            aux_hidden_states.append(hidden_states.clone() if residual is None else "
        "hidden_states + residual)\n",
    ),
)
OWN_TOOL = (
    "\n\ndef layers_of(model):  # the team's own, for the notebook\n    return model.layers_to_capture\n"
)


@pytest.fixture
def node(practice: Practice) -> Iterator[Practice]:
    """The module's node, healed after a test, its model file as it was."""
    original = practice.source(DEEPSEEK).read_bytes()
    yield practice
    practice.inv("practice.heal").is_(0)
    practice.source(DEEPSEEK).write_bytes(original)


def code_and_draft(node: Practice) -> dict[str, str]:
    found = {**tree(node.site_packages), **tree(node.draft.parent.parent)}
    return {name: seen for name, seen in found.items() if "__pycache__" not in name}


def fix_state(node: Practice) -> tuple[str, bool]:
    told = node.inv("status", "--json").is_(0).entry["fix"]
    return told["state"], told["local_changes"]


def test_half_a_fix_is_completed_and_other_changes_are_kept(node: Practice) -> None:
    """The incident's edits and a function of the team's own; the draft in a Hugging Face cache."""
    source, config = node.source(DEEPSEEK), node.draft
    text = source.read_text()
    for find, put in BY_HAND:
        assert text.count(find) == 1
        text = text.replace(find, put)
    source.write_text(text + OWN_TOOL)
    blob = config.parent.parent / "blobs" / hashlib.sha256(config.read_bytes()).hexdigest()
    blob.parent.mkdir()
    config.rename(blob)
    config.symlink_to(f"../blobs/{blob.name}")
    shared = blob.read_bytes()
    before = code_and_draft(node)
    assert fix_state(node) == ("partial", True)

    done = node.deploy()
    assert done.verdicts["source.state"] == "pass"
    after = source.read_text()
    assert after.endswith(OWN_TOOL)
    assert "# -1 is the embedding\n" in after
    assert after.count("capture_embedding_for_eagle3 = -1 in layer_ids") == 1
    assert fix_state(node) == ("ours", True)
    assert "local" in str(done.checks["source.state"]).lower()
    assert not config.is_symlink()
    assert b"-1" in config.read_bytes()
    assert blob.read_bytes() == shared
    assert [action for action in node.deploy().entry["actions"] if action["changed"]] == []

    node.inv("rollback", "--yes", "--json").is_(0)
    assert code_and_draft(node) == before
    assert str(config.readlink()) == f"../blobs/{blob.name}"
    config.unlink()
    blob.rename(config)
    blob.parent.rmdir()


def test_a_foreign_edit_makes_way_for_the_wheels_file_when_asked_to(node: Practice) -> None:
    node.inv("practice.break", "foreign-edit").is_(0)
    source = node.source(DEEPSEEK)
    theirs = source.read_bytes()
    assert fix_state(node)[0] == "foreign"
    dry = node.inv("deploy-fix", "--from-pristine", "--dry-run", "--json").is_(0)
    assert "-        aux_hidden_states = list()" in dry.actions["push-code"]["diff"]
    assert source.read_bytes() == theirs

    node.deploy("--from-pristine")
    assert b"aux_hidden_states = list()" not in source.read_bytes()
    assert fix_state(node) == ("ours", False)
    node.inv("rollback", "--yes", "--json").is_(0)
    assert source.read_bytes() == theirs
