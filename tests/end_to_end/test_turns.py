"""How often a command waits for the other side: turns on the wire, requests and channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from remote import bundles, deploy, inventory, verify
from remote.helper import Stats
from remote.reporting import Silent
from remote.session import Session, open_session
from tests.end_to_end.kit import Practice, Ran
from tests.links import Link, link

WHOLE_DEPLOY = 25
NOTHING_TO_DO = 9
ONE_WAY_S = 0.08


@pytest.fixture(scope="module")
def wire(practice: Practice) -> Iterator[Link]:
    """What lies between the engineer and the node."""
    with link(practice.ssh_port, ONE_WAY_S) as made:
        yield made


def turns(practice: Practice, wire: Link, folder: Path, cache: Path, *words: str) -> tuple[Ran, int]:
    """A command through the link, and how often it waited for an answer. Each cache begins empty."""
    before = wire.turns
    mine = practice.through(wire.port, folder)
    ran = practice.inv(*words, "--json", "--inventory", mine, env={"FIXOPS_CACHE": str(cache)}).is_(0)
    return ran, wire.turns - before


def test_a_whole_deploy_and_what_finds_it_done(practice: Practice, wire: Link, tmp_path: Path) -> None:
    """With nothing known of the node's files yet, and with everything known."""
    done, count = turns(practice, wire, tmp_path, tmp_path / "deploy", "deploy-fix", "--yes")
    assert done.actions["start"]["changed"]
    assert count <= WHOLE_DEPLOY
    for command in (["deploy-fix", "--yes"], ["verify"]):
        cache = tmp_path / command[0]
        _, cold = turns(practice, wire, tmp_path, cache / "cold", *command)
        _, warm = turns(practice, wire, tmp_path, cache / "cold", *command)
        assert max(cold, warm) <= NOTHING_TO_DO, f"{command[0]}: {cold} turns, {warm} when all is known"
        assert warm <= cold


class Counted:
    """Every channel that is opened, and the sessions' own figures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.channels = 0
        original = paramiko.Transport.open_channel

        def counting(transport: paramiko.Transport, *args: object, **more: object) -> paramiko.Channel:
            self.channels += 1
            return original(transport, *args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(paramiko.Transport, "open_channel", counting)


def stats(session: Session) -> Stats:
    return session.helper.stats


def test_one_channel_and_few_requests(
    practice: Practice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXOPS_CACHE", str(tmp_path))
    practice.inv("rollback", "--yes", "--json")
    (node,) = inventory.load(practice.inventory(tmp_path / "inventory.yaml")).select(None)
    bundle = bundles.find_bundle("eagle3-embedding-capture")
    counted = Counted(monkeypatch)
    with open_session(node) as session:
        done = deploy.deploy_fix(session, bundle, Silent(), confirm=lambda _: True)
        whole = stats(session)
    assert done.exit_code == 0
    assert counted.channels == 1
    assert whole.requests <= 18
    assert whole.sent_bytes < 200_000
    with open_session(node) as session:
        again = deploy.deploy_fix(session, bundle, Silent(), confirm=lambda _: True)
        found = stats(session)
    assert again.deploy_id is None
    assert counted.channels == 2
    assert found.requests <= 4
    with open_session(node) as session:
        assert verify.verify(session, bundle).exit_code == 0
        seen = stats(session)
    assert counted.channels == 3
    assert seen.requests <= 4
    # What was read before does not cross the wire again.
    assert seen.received_bytes < whole.received_bytes / 2
