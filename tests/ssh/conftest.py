"""Real SSH servers, started once for each module, and a home of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.practice.ssh_server import SshServer, start, stop
from tests.ssh.kit import Place


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without keys, known hosts or agent."""
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return made


@pytest.fixture(scope="module", params=["openssh", "asyncssh"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    made = start(tmp_path_factory.mktemp("server"), kind=request.param)
    yield made
    stop(made)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A jump host."""
    made = start(tmp_path_factory.mktemp("gate"), kind="asyncssh")
    yield made
    stop(made)


@pytest.fixture
def place(tmp_path: Path, server: SshServer) -> Place:
    return Place(tmp_path, server)


@pytest.fixture
def behind(place: Place, gate: SshServer) -> Place:
    """The server behind the gate, both known."""
    place.write("ProxyJump gate")
    with place.config.open("a") as file:
        file.write(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  User {gate.user}\n"
            f"  IdentityFile {gate.identity_file}\n  UserKnownHostsFile {place.known}\n"
            "  GlobalKnownHostsFile none\n"
        )
    place.known.write_text(place.server.known_hosts.read_text() + gate.known_hosts.read_text())
    return place
