"""The engineer's side dies: a server that was started lives on, the next deploy settles what is half done."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.kit import DEEPSEEK, Practice, alive, at_terminal, finish, tree
from tests.links import link
from tests.support import wait_until

READY = "The server is fired up and ready to roll!"


def boots(node: Practice) -> dict[str, int]:
    """The servers that the toolkit started, by boot id; those whose start is through."""
    stored = (json.loads(path.read_text()) for path in node.state.glob("boots/*/boot.json"))
    return {boot["boot_id"]: boot["pid"] for boot in stored if _leads_to(node.log, boot["log"])}


def _leads_to(stable: Path, own: str) -> bool:
    try:
        return stable.samefile(own)
    except FileNotFoundError:  # the boot is recorded before its log is made
        return False


def just_started(node: Practice, before: dict[str, int], process: subprocess.Popen[str]) -> int:
    """Wait for a start by this command; returns the server's pid. It is far from ready then."""

    def started() -> set[str]:
        assert process.poll() is None, process.communicate()
        return boots(node).keys() - before.keys()

    wait_until(started, 60, what="the start of a server")
    (boot,) = boots(node).keys() - before.keys()
    assert READY not in node.log.read_text()
    return boots(node)[boot]


def no_helper(node: Practice) -> bool:
    """Has the toolkit's process on the node gone, and its lock with it?"""
    return not [title for title in node.sglang().values() if " -B -u -c " in title]


def lives_on(node: Practice, pid: int) -> None:
    """The server is still there, becomes ready, and is found to be in order."""
    wait_until(lambda: no_helper(node), what="the helper's end")
    assert alive(pid)
    wait_until(lambda: READY in node.log.read_text(), 60, what="the ready line")
    again = node.deploy()
    assert not [action for action in again.entry["actions"] if action["changed"]], again
    assert node.server_pid() == pid
    assert alive(pid)


@pytest.fixture(scope="module")
def slow(practice: Practice) -> Practice:
    """The module's node, whose servers take a few seconds to start."""
    practice.settings(speed=1.0)
    return practice


def test_client_killed_right_after_start(slow: Practice) -> None:
    before = boots(slow)
    with slow.begun("deploy-fix", "--yes", "--json") as process:
        pid = just_started(slow, before, process)
        process.kill()
    lives_on(slow, pid)


def test_terminal_closed_right_after_start(slow: Practice) -> None:
    before = boots(slow)
    master, terminal = pty.openpty()
    with slow.begun("restart", "--yes", **at_terminal(terminal)) as process:
        os.close(terminal)
        pid = just_started(slow, before, process)
        os.close(master)
        # By the hang-up, or by writing to a terminal that has gone: whichever comes first.
        assert process.wait(60) != 0
    lives_on(slow, pid)


def test_connection_cut_right_after_start(slow: Practice, tmp_path: Path) -> None:
    before = boots(slow)
    with link(slow.ssh_port) as wire:
        mine = slow.through(wire.port, tmp_path)
        with slow.begun("restart", "--yes", "--json", "--inventory", mine) as process:
            pid = just_started(slow, before, process)
            wire.cut()
            finish(process, 60).refuses(3, "practice", "lost", "inv status")
    lives_on(slow, pid)


def test_a_server_that_is_still_loading_is_waited_for_and_not_restarted(slow: Practice) -> None:
    """After `inv start`, and after an interrupted wait for its health: a long load is not thrown away."""
    slow.deploy()
    slow.inv("stop", "--yes", "--json").is_(0)
    slow.settings(speed=8.0)
    before = boots(slow)
    slow.inv("start", "--yes", "--json").is_(0)
    slow.settings(speed=1.0)
    (boot,) = boots(slow).keys() - before.keys()
    pid = boots(slow)[boot]
    told = slow.inv("history", "--json").is_(0).entry["entries"]
    planned = slow.inv("deploy-fix", "--dry-run", "--json").is_(0)
    assert READY not in slow.log.read_text(), "too late to see anything"
    assert not [each for each in planned.entry["actions"] if each["would_change"]]
    assert "still starting" in planned.actions["start"]["detail"]
    with slow.begun("deploy-fix", "--yes", "--json") as first:
        wait_until((slow.state / "lock").exists, 60, what="the lock, under which it waits")
        first.send_signal(signal.SIGINT)
        finish(first).is_(130)
    again = slow.deploy()
    assert not [each for each in again.entry["actions"] if each["changed"]]
    assert again.actions["health"]["detail"].startswith("ready after")
    assert again.entry["deploy_id"] is None
    assert slow.inv("history", "--json").is_(0).entry["entries"] == told
    assert boots(slow).keys() - before.keys() == {boot}
    assert slow.server_pid() == pid


# Interrupted: what is known by then is told


def test_ctrl_c_while_the_old_server_is_ended(slow: Practice) -> None:
    slow.settings(faults={"ignore_sigterm": True})
    slow.deploy()
    slow.inv("restart", "--yes", "--json").is_(0)
    journal = slow.state / "journal.jsonl"
    before = journal.stat().st_size
    with slow.begun("restart", "--yes", "--json") as process:
        wait_until(lambda: b'"kill-stale"' in journal.read_bytes()[before:], 60, what="the kill")
        process.send_signal(signal.SIGINT)
        ran = finish(process).refuses(130, "practice: interrupted", "may have been changed: kill-stale begun")
    assert ran.document["error"]["hint"] == "inv status --node practice, then the command again"
    assert (ran.entry["node"], ran.entry["actions"], bool(ran.entry["deploy_id"])) == ("practice", [], True)
    slow.settings()
    slow.deploy()


def test_ctrl_c_while_a_deploy_waits_for_the_server(slow: Practice) -> None:
    slow.undo()
    slow.settings(faults={"hang_at": "graph-capture"})
    before = boots(slow)
    with slow.begun("deploy-fix", "--yes", "--json") as process:
        just_started(slow, before, process)
        wait_until(lambda: "Capture" in slow.log.read_text(), 60, what="the capture")
        process.send_signal(signal.SIGINT)
        ran = finish(process).refuses(
            130, "practice: interrupted", "start done", "inv status --node practice"
        )
    changed = [action["id"] for action in ran.entry["actions"] if action["changed"]]
    assert changed[0] == "push-code"
    assert changed[-1] == "start"
    slow.settings()
    slow.inv("restart", "--yes", "--json").is_(0)


# Killed in the midst of it

Moment = Callable[[Practice], bool]


def manifest_written(node: Practice) -> bool:
    return bool(list(node.state.glob("deploys/*/manifest.json")))


def first_file_replaced(node: Practice) -> bool:
    return b"capture_embedding_for_eagle3" in node.source(DEEPSEEK).read_bytes()


def old_server_ended(node: Practice) -> bool:
    return not [title for title in node.sglang().values() if title.startswith("sglang::scheduler")]


def at_once(reached: Moment, node: Practice, process: subprocess.Popen[str]) -> None:
    """Wait for a moment that may be over in a millisecond."""
    deadline = time.monotonic() + 60
    while not reached(node):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline


@pytest.fixture
def node(practice: Practice) -> Iterator[Practice]:
    """The module's node as it was before any deploy."""
    practice.settings()
    practice.undo()
    yield practice
    assert not list(practice.root.rglob("*.fixops-*")), "something prepared was left behind"


@pytest.mark.parametrize(
    ("moment", "victim"),
    [
        (manifest_written, "helper"),
        (first_file_replaced, "client"),
        (old_server_ended, "client"),
    ],
)
def test_a_run_that_died_is_settled_by_the_next(node: Practice, moment: Moment, victim: str) -> None:
    before = {name: seen for name, seen in tree(node.site_packages).items() if "__pycache__" not in name}
    config = node.draft.read_bytes()
    for folder in (node.state / "deploys").glob("*"):
        (folder / "manifest.json").unlink()
        folder.rmdir()
    with node.begun("deploy-fix", "--yes", "--json") as process:
        at_once(moment, node, process)
        if victim == "client":
            process.kill()
        else:
            os.kill(json.loads((node.state / "lock").read_text())["pid"], signal.SIGKILL)
            finish(process).refuses(3, "practice", "lost")
    wait_until(lambda: no_helper(node), what="the helper's end")

    settled = node.deploy()
    assert settled.verdicts["source.state"] == settled.verdicts["process.after_fix"] == "pass"
    node.inv("rollback", "--yes", "--json").is_(0)
    after = {name: seen for name, seen in tree(node.site_packages).items() if "__pycache__" not in name}
    assert after == before
    assert node.draft.read_bytes() == config
