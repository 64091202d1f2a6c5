"""How often a command waits for the other side: turns on the wire, requests and channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from remote import bundles, deploy, inventory, verify
from remote.reporting import Silent
from remote.session import open_session
from tests.end_to_end.kit import Practice
from tests.links import Link, link

WHOLE_DEPLOY = 25
NOTHING_TO_DO = 9
ONE_WAY_S = 0.08


@pytest.fixture(scope="module")
def wire(practice: Practice) -> Iterator[Link]:
    """What lies between the engineer and the node."""
    with link(practice.ssh_port, ONE_WAY_S) as made:
        yield made


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every channel that this process opens over SSH."""
    opened: list[object] = []
    original = paramiko.Transport.open_channel

    def counting(transport: paramiko.Transport, *args: object, **more: object) -> paramiko.Channel:
        opened.append(original(transport, *args, **more))  # type: ignore[arg-type]
        return opened[-1]  # type: ignore[return-value]

    monkeypatch.setattr(paramiko.Transport, "open_channel", counting)
    return opened


def test_a_whole_deploy(
    practice: Practice,
    wire: Link,
    channels: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nothing known yet of the node's files."""
    monkeypatch.setenv("FIXOPS_CACHE", str(tmp_path / "cache"))
    (node,) = inventory.load(practice.through(wire.port, tmp_path)).select(None)
    bundle = bundles.find_bundle("eagle3-embedding-capture")
    with open_session(node) as session:
        done = deploy.deploy_fix(session, bundle, Silent(), confirm=lambda _: True)
        whole = session.helper.stats
    assert done.exit_code == 0
    assert done.deploy_id is not None
    assert wire.turns <= WHOLE_DEPLOY
    assert (len(channels), whole.channels) == (1, 1)
    # For three of them, notes in the journal, nobody waits. One looks whether a supervisor was faster.
    assert whole.requests <= 20 + 3
    assert whole.sent_bytes < 200_000

    with open_session(node) as session:
        assert verify.verify(session, bundle).exit_code == 0
        seen = session.helper.stats
    assert len(channels) == 2
    assert seen.requests <= 3
    # What was read before does not cross the wire again.
    assert seen.received_bytes < whole.received_bytes / 2


@pytest.mark.parametrize("command", [["verify"], ["deploy-fix", "--yes"]], ids=lambda words: words[0])
def test_a_deployed_node(practice: Practice, wire: Link, tmp_path: Path, command: list[str]) -> None:
    """With nothing known of its files yet, and with everything known."""
    practice.deploy()
    turns = []
    for _ in ("cold", "warm"):
        before = wire.turns
        mine, cache = practice.through(wire.port, tmp_path), {"FIXOPS_CACHE": str(tmp_path / "cache")}
        practice.inv(*command, "--json", "--inventory", mine, env=cache).is_(0)
        turns.append(wire.turns - before)
    cold, warm = turns
    assert max(turns) <= NOTHING_TO_DO, f"{cold} turns, {warm} when all is known"
    assert warm <= cold
