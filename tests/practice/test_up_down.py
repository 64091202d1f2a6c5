"""The practice node as a whole: it comes up in the incident's state, and nothing is left of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.errors import ExitCode, LockedError, RefusedError, UsageError
from remote.inventory import load
from remote.practice import processes, record, server, ssh_server, wheels
from remote.practice.down import down
from remote.practice.layout import MARKER, Layout, here
from remote.practice.nvidia_smi import read_holders
from remote.practice.processes import Known
from remote.practice.ssh_server import SshServerError
from remote.practice.up import Up, plan, up
from tests.support import wait_until


def over_ssh(made: Up, command: str) -> str:
    ssh = made.record.ssh
    options = [f"UserKnownHostsFile={ssh.known_hosts}", "StrictHostKeyChecking=yes", "BatchMode=yes"]
    done = subprocess.run(
        ["ssh", "-F", "none", "-i", ssh.identity_file, "-p", str(ssh.port)]
        + [word for option in options for word in ("-o", option)]
        + [f"{ssh.user}@{ssh.host}", command],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.strip()


def test_it_comes_up_in_the_incidents_state(node: Up) -> None:
    assert node.outcome == "made"
    assert node.server_pid is not None
    assert processes.parent(node.server_pid) != os.getpid()
    assert b"SIMULATED" in server.since(node.layout.log, 0)
    assert server.READY in server.since(node.layout.log, 0)
    assert not node.layout.log.is_symlink()
    assert len(node.orphans) == 2
    titles = [processes.title(pid) for pid in node.orphans]
    assert all(title.startswith("sglang::scheduler_TP") for title in titles)
    assert not {processes.parent(pid) for pid in node.orphans} & {node.server_pid, os.getpid()}
    config = json.loads(node.layout.draft.joinpath("config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 30, 58]


def test_its_ssh_sessions_are_marked_and_see_its_gpus(node: Up) -> None:
    told = over_ssh(node, f"command -v nvidia-smi; printenv {MARKER}; nvidia-smi -L")
    lines = told.splitlines()
    assert lines[:2] == [str(node.layout.nvidia_smi), str(node.layout.root)]
    assert len(lines) == 4


def test_its_inventory_is_an_ordinary_one(node: Up) -> None:
    (entry,) = load(str(node.layout.inventory)).select(None)
    assert (entry.host, entry.port) == ("127.0.0.1", node.record.ssh.port)
    assert entry.server.port == node.record.server_port
    assert entry.server.args["tp-size"] == 2
    assert entry.state_dir == str(node.layout.state_dir)


@pytest.mark.parametrize("version", ["0.5.4", "0.5.14", "0.5.23", "not a version"])
def test_what_cannot_be_simulated_is_said_before_anything_is_made(tmp_path: Path, version: str) -> None:
    layout = Layout(tmp_path / "node")
    with pytest.raises(UsageError, match=rf"0\.5\.5 to 0\.5\.13, not {version}") as caught:
        up(layout, version=version)
    assert "--real --sglang 0.5.23" in caught.value.hint
    assert not layout.root.exists()


def test_up_again_changes_nothing(node: Up) -> None:
    before = {path: path.stat().st_mtime_ns for path in node.layout.root.iterdir()}
    again = up(node.layout)
    assert (again.outcome, again.server_pid) == ("already", node.server_pid)
    assert {path: path.stat().st_mtime_ns for path in node.layout.root.iterdir()} == before


@pytest.mark.parametrize("wish", [{"version": "0.5.5"}, {"ssh": "asyncssh"}, {"gpus": 4}])
def test_another_wish_for_an_existing_node_is_refused(node: Up, wish: dict[str, object]) -> None:
    wish = {"ssh": "openssh"} if node.record.ssh.kind == wish.get("ssh") else wish
    with pytest.raises(RefusedError, match="already"):
        up(node.layout, **wish)  # type: ignore[arg-type]


def test_a_node_that_went_down_is_brought_back_and_then_taken_away(tmp_path: Path) -> None:
    layout = Layout(tmp_path.resolve() / "practice")
    try:
        first = up(layout, gpus=1, ssh="asyncssh")
        assert processes.end(processes.of(layout)) == []
        second = up(layout)
        assert (second.outcome, second.repaired) == ("repaired", ("SSH server", "server"))
        assert second.record.server_port == first.record.server_port
        assert second.server_pid not in (None, first.server_pid)
        assert over_ssh(second, "echo here") == "here"
        assert up(layout).outcome == "already"
        living = processes.of(layout)
        holders = [holder.pid for holder in read_holders(layout.gpus)]
        done = down(layout)
    finally:
        down(layout)
    assert done.removed
    assert {pid for pid, _ in done.ended} >= {entry.pid for entry in living} >= set(holders)
    assert not [entry for entry in living if processes.alive(entry)]
    assert not layout.root.exists()
    assert down(layout).removed is False


def test_down_spares_what_it_did_not_start(tmp_path: Path) -> None:
    layout = Layout(tmp_path.resolve() / "practice")
    layout.holders.mkdir(parents=True)
    layout.node_json.write_text("{}")
    with subprocess.Popen(["sleep", "1000"], cwd=layout.root) as shell:
        try:
            entry = {"pid": shell.pid, "starttime_ticks": 1, "gpu": 0, "used_mib": 1, "name": "x"}
            layout.holders.joinpath("x.json").write_text(json.dumps(entry))
            assert down(layout).ended == ()
            assert shell.poll() is None
        finally:
            shell.kill()


def test_a_directory_of_somebody_else_is_neither_used_nor_removed(tmp_path: Path) -> None:
    layout = Layout(tmp_path.resolve())
    kept = tmp_path / "thesis.txt"
    kept.write_text("years of work")
    with pytest.raises(RefusedError, match="not a practice node"):
        up(layout)
    with pytest.raises(RefusedError, match="not a practice node"):
        down(layout)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_node_that_is_being_made_is_left_to_its_maker(tmp_path: Path) -> None:
    layout = Layout(tmp_path.resolve() / "practice")
    record.claim(layout)
    for command in (up, down, record.claim):
        with pytest.raises(LockedError):
            command(layout)
    stored = json.loads(layout.node_json.read_text())
    stored["maker"]["starttime_ticks"] -= 1
    layout.node_json.write_text(json.dumps(stored))
    with pytest.raises(RefusedError, match="not finished"):
        up(layout)
    assert down(layout).removed


def test_a_failed_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path.resolve() / "practice")
    found: list[Known] = []

    def fail(*_: object) -> None:
        wait_until(lambda: layout.ssh.joinpath("known_hosts").exists(), what="the SSH server")
        found.extend(processes.of(layout))
        raise SshServerError("as if the last step had failed")

    monkeypatch.setattr(record, "write", fail)
    with pytest.raises(SshServerError, match="last step"):
        up(layout, gpus=1)
    assert len(found) > 3
    assert not [entry for entry in found if processes.alive(entry)]
    assert not layout.root.exists()


def test_an_unknown_version_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path.resolve() / "practice")
    with pytest.raises(wheels.UnknownVersion):
        up(layout, version="0.5.6.post9")
    assert not layout.root.exists()


def test_the_directory_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(link / "node"))
    assert here().root == tmp_path.resolve() / "node"
    monkeypatch.delenv("FIXOPS_PRACTICE_DIR")
    assert here().root == Path(__file__).resolve().parents[2] / ".practice"


@pytest.mark.parametrize("command", [plan, up])
def test_openssh_where_it_is_not_installed_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., object]
) -> None:
    layout = Layout(tmp_path / "node")
    monkeypatch.setattr(ssh_server.shutil, "which", lambda *_, **__: None)
    with pytest.raises(SshServerError, match="not installed") as caught:
        command(layout, ssh="openssh")
    assert caught.value.exit_code == ExitCode.REFUSED
    assert not layout.root.exists()
