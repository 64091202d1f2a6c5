"""What the tests of connections share: a host's entry in ssh_config, and what is seen of a connection."""

from __future__ import annotations

import base64
import dataclasses
import os
from pathlib import Path

import pytest

from remote.errors import ConnectError
from remote.practice.ssh_server import SshServer
from remote.ssh import Target, connect


class Place:
    """An ssh_config and a known_hosts of a test, and a target that uses them."""

    def __init__(self, directory: Path, server: SshServer) -> None:
        self.server = server
        self.known = directory / "known_hosts"
        self.config = directory / "ssh_config"
        self.known.write_text(server.known_hosts.read_text())
        self.write()

    def write(self, *lines: str, known: str | None = None) -> None:
        """Lines of the host's block, and where known hosts are looked for (this file by default)."""
        files = known or f"UserKnownHostsFile {self.known}\n  GlobalKnownHostsFile none"
        block = [
            f"HostName {self.server.host}",
            f"Port {self.server.port}",
            f"User {self.server.user}",
            *lines,
        ]
        block.append(f"IdentityFile {self.server.identity_file}")
        self.config.write_text("Host node-a\n  " + "\n  ".join([*block, files]) + "\n")

    def target(self, **changes: object) -> Target:
        base = Target("blackwell", "node-a", ssh_config=str(self.config), connect_timeout_s=30)
        return dataclasses.replace(base, **changes)  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """Type and base64 of the server's host key."""
        return " ".join(self.server.known_hosts.read_text().split()[1:3])

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.server.port}"


def works(target: Target) -> bool:
    connection = connect(target)
    try:
        return bool(connection.transport.is_authenticated())
    finally:
        connection.close()


def refused(target: Target) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        connect(target)
    assert caught.value.exit_code == 3
    assert caught.value.node == "blackwell"
    assert "\n" not in caught.value.message
    return caught.value


def other_key() -> str:
    name = b"ssh-ed25519"
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + os.urandom(32)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"
