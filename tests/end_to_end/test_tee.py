"""A server started by hand as most are: `python -m sglang.launch_server ... 2>&1 | tee server.log`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote import inventory
from tests.end_to_end.kit import Practice, alive
from tests.support import wait_until

READY = b"The server is fired up and ready to roll!"


@pytest.fixture
def by_hand(practice: Practice, tmp_path: Path) -> Iterator[int]:
    """The pid of a server on the fixed files, whose output tee writes to the inventory's log."""
    practice.deploy()
    practice.inv("stop", "--yes", "--json").is_(0)
    (node,) = inventory.load(practice.inventory(tmp_path / "inventory.yaml")).select(None)
    log, env = practice.log, {**practice.env, **node.server.env}
    before = log.resolve()
    ways = {"env": env, "cwd": node.server.cwd, "stdin": subprocess.DEVNULL, "start_new_session": True}
    server = subprocess.Popen(  # type: ignore[call-overload]
        inventory.command(node), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **ways
    )
    tee = subprocess.Popen(
        ["tee", str(log)], stdin=server.stdout, stdout=subprocess.DEVNULL, start_new_session=True
    )
    server.stdout.close()
    try:
        wait_until(lambda: READY in before.read_bytes(), 60, what="the ready line")
        yield server.pid
    finally:
        practice.inv("stop", "--yes", "--json")
        server.wait(30)
        tee.wait(30)


def test_its_log_is_evidence(practice: Practice, by_hand: int) -> None:
    """It was unknown whose log it is, and its health could not be followed."""
    seen = practice.inv("verify", "--json").is_(0)
    assert {seen.verdicts[id] for id in ("log.boot", "log.capture", "log.errors")} == {"pass"}
    practice.inv("health", "--json").is_(0)
    assert practice.inv("logs", "--json").is_(0).entry["boots"][-1]["state"] == "ready"
    # Nothing is to be done, and what was started by hand is no reason to do it again.
    assert not [action for action in practice.deploy().actions.values() if action["changed"]]
    assert alive(by_hand)
