"""Real SSH servers, started once for each module, and a helper on one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from remote.helper import Helper, open_helper
from remote.practice.ssh_server import SshServer, start, stop
from remote.ssh import Connection, connect
from tests.helper.kit import target_of, trial_code

NOISE = (
    b"Welcome to node-a! GPU quota: 8\n(base) activated\n\x1e{}\n\x00\xff\xfe\x1e\x1e no line end \xe2\x96"
)


@pytest.fixture(scope="module", params=["openssh", "asyncssh"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A server whose users have a home of the tests' own, with login files that print."""
    directory = tmp_path_factory.mktemp("server")
    home = directory / "home"
    (directory / "bin").mkdir()
    home.mkdir()
    (home / "noise").write_bytes(NOISE)
    (home / ".bashrc").write_text("cat ~/noise; cat ~/noise >&2; echo read >> ~/trace\n")
    (home / "json.py").write_text("raise SystemExit('the json.py of the home directory was imported')\n")
    made = start(
        directory, kind=request.param, path_prefix=[directory / "bin"], env={"HOME": str(home), "LC_ALL": "C"}
    )
    yield made
    stop(made)


@pytest.fixture
def connection(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = connect(target_of(server))
    yield made
    made.close()


@pytest.fixture
def helper(connection: Connection) -> Iterator[Helper]:
    with open_helper(connection, sys.executable, node="blackwell", code=trial_code()) as made:
        yield made
