"""The way back: what a deploy replaced comes back exactly, and is served."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request

import pytest

from tests.end_to_end import shapes
from tests.end_to_end.kit import DEEPSEEK, FIXED, GRAPH_RUNNER, Practice, Ran, tree

LONG_AGO = 1_600_000_000_123_456_789
# The old configuration's ids reached prefill, with 1 added to each; decode ran on SGLang's own defaults.
OLD_EAGER, OLD_GRAPH = ["in:3", "in:31", "in:59"], ["in:2", "in:30", "in:58"]
THREE_EDITS = ("--fix", "eagle3-three-edits")


@pytest.fixture
def node(practice: Practice) -> Practice:
    """The module's node, every deploy of the tests before rolled back."""
    practice.undo()
    return practice


def code_and_config(node: Practice) -> dict[str, str]:
    """SGLang's tree and the draft, without bytecode: Python makes that anew from the source."""
    found = {**tree(node.site_packages), **tree(node.draft.parent)}
    return {name: seen for name, seen in found.items() if "__pycache__" not in name}


def contents(seen: dict[str, str]) -> dict[str, str]:
    return {name: about.split()[-1] for name, about in seen.items()}


def rollback(node: Practice, *words: str) -> Ran:
    """A rollback that must be a success."""
    ran = node.inv("rollback", "--yes", "--json", *words).is_(0)
    shapes.hold(ran, "rollback")
    assert set(ran.verdicts.values()) <= {"pass", "skip"}, ran
    return ran


def accept_len(node: Practice) -> float:
    """How many tokens a step gives: what shows which layers the running server feeds to the draft."""
    body = json.dumps({"text": "once", "sampling_params": {"max_new_tokens": 400, "temperature": 0}})
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.server_port}/generate", body.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
        told = json.load(reply)["meta_info"]
    return float(told["completion_tokens"]) / float(told["spec_verify_ct"])


def changes_nothing(node: Practice, deployed: str) -> Ran:
    """A rollback of what is put back already."""
    for ways in (["--dry-run"], ["--yes"]):
        ran = node.inv("rollback", "--to", deployed, "--json", *ways).is_(0)
        assert not any(action["changed"] or action.get("would_change") for action in ran.actions.values())
        assert "diff" not in ran.actions["restore"]
    assert "nothing was changed" in node.inv("rollback", "--to", deployed, "--yes").is_(0).out
    return ran


def test_all_is_as_before_to_the_nanosecond_and_is_served(node: Practice) -> None:
    for path, mode in ((node.draft, 0o640), (node.source(DEEPSEEK), 0o604)):
        if os.geteuid() == 0:
            os.chown(path, 4321, 1234)
        path.chmod(mode)
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
    before, old_accept_len = code_and_config(node), accept_len(node)
    deployed = node.deploy()
    fixed = code_and_config(node)
    assert {name for name, seen in fixed.items() if before[name] != seen} == {*FIXED, "config.json"}
    assert fixed[DEEPSEEK].split()[:2] == before[DEEPSEEK].split()[:2], "mode and owner are kept"
    assert accept_len(node) > 2.5
    new_pid, seen = node.server_pid(), node.everything()
    dry = node.inv("rollback", "--dry-run", "--json").is_(0)
    assert {id for id, action in dry.actions.items() if action["would_change"]} >= {"restore", "start"}
    assert not any(action["changed"] for action in dry.actions.values())
    assert new_pid in {each["pid"] for each in dry.actions["kill-stale"]["processes"]}
    diff = dry.actions["restore"]["diff"]
    assert all(f"+++ b/{name}" in diff for name in FIXED)
    assert "\n-        self.capture_embedding_for_eagle3 = False\n" in diff
    assert "no diff" not in dry.actions["restore"]["detail"]
    assert diff.splitlines()[2] in node.inv("rollback", "--dry-run").is_(0).out
    assert node.everything() == seen

    back = rollback(node)
    assert code_and_config(node) == before
    assert back.entry["deploy_id"] == deployed.entry["deploy_id"]
    assert back.entry["wiring"]["eager"] == OLD_EAGER
    assert back.entry["wiring"]["graph"] == OLD_GRAPH
    assert list(back.actions) == ["restore", "purge-pycache", "kill-stale", "free-gpus", "start", "health"]
    skipped = {id for id, verdict in back.verdicts.items() if verdict == "skip"}
    assert skipped >= {"wiring.eager", "wiring.graph", "log.capture"}
    assert back.verdicts["source.state"] == back.verdicts["config.values"] == "pass"
    assert new_pid in {each["pid"] for each in back.actions["kill-stale"]["processes"]}
    assert node.server_pid() != new_pid
    assert "EAGLE-3 capture" not in node.log.read_text()
    assert accept_len(node) == pytest.approx(old_accept_len, abs=0.4)

    seen = node.everything()
    node.inv("rollback", "--yes", "--json").refuses(5, "no deploy is in place", "inv history")
    assert changes_nothing(node, deployed.entry["deploy_id"]).verdicts == back.verdicts
    assert node.everything() == seen

    again = node.deploy()
    assert contents(code_and_config(node)) == contents(fixed)
    told = node.inv("history", "--json").is_(0)
    shapes.hold(told, "history")
    by_deploy = [action["deploy_id"] for action in told.entry["actions"]]
    assert by_deploy[0] == deployed.entry["deploy_id"]
    assert by_deploy[-1] == again.entry["deploy_id"]
    assert {action["outcome"] for action in told.entry["actions"]} == {"ok"}


def test_an_original_that_cannot_be_read_has_no_diff(node: Practice) -> None:
    """Not on the node, and not in this machine's cache: the plan says so, and still tells the others."""
    deployed = node.deploy().entry["deploy_id"]
    found = node.state / "deploys" / deployed / "manifest.json"
    entry = next(each for each in json.loads(found.read_text())["files"] if DEEPSEEK in each["named"])
    kept = node.state / "blobs" / entry["original"]["sha256"]
    content, mode = kept.read_bytes(), kept.stat().st_mode
    kept.unlink()
    elsewhere = {"FIXOPS_CACHE": str(node.root.parent / "empty-cache")}
    dry = node.inv("rollback", "--dry-run", "--json", env=elsewhere).is_(0).actions["restore"]
    kept.write_bytes(content)
    kept.chmod(mode)
    assert f"{DEEPSEEK} (no diff: its original cannot be read)" in dry["detail"]
    assert DEEPSEEK not in dry["diff"]
    assert GRAPH_RUNNER in dry["diff"]


def test_a_server_that_still_runs_what_was_put_back_is_started_anew(node: Practice) -> None:
    """A rollback that was stopped once the files were back is finished by the next one."""
    deployed = node.deploy().entry["deploy_id"]
    rollback(node)
    source, old = node.source(DEEPSEEK), node.server_pid()
    source.chmod(source.stat().st_mode)  # as it is; its change time is now after the server's start
    ran = rollback(node, "--to", deployed)
    assert (ran.actions["restore"]["changed"], ran.actions["start"]["changed"]) == (False, True)
    assert node.server_pid() != old


def test_what_somebody_changed_since_is_not_overwritten_unasked(node: Practice) -> None:
    before = code_and_config(node)
    node.deploy()
    paths = (node.source(DEEPSEEK), node.draft)
    theirs = [path.read_bytes() + b"\n" for path in paths]
    for path, edited in zip(paths, theirs, strict=True):
        path.write_bytes(edited)
    seen = node.everything()
    names = [path.name for path in paths]
    node.inv("rollback", "--yes", "--json").refuses(5, *names, "changed since", "--force")
    node.inv("rollback", "--dry-run", "--json").refuses(5, *names)
    assert node.everything() == seen
    rollback(node, "--force")
    assert code_and_config(node) == before
    for edited in theirs:
        kept = node.state / "blobs" / hashlib.sha256(edited).hexdigest()
        assert kept.read_bytes() == edited


def test_each_deploy_is_undone_by_itself_and_an_older_one_only_by_force(node: Practice) -> None:
    pristine = code_and_config(node)
    first = node.inv("deploy-fix", "--yes", "--json", *THREE_EDITS).entry["deploy_id"]
    halfway = code_and_config(node)
    second = node.deploy().entry["deploy_id"]
    seen = node.everything()
    node.inv("rollback", "--yes", "--json", "--to", "20200101T000000Z-0000").refuses(5, first, second)
    node.inv("rollback", "--yes", "--json", "--to", first).refuses(5, DEEPSEEK, "--force")
    assert node.everything() == seen
    rollback(node, "--to", second, *THREE_EDITS)
    assert code_and_config(node) == halfway

    node.deploy()
    fixed = code_and_config(node)
    rollback(node, "--to", first, "--force")
    after = code_and_config(node)
    assert after[DEEPSEEK] == pristine[DEEPSEEK]
    assert after["config.json"] == pristine["config.json"]
    assert after[GRAPH_RUNNER] == fixed[GRAPH_RUNNER] != pristine[GRAPH_RUNNER]


def test_files_of_one_version_do_not_go_into_another(node: Practice) -> None:
    """SGLang was upgraded in between: what the deploy replaced is of the old version."""
    deployed = node.deploy().entry["deploy_id"]
    (metadata,) = node.site_packages.glob("sglang-*.dist-info/METADATA")
    old = metadata.read_text(encoding="utf-8")
    metadata.write_text(old.replace("\nVersion: 0.5.9", "\nVersion: 0.5.10"), encoding="utf-8")
    try:
        seen = node.everything()
        for words in ((), ("--force",), ("--to", deployed, "--force")):
            ran = node.inv("rollback", "--yes", "--json", *words)
            ran.refuses(5, deployed, "files of SGLang 0.5.9", "0.5.10 is installed", "inv deploy-fix")
        assert node.everything() == seen
    finally:
        metadata.write_text(old, encoding="utf-8")
    rollback(node)


def test_a_deploy_that_does_not_tell_its_version_is_undone_by_force(node: Practice) -> None:
    deployed = node.deploy().entry["deploy_id"]
    record = node.state / "deploys" / deployed / "manifest.json"
    manifest = json.loads(record.read_text(encoding="utf-8"))
    assert manifest.pop("about")["version"] == "0.5.9"
    record.write_text(json.dumps(manifest), encoding="utf-8")
    node.inv("rollback", "--yes", "--json").refuses(5, deployed, "not known", "then unknown", "--force")
    rollback(node, "--force")
