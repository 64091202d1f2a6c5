"""Getting in: over which jump hosts, with which of the user's keys, in how many turns."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remote.practice.ssh_server import SshServer, start, stop
from remote.ssh import Connection, Target, connect
from tests.links import link
from tests.ssh.kit import Place, other_key, refused, works
from tests.support import free_port


def said(connection: Connection, command: str) -> str:
    """Standard output of a command."""
    channel = connection.transport.open_session(timeout=30)
    channel.settimeout(30)
    channel.exec_command(command)
    channel.shutdown_write()
    with channel.makefile("rb") as stream:
        return bytes(stream.read()).decode()


def test_a_known_host_lets_us_in(place: Place) -> None:
    connection = connect(place.target())
    try:
        assert said(connection, "echo in") == "in\n"
        assert connection.transport.is_active()
    finally:
        connection.close()
    assert not connection.is_connected


def test_connections_of_several_threads_do_not_mix(place: Place, gate: SshServer, tmp_path: Path) -> None:
    """A group of nodes is worked on at once."""
    other = tmp_path / "other"
    other.mkdir()
    targets = [place.target(), Place(other, gate).target()] * 4

    def port(target: Target) -> int:
        connection = connect(target)
        try:
            return int(said(connection, "echo $SSH_CONNECTION").split()[3])
        finally:
            connection.close()

    with ThreadPoolExecutor(len(targets)) as pool:
        assert list(pool.map(port, targets)) == [place.server.port, gate.port] * 4


# Jump hosts


def test_a_node_behind_a_jump_host_is_reached_through_it(behind: Place, gate: SshServer) -> None:
    connection = connect(behind.target())
    try:
        assert said(connection, "echo in") == "in\n"
        assert connection.gateway.port == gate.port
        passed_on = connection.gateway.transport
        assert passed_on.is_active()
    finally:
        connection.close()
    assert not passed_on.is_active()


def test_the_key_of_every_hop_is_checked(behind: Place, gate: SshServer) -> None:
    whole = behind.known.read_text()
    behind.known.write_text("".join(line + "\n" for line in whole.splitlines() if str(gate.port) not in line))
    error = refused(behind.target())
    assert (error.data["reason"], error.data["hop"]) == ("host-key-unknown", "gate")
    behind.known.write_text(whole.replace(behind.key, other_key()))
    error = refused(behind.target())
    assert (error.data["reason"], error.data["hop"]) == ("host-key-changed", "node-a")


def test_a_gateway_in_the_inventory_and_a_chain_of_hops(behind: Place, gate: SshServer) -> None:
    assert works(behind.target(gateway="none"))
    via = f"{gate.user}@gate:{gate.port}"
    connection = connect(behind.target(gateway=f"{via},{via}"))
    try:
        assert said(connection, "echo in") == "in\n"
        assert connection.gateway.gateway is None  # the same host twice is one hop
    finally:
        connection.close()


def test_a_jump_host_that_passes_nothing_on_is_named(place: Place, tmp_path: Path) -> None:
    """Field case 092, third line."""
    closed = start(tmp_path / "closed", kind="openssh", forwarding=False)
    try:
        with place.known.open("a") as known:
            known.write(closed.known_hosts.read_text())
        key = f"IdentityFile {closed.identity_file}"
        place.write(key, f"ProxyJump {closed.user}@127.0.0.1:{closed.port}")
        with place.config.open("a") as file:
            file.write(f"Host 127.0.0.1\n  {key}\n  UserKnownHostsFile {place.known}\n")
        error = refused(place.target())
    finally:
        stop(closed)
    assert error.data["reason"] == "jump-forbidden"
    assert "jump host 127.0.0.1 does not allow" in error.message
    assert "gateway" in error.hint


def test_a_node_that_its_jump_host_cannot_reach_is_told(behind: Place) -> None:
    error = refused(behind.target(port=free_port()))
    assert error.data["reason"] == "jump-failed"
    assert "jump host gate cannot reach 127.0.0.1" in error.message


# Logging in


def test_a_wrong_key_is_told_with_what_was_tried(place: Place, gate: SshServer) -> None:
    place.config.write_text(
        place.config.read_text().replace(str(place.server.identity_file), str(gate.identity_file))
    )
    error = refused(place.target())
    assert error.data["reason"] == "authentication"
    assert error.data["tried"] == [str(gate.identity_file)]
    assert str(gate.identity_file) in error.message
    assert error.message.startswith("blackwell: ")
    error = refused(place.target(port=place.server.port, user="ops"))
    assert f"ssh -F {place.config} -p {place.server.port} ops@node-a" in error.hint


def test_without_any_key_that_is_said(place: Place) -> None:
    place.config.write_text(place.config.read_text().replace(str(place.server.identity_file), "none"))
    error = refused(place.target())
    assert error.data["tried"] == []
    assert "no key to try" in error.message


def test_a_key_file_of_the_inventory_has_to_be_there(place: Place, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    error = refused(place.target(identity_file=str(missing)))
    assert f"the key file {missing} is not there" in error.message
    assert "identity_file" in error.hint


def test_a_key_file_of_the_inventory_is_used(place: Place) -> None:
    key = str(place.server.identity_file)
    place.config.write_text(place.config.read_text().replace(key, "none"))
    assert works(place.target(identity_file=key))


@pytest.mark.parametrize("content", ["passphrase", "garbage"])
def test_a_key_that_cannot_be_used_is_told_why(place: Place, tmp_path: Path, content: str) -> None:
    key = tmp_path / "key"
    if content == "passphrase":
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret words", "-f", key], check=True, timeout=60
        )
    else:
        key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nthis is none\n")
    place.config.write_text(place.config.read_text().replace(str(place.server.identity_file), str(key)))
    error = refused(place.target())
    assert error.data["tried"] == []
    if content == "passphrase":
        assert f"{key} needs a passphrase" in error.message
        assert "ssh-add" in error.hint
    else:
        assert f"{key} is no usable private key" in error.message


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """A real ssh-agent: the path of its socket."""
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # printed once it listens
        yield str(path)
    finally:
        process.terminate()
        process.communicate(timeout=10)


@pytest.mark.parametrize("only_named", [False, True])
def test_keys_of_the_agent_are_used(place: Place, tmp_path: Path, agent: str, only_named: bool) -> None:
    private = tmp_path / "key"
    shutil.copy(place.server.identity_file, private)
    private.chmod(0o600)
    environment = {**os.environ, "SSH_AUTH_SOCK": agent}
    subprocess.run(["ssh-add", "-q", private], check=True, env=environment, timeout=30)
    public = tmp_path / "named.pub"
    shutil.copy(f"{place.server.identity_file}.pub", public)
    options = f"none\n  IdentityAgent {agent}"
    text = place.config.read_text()
    if only_named:
        options = f"{tmp_path}/other\n  IdentitiesOnly yes\n  IdentityAgent {agent}"
    place.config.write_text(text.replace(str(place.server.identity_file), options))
    if only_named:
        assert "no key to try" in refused(place.target()).message
        options = options.replace(f"{tmp_path}/other", f"{tmp_path}/named")
        place.config.write_text(text.replace(str(place.server.identity_file), options))
    assert works(place.target())


def test_an_agent_that_is_gone_is_no_reason_to_fail(place: Place, tmp_path: Path) -> None:
    place.write(f"IdentityAgent {tmp_path}/gone")
    assert works(place.target())


# Turns


def test_a_connection_is_open_after_five_turns(place: Place) -> None:
    """Identification and key exchange 1, its answer 2, new keys with the login 3; one in reserve for servers
    that split their messages otherwise, and one for the close."""
    with link(place.server.port, delay_s=0.02) as way:
        place.known.write_text(f"[127.0.0.1]:{way.port} {place.key}\n")
        connection = connect(place.target(port=way.port))
        turns = way.turns
        connection.close()
    assert 3 <= turns <= 5
