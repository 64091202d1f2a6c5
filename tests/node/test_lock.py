"""The lock: one holder at a time, dead holders recognised, nobody robbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from remote.node import lock, procfs
from remote.node.base import OpError
from remote.node.state import State
from tests.node.kit import ROOT, Probe, ticks, titled
from tests.support import wait_until

TAKER = """
import sys, json
from remote.node.base import OpError
from remote.node.state import State
state = State(sys.argv[1])
print("up", flush=True)
sys.stdin.readline()
try:
    print(json.dumps({"got": True, "took_over": state.take_lock({"who": sys.argv[2]})}), flush=True)
except OpError as error:
    print(json.dumps({"got": False, "kind": error.kind, "holder": error.data["holder"]["who"]}), flush=True)
sys.stdin.readline()
"""


def held_by(directory: Path, **changes: Any) -> None:
    """A lock file as another helper would have left it."""
    directory.mkdir(exist_ok=True)
    holder = {"who": "other", "command": "deploy-fix", "nonce": "n", **lock.identity(), **changes}
    (directory / "lock").write_text(json.dumps(holder))


def take(probe: Probe, **params: Any) -> dict[str, Any]:
    return lock.lock({"who": "me", "command": "test", "deploy_id": "d1", **params}, probe.ctx)


def test_take_again_release(probe: Probe) -> None:
    assert not probe.state.holds_lock()
    first = take(probe)
    assert first["acquired"]
    assert "took_over" not in first
    assert {k: first["holder"][k] for k in ("who", "command", "deploy_id", "pid")} == {
        "who": "me",
        "command": "test",
        "deploy_id": "d1",
        "pid": os.getpid(),
    }
    assert take(probe)["acquired"]
    assert probe.state.holds_lock()
    assert lock.unlock({}, probe.ctx) == {"released": True}
    assert not probe.state.holds_lock()
    assert lock.unlock({}, probe.ctx) == {"released": False}
    assert not Path(probe.state.path("lock")).exists()


def test_living_holder_is_respected(probe: Probe, tmp_path: Path) -> None:
    with titled("holder") as process:
        held_by(tmp_path / "state", pid=process.pid, starttime_ticks=ticks(process.pid))
        with pytest.raises(OpError) as caught:
            take(probe)
        assert caught.value.kind == "locked"
        assert caught.value.data["holder"]["who"] == "other"
        assert "nonce" not in caught.value.data["holder"]
        assert not probe.state.holds_lock()


@pytest.mark.parametrize("change", ["boot", "start time", "no such process", "zombie"])
def test_dead_holder_is_taken_over(probe: Probe, tmp_path: Path, change: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    started = ticks(process.pid)
    if change == "zombie":
        wait_until(lambda: not procfs.alive(process.pid, started))
        held_by(tmp_path / "state", pid=process.pid, starttime_ticks=started)
    process_to_reap = process
    if change != "zombie":
        process.wait()
    if change == "boot":
        held_by(tmp_path / "state", boot_id="another")
    elif change == "start time":
        held_by(tmp_path / "state", pid=os.getpid(), starttime_ticks=1)
    elif change == "no such process":
        held_by(tmp_path / "state", pid=process.pid, starttime_ticks=started)
    assert take(probe)["took_over"]["who"] == "other"
    assert probe.state.holds_lock()
    process_to_reap.wait()


@pytest.mark.parametrize(
    "change",
    [{"host": "another", "boot_id": "another"}, {"pid_ns": "pid:[1]"}, {"boot_id": None}, {"pid": None}],
)
def test_unknown_holder_counts_as_alive(probe: Probe, tmp_path: Path, change: dict[str, Any]) -> None:
    held_by(tmp_path / "state", starttime_ticks=1, **change)
    with pytest.raises(OpError) as caught:
        take(probe)
    assert caught.value.kind == "locked"


def test_damaged_lock_is_held_until_broken(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/lock").write_text("{")
    with pytest.raises(OpError) as caught:
        take(probe)
    assert caught.value.kind == "locked"
    assert lock.break_lock({"expect_pid": None}, probe.ctx)["released"]
    assert take(probe)["acquired"]


@pytest.mark.parametrize(
    "holder", [{"pid": 10**20}, {"pid": True}, {"pid": 0}, {"who": ["a"]}, {"command": 5}, {"boot_id": {}}]
)
def test_a_lock_that_this_toolkit_never_wrote_is_a_damaged_one(
    probe: Probe, tmp_path: Path, holder: dict[str, Any]
) -> None:
    """Each command ended with a traceback, `inv unlock --yes` too."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/lock").write_text(json.dumps({"who": "ann@desk", "pid": 7, **holder}))
    found = lock.facts({}, probe.ctx)
    assert "not a lock of this toolkit" in found["lock"]["unreadable"]
    assert found["lock_alive"] is None
    assert lock.break_lock({"expect_pid": None}, probe.ctx)["released"]


def test_break_lock_looks_at_the_pid(probe: Probe, tmp_path: Path) -> None:
    assert lock.break_lock({"expect_pid": 1}, probe.ctx) == {"released": False, "holder": None}
    held_by(tmp_path / "state")
    with pytest.raises(OpError) as caught:
        lock.break_lock({"expect_pid": 1}, probe.ctx)
    assert caught.value.kind == "precondition"
    assert lock.break_lock({"expect_pid": os.getpid()}, probe.ctx)["holder"]["who"] == "other"
    assert not (tmp_path / "state/lock").exists()


def test_holder_notices_that_its_lock_was_broken(probe: Probe, tmp_path: Path) -> None:
    take(probe)
    lock.break_lock({"expect_pid": os.getpid()}, probe.ctx)
    assert not probe.state.holds_lock()
    held_by(tmp_path / "state")  # somebody else has it now
    assert not probe.state.holds_lock()
    probe.state.close()
    assert (tmp_path / "state/lock").exists()


def test_closing_releases(probe: Probe) -> None:
    take(probe)
    probe.state.close()
    assert not Path(probe.state.path("lock")).exists()


def test_waits_until_released(probe: Probe, tmp_path: Path) -> None:
    other = State(str(tmp_path / "state"))
    other.take_lock({"who": "other"})

    def release_when_waited_for() -> None:
        wait_until(lambda: probe.events)
        other.release_lock()

    releaser = threading.Thread(target=release_when_waited_for)
    releaser.start()
    assert take(probe, wait_s=30)["acquired"]
    releaser.join()
    assert [event["waiting"]["who"] for event in probe.events] == ["other"]


def test_waiting_ends_when_cancelled(probe: Probe, tmp_path: Path) -> None:
    held_by(tmp_path / "state")
    probe.cancel.set()
    with pytest.raises(OpError) as caught:
        take(probe, wait_s=30)
    assert caught.value.kind == "cancelled"


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_takers_exactly_one_gets_it(tmp_path: Path, stale: bool) -> None:
    """Several rounds: all takers are let go at once, over no lock or over a dead holder's."""
    for round_ in range(3):
        directory = tmp_path / f"state{round_}"
        if stale:
            held_by(directory, boot_id="another")
        takers = [
            subprocess.Popen(
                [sys.executable, "-c", TAKER, str(directory), f"taker{number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for number in range(5)
        ]
        try:
            for taker in takers:
                assert taker.stdout is not None
                assert taker.stdout.readline() == "up\n"
            for taker in takers:
                assert taker.stdin is not None
                taker.stdin.write("\n")
                taker.stdin.flush()
            results = []
            for taker in takers:
                assert taker.stdout is not None
                results.append(json.loads(taker.stdout.readline()))
        finally:
            for taker in takers:
                taker.kill()
                taker.communicate()
        winners = [number for number, result in enumerate(results) if result["got"]]
        assert len(winners) == 1
        assert all(r["holder"] == f"taker{winners[0]}" for r in results if not r["got"])
        assert (results[winners[0]]["took_over"] is not None) == stale
