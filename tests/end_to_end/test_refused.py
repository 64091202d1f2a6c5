"""What stands in the way of a deploy: it is named, with the contract's exit code, and nothing is touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.kit import DEEPSEEK, PROJECT, Practice, Ran, alive, finish, listeners
from tests.support import free_port, wait_until

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def node(practice: Practice) -> Iterator[Practice]:
    """The module's node, which was never deployed to; faults are healed after the test."""
    yield practice
    practice.inv("practice.heal").is_(0)


def refused(node: Practice, code: int, *words: str, inventory: str | None = None) -> Ran:
    """A deploy that is refused, for a person and for a program, and touches nothing."""
    before = node.everything()
    named = [] if inventory is None else ["--inventory", inventory]
    ran = node.inv("deploy-fix", "--yes", "--json", *named).refuses(code, "practice", *words)
    assert ran.document["ok"] is False
    assert node.everything() == before
    return ran


def server(**changes: Any) -> Change:
    """The server's entry of an inventory, changed."""
    return lambda content: content["servers"]["practice-eagle3"].update(changes)


def args(**changes: Any) -> Change:
    return lambda content: content["servers"]["practice-eagle3"]["args"].update(changes)


def test_somebody_elses_process_on_the_gpu(node: Practice) -> None:
    node.inv("practice.break", "gpu-foreign").is_(0)
    (entry,) = node.root.joinpath("faults", "gpu-foreign").glob("journal.jsonl")
    ran = refused(node, 5, "GPU 0", "6000 MiB", "CUDA_VISIBLE_DEVICES")
    (holder,) = [pid for pid, title in node.sglang().items() if "import time" in title]
    assert f"pid {holder}" in ran.err
    assert str(holder) in entry.read_text()


def test_somebody_elses_process_on_the_port(node: Practice, tmp_path: Path) -> None:
    port = free_port()
    serve = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with subprocess.Popen(
        serve, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as stranger:
        try:
            wait_until(lambda: listeners(port), what="the stranger's listener")
            mine = node.inventory(tmp_path / "inventory.yaml", server(port=port))
            refused(node, 5, f"port {port}", f"pid {stranger.pid}", "http.server", inventory=mine)
            assert alive(stranger.pid)
        finally:
            stranger.kill()


@pytest.mark.parametrize("fault", ["gpu-tool-missing", "gpu-garbage"])
def test_nothing_can_be_said_about_the_gpus(node: Practice, fault: str) -> None:
    node.inv("practice.break", fault).is_(0)
    refused(node, 5, "nvidia-smi")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculative-num-steps": 1}, ["speculative_num_draft_tokens", "6", "2"]),
        ({"speculative-num-steps": None}, ["without --speculative-num-steps"]),
        ({"speculative-algorithm": "EAGLE"}, ["EAGLE3"]),
    ],
)
def test_arguments_that_sglang_would_change(
    node: Practice, tmp_path: Path, changes: dict[str, object], words: list[str]
) -> None:
    mine = node.inventory(tmp_path / "inventory.yaml", args(**changes))
    refused(node, 2, "0.5.9", *words, inventory=mine)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (server(draft_model_path="/nowhere/draft"), ["/nowhere/draft/config.json", "draft_model_path"]),
        (server(model_path="/nowhere/model"), ["/nowhere/model"]),
        (server(log="/nowhere/logs/server.log"), ["/nowhere/logs"]),
        (server(command=["/nowhere/python", "-m", "sglang.launch_server"]), ["/nowhere/python"]),
        (server(cwd="/nowhere"), ["/nowhere"]),
        (lambda content: content["nodes"]["practice"].update(state_dir="/dev/null/state"), ["/dev/null"]),
    ],
    ids=["draft", "model", "log", "command", "cwd", "state_dir"],
)
def test_a_path_of_the_inventory_that_is_not_there(
    node: Practice, tmp_path: Path, change: Change, words: list[str]
) -> None:
    refused(node, 5, *words, inventory=node.inventory(tmp_path / "inventory.yaml", change))


@pytest.mark.parametrize("fault", ["syntax-error", "foreign-edit", "model-file-gone", "config-broken"])
def test_files_that_the_fix_does_not_fit(node: Practice, fault: str) -> None:
    node.inv("practice.break", fault).is_(0)
    ran = refused(node, 5, "config.json" if fault == "config-broken" else DEEPSEEK.rpartition("/")[2])
    if fault == "foreign-edit":
        assert "aux_hidden_states = list()" in ran.err
        assert "aux_hidden_states = list()" in ran.entry["diff"]
        assert "--from-pristine" in ran.err


def test_there_is_no_sglang(node: Practice) -> None:
    package = node.site_packages / "sglang"
    away = package.with_name("away")
    package.rename(away)
    try:
        refused(node, 5, "sglang", "python")
    finally:
        away.rename(package)


@pytest.mark.parametrize("version", ["0.5.4", "0.6.0rc1"])
def test_the_installed_version_decides(node: Practice, version: str) -> None:
    """Whatever the files hold: the version is that of the installed package's metadata."""
    (metadata,) = node.site_packages.glob("sglang-*.dist-info/METADATA")
    text = metadata.read_text()
    assert "\nVersion: 0.5.9\n" in text
    metadata.write_text(text.replace("\nVersion: 0.5.9\n", f"\nVersion: {version}\n"))
    try:
        refused(node, 5, version, "covers")
    finally:
        metadata.write_text(text)


# A bundle that is wrong: in a project of its own


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, whose bundles a test may spoil."""
    for name in ("remote", "templates", "tasks.py", "inventory.yaml"):
        source, copy = PROJECT / name, tmp_path / "project" / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, copy)
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("find", "put", "code", "words"),
    [
        ("where: DeepseekV2Model.forward", "were: DeepseekV2Model.forward", 2, ["bundle.yaml:", "were"]),
        ("code: self.capture_embedding_for_eagle3 = False", "code: self.x = (", 2, ["bundle.yaml:"]),
        ("files:", "files: [", 2, ["bundle.yaml:"]),
        # Python parses it, and its compiler does not take it: only the node's own can tell.
        (
            "          draft_input = [",
            "          break\n          draft_input = [",
            5,
            ["deepseek_v2.py", "break"],
        ),
    ],
)
def test_a_bundle_that_is_wrong(
    node: Practice, project: Path, find: str, put: str, code: int, words: list[str]
) -> None:
    bundle = project / "templates" / "fixes" / "eagle3-embedding-capture" / "bundle.yaml"
    text = bundle.read_text()
    assert find in text
    bundle.write_text(text.replace(find, put, 1))
    before = {name: seen for name, seen in node.everything().items() if "state" not in name}
    with node.begun("deploy-fix", "--yes", "--json", cwd=project) as process:
        finish(process).refuses(code, *words)
    after = {name: seen for name, seen in node.everything().items() if "state" not in name}
    assert after == before
    shutil.rmtree(node.state, ignore_errors=True)


def test_a_python_that_could_not_start_the_server_is_seen_before_the_old_one_is_ended(
    node: Practice, tmp_path: Path
) -> None:
    """The inventory forgets how the server is started: the old one was ended, and none came after it."""
    old = node.server_pid()
    mine = node.inventory(tmp_path / "inventory.yaml", server(command=None))
    ran = node.inv("deploy-fix", "--yes", "--json", "--inventory", mine)
    ran.refuses(5, "practice", "would start no server: ModuleNotFoundError", "files were put back", "command")
    assert node.server_pid() == old
    assert node.inv("status", "--json").is_(0).entry["fix"]["state"] == "pristine"
    planned = node.inv("deploy-fix", "--dry-run", "--inventory", mine).is_(0)
    assert "and will be started as" in planned.out
