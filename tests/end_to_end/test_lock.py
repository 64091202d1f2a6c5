"""One engineer at a time changes a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.end_to_end.kit import Practice, Ran, alive, finish
from tests.support import wait_until

BOB = {"LOGNAME": "bob"}


def holder(node: Practice) -> dict[str, object] | None:
    """Who holds the node's lock, as its file says."""
    try:
        found = json.loads((node.state / "lock").read_text())
    except FileNotFoundError:
        return None
    assert isinstance(found, dict)
    return found


def started(node: Practice) -> bool:
    """Is the lock held, and a server started under it that is still on its way?"""
    return holder(node) is not None and node.log.is_symlink() and "Load weight begin" in node.log.read_text()


@pytest.fixture
def alice(practice: Practice) -> Iterator[subprocess.Popen[str]]:
    """An engineer whose restart waits for a server that hangs while it starts."""
    practice.log.unlink(missing_ok=True)
    practice.settings(faults={"hang_at": "graph-capture"})
    with practice.begun("restart", "--yes", "--json", env={**practice.env, "LOGNAME": "alice"}) as process:
        try:
            wait_until(lambda: started(practice) or process.poll() is not None, 60, what="alice's start")
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()
            wait_until(lambda: gone(practice), what="the end of alice's helper")
            practice.settings()


def gone(node: Practice) -> bool:
    return not [title for title in node.sglang().values() if " -B -u -c " in title]


def stop(node: Practice, *words: str) -> Ran:
    return node.inv("stop", "--yes", "--json", *words, env=BOB)


def test_a_second_engineer_is_told_who_is_at_work(practice: Practice, alice: subprocess.Popen[str]) -> None:
    before = practice.everything()
    for command in ("deploy-fix", "push-fix", "stop", "kill-stale"):
        ran = practice.inv(command, "--yes", "--json", env=BOB)
        ran.refuses(4, "practice", "alice@", "restart", "--wait", "inv unlock")
        assert ran.document["error"]["code"] == "locked"
    assert practice.everything() == before
    told = practice.inv("status", "--json", env=BOB).is_(0)
    assert told.entry["server"]["state"] == "starting"
    assert "alice@" in told.entry["lock"]["who"]
    shown = practice.inv("unlock", "--json", env=BOB).is_(0)
    assert (shown.entry["holder_alive"], shown.entry["released"]) == (True, False)
    assert "alice@" in shown.entry["holder"]["who"]
    assert practice.everything() == before
    assert alice.poll() is None


def test_waiting_for_the_other_to_end(practice: Practice, alice: subprocess.Popen[str]) -> None:
    with practice.begun("stop", "--yes", "--wait", "--json", env={**practice.env, **BOB}) as bob:
        assert bob.stderr is not None
        said = ""
        while "alice@" not in said:
            said = bob.stderr.readline()
            assert said, "bob is told for whom he waits"
        assert bob.poll() is None
        alice.kill()
        done = finish(bob).is_(0)
    assert done.actions["stop"]["changed"]
    assert holder(practice) is None


def test_a_dead_holder_is_nobody(practice: Practice, alice: subprocess.Popen[str]) -> None:
    found = holder(practice)
    assert found is not None
    os.kill(int(str(found["pid"])), signal.SIGKILL)
    finish(alice).refuses(3, "practice", "lost")
    left = holder(practice)
    assert left is not None
    assert left["pid"] == found["pid"]
    shown = practice.inv("unlock", "--json", env=BOB).is_(0)
    assert (shown.entry["holder_alive"], shown.entry["released"]) == (False, False)
    done = stop(practice).is_(0)
    assert "alice@" in done.err
    assert holder(practice) is None


def test_a_lock_can_be_taken_away(practice: Practice, alice: subprocess.Popen[str]) -> None:
    assert practice.inv("unlock", "--yes", "--json", env=BOB).is_(0).entry["released"]
    assert holder(practice) is None
    assert practice.inv("unlock", "--json", env=BOB).is_(0).entry["holder"] is None
    stop(practice).is_(0)
    finish(alice).refuses(6, "practice")


def test_what_was_planned_is_planned_anew_after_the_wait(practice: Practice) -> None:
    """Both want the same: the second finds it done, and does not start a server of its own."""
    practice.settings(speed=0.7)
    with practice.begun("deploy-fix", "--yes", "--json", env={**practice.env, "LOGNAME": "alice"}) as first:
        wait_until(lambda: holder(practice) or first.poll() is not None, 60, what="the first's lock")
        with practice.begun("deploy-fix", "--yes", "--wait", "--json", env={**practice.env, **BOB}) as second:
            done, again = finish(first).is_(0), finish(second).is_(0)
    pid = practice.server_pid()
    assert f"pid {pid}," in done.actions["start"]["detail"]
    assert not [action for action in again.entry["actions"] if action["changed"]]
    assert alive(pid)
    assert practice.inv("verify", "--json").is_(0).checks["process.single"]["verdict"] == "pass"
