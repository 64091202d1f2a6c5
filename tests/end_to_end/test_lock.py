"""One engineer at a time changes a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remote import bundles, deploy, inventory, steps
from remote.observe import PROBE_TIMEOUT_S
from remote.reporting import Silent
from remote.session import open_session
from remote.work import Outdated, locked
from tests.end_to_end.kit import DEEPSEEK, Practice, Ran, alive, finish
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


def history(node: Practice) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.inv("history", "--json").is_(0).entry["actions"]
    return found


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


def test_the_lock_is_looked_at_before_a_server_that_does_not_generate_is_probed(
    practice: Practice, tmp_path: Path
) -> None:
    practice.settings()
    practice.deploy()
    ranks = [pid for pid, title in practice.sglang().items() if title.startswith("sglang::scheduler")]
    (node,) = inventory.load(practice.inventory(tmp_path / "inventory.yaml")).select(None)
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    try:
        with open_session(node) as session, locked(session, "by hand", Silent(), seen=None):
            begun = time.monotonic()
            ran = practice.inv("deploy-fix", "--yes", env=BOB).refuses(4, "practice", "by hand", "--wait")
            assert time.monotonic() - begun < PROBE_TIMEOUT_S / 2
            assert "plan for" not in ran.out
            practice.inv("deploy-fix", "--dry-run", "--json", env=BOB).is_(0)
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)


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
    (row,) = [each for each in history(practice) if each["action"] == "break-lock"]
    assert (row["command"], row["outcome"]) == ("unlock --yes", "ok")
    assert row["who"].startswith("bob@")
    assert "alice@" in row["detail"]
    stop(practice).is_(0)
    finish(alice).refuses(6, "practice", "the lock was taken away meanwhile: inv history --node practice")
    health = [each for each in history(practice) if each["action"] == "health"][-1]
    assert health["who"].startswith("alice@")
    assert health["outcome"] == "error", "how it went is told, with the lock or without"


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


@pytest.mark.parametrize("verb", [steps.start_only, deploy.deploy_fix], ids=["start", "deploy-fix"])
def test_a_server_started_by_hand_before_the_lock_is_seen(
    practice: Practice, tmp_path: Path, verb: Callable[..., object]
) -> None:
    """While the question stands on the engineer's screen: no journal tells of it."""
    stop(practice).is_(0)
    (node,) = inventory.load(practice.inventory(tmp_path / "inventory.yaml")).select(None)
    bundle = bundles.find_bundle("eagle3-embedding-capture")
    by_hand: list[subprocess.Popen[bytes]] = []

    def meanwhile(_: object) -> bool:
        words, env = inventory.command(node), {**practice.env, **node.server.env}
        with (tmp_path / "log").open("wb") as log:
            ways = {"env": env, "cwd": node.server.cwd, "start_new_session": True}
            by_hand.append(subprocess.Popen(words, stdout=log, stderr=log, **ways))  # type: ignore[call-overload]
        return True

    files = practice.source(DEEPSEEK).read_bytes()
    try:
        with open_session(node) as session, pytest.raises(Outdated, match="is the server now") as caught:
            verb(session, bundle, Silent(), confirm=meanwhile, dry_run=False, wait_s=0.0)
        assert f"pid {by_hand[0].pid}" in str(caught.value)
        assert practice.source(DEEPSEEK).read_bytes() == files
        practice.inv("start", "--yes", "--json").refuses(5, "runs already", str(by_hand[0].pid))
    finally:
        stop(practice)
        for each in by_hand:
            each.wait(30)
    assert practice.sglang() == {}


@pytest.mark.parametrize("content", ["", "\0\0\0", "{", "[]", '{"who": "ann@desk", "since": "?"}'])
def test_a_lock_that_tells_no_pid_is_taken_away_too(practice: Practice, content: str) -> None:
    """A full disk or a power loss left it so. Without a way out every changing command would be locked."""
    (practice.state / "lock").write_text(content)
    practice.inv("restart", "--yes", "--json").refuses(4, "practice is locked", "inv unlock")
    shown = practice.inv("unlock").is_(0)
    assert "inv unlock --yes" in shown.out
    assert practice.inv("unlock", "--yes", "--json", env=BOB).is_(0).entry["released"]
    assert holder(practice) is None
    row = history(practice)[-1]
    assert (row["action"], row["command"], row["outcome"]) == ("break-lock", "unlock --yes", "ok")
    assert row["who"].startswith("bob@")


def test_a_dry_run_releases_nothing(practice: Practice) -> None:
    practice.state.mkdir(exist_ok=True)
    lock = practice.state / "lock"
    lock.write_text('{"who": "ann@desk", "command": "stop", "since": "?", "pid": 1, "starttime_ticks": 1}')
    before = practice.everything()
    for yes in ((), ("--yes",)):
        told = practice.inv("unlock", "--dry-run", "--json", *yes).is_(0).entry
        assert (told["dry_run"], told["would_release"], told["released"]) == (True, True, False)
        assert told["holder"]["who"] == "ann@desk"
        shown = practice.inv("unlock", "--dry-run", *yes).is_(0).out
        assert "dry run: nothing was changed on practice; --yes would release the lock\n" in shown
    assert practice.everything() == before
    done = practice.inv("unlock", "--yes", "--json").is_(0).entry
    assert (done["dry_run"], done["released"]) == (False, True)
    told = practice.inv("unlock", "--yes", "--dry-run", "--json").is_(0).entry
    assert (told["dry_run"], told["would_release"], told["released"]) == (True, False, False)
    shown = practice.inv("unlock", "--dry-run").is_(0).out
    assert shown.endswith("dry run: nothing was changed on practice\n")
