"""Connections to real SSH servers: whose key is accepted, over which hops, and what is said when it fails."""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remote import hostkeys, trust
from remote.errors import ConnectError, RefusedError, UsageError
from remote.hostkeys import Status
from remote.practice.ssh_server import SshServer, start, stop
from remote.ssh import Connection, Target, connect
from tests.links import link
from tests.support import free_port


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


@pytest.fixture
def place(tmp_path: Path, server: SshServer) -> Place:
    return Place(tmp_path, server)


def said(connection: Connection, command: str) -> str:
    """Standard output of a command."""
    channel = connection.transport.open_session(timeout=30)
    channel.settimeout(30)
    channel.exec_command(command)
    channel.shutdown_write()
    with channel.makefile("rb") as stream:
        return bytes(stream.read()).decode()


def works(target: Target) -> bool:
    connection = connect(target)
    try:
        return bool(connection.transport.is_authenticated())
    finally:
        connection.close()


def blob_of(key: str) -> bytes:
    return base64.b64decode(key.split()[1])


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


# Host keys


def test_an_unknown_host_is_refused_and_told_where_was_looked(place: Place) -> None:
    place.known.write_text("")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert error.data["lookup_name"] == place.name
    assert place.name in error.message
    assert str(place.known) in error.message
    assert hostkeys.fingerprint(blob_of(place.key)) in error.message
    assert "inv trust --node blackwell" in error.hint
    assert place.known.read_text() == ""


def test_a_changed_host_key_is_refused_with_both_fingerprints(place: Place) -> None:
    false = other_key()
    place.known.write_text(f"{place.name} {false}\n")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-changed"
    for key in (false, place.key):
        assert hostkeys.fingerprint(blob_of(key)) in error.message
    assert f"{place.known}:1" in error.message
    assert "fingerprint" in error.hint


def test_an_entry_without_the_port_is_another_host(place: Place) -> None:
    """Field case 091, the other way round."""
    place.known.write_text(f"127.0.0.1 {place.key}\n")
    assert refused(place.target()).data["reason"] == "host-key-unknown"


def test_hashed_entries_are_found(place: Place) -> None:
    place.known.write_text(f"{hostkeys.hashed(place.name, b's' * 20)} {place.key}\n")
    assert works(place.target())


def test_the_wrong_file_is_named(place: Place) -> None:
    """Field case 091: the program loaded the ssh_config as known_hosts."""
    place.write(known=f"UserKnownHostsFile {place.config}\n  GlobalKnownHostsFile none")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert str(place.config) in error.message
    assert str(place.known) not in error.message


def test_hostkeyalias_is_what_is_looked_up(place: Place) -> None:
    place.write("HostKeyAlias the-node")
    assert refused(place.target()).data["lookup_name"] == "the-node"
    place.known.write_text(f"the-node {place.key}\n")
    assert works(place.target())
    place.known.write_text(f"the-node {other_key()}\n{place.name} {place.key}\n")
    assert refused(place.target()).data["reason"] == "host-key-changed"


def test_every_user_and_global_file_is_read(place: Place, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    place.write(known=f"UserKnownHostsFile {empty} {place.known}\n  GlobalKnownHostsFile none")
    assert works(place.target())
    place.write(known=f"UserKnownHostsFile none\n  GlobalKnownHostsFile {empty} {place.known}")
    assert works(place.target())
    place.write(known="UserKnownHostsFile none\n  GlobalKnownHostsFile none")
    assert refused(place.target()).data["searched"] == []


def test_the_usual_file_is_read_when_ssh_config_names_none(place: Place, home: Path) -> None:
    place.write(known="GlobalKnownHostsFile none")
    assert refused(place.target()).data["searched"][0] == str(home / ".ssh/known_hosts")
    (home / ".ssh").mkdir()
    (home / ".ssh/known_hosts").write_text(f"{place.name} {place.key}\n")
    assert works(place.target())


def test_the_inventorys_file_replaces_the_users(place: Place, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("")
    assert refused(place.target(known_hosts=str(mine))).data["searched"] == [str(mine)]


@pytest.mark.parametrize("laxness", ["no", "off", "accept-new"])
def test_strict_host_key_checking_is_not_given_up(place: Place, laxness: str) -> None:
    place.write(f"StrictHostKeyChecking {laxness}")
    place.known.write_text("")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert f"StrictHostKeyChecking {laxness} is not followed" in error.message
    place.known.write_text(f"{place.name} {other_key()}\n")
    assert refused(place.target()).data["reason"] == "host-key-changed"
    assert place.key not in place.known.read_text()


def test_revoked_and_authority_lines_do_not_let_a_key_pass(place: Place) -> None:
    place.known.write_text(f"{place.name} {place.key}\n@revoked * {place.key}\n")
    assert refused(place.target()).data["reason"] == "host-key-revoked"
    place.known.write_text(f"@cert-authority {place.name} {place.key}\n")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert "@cert-authority" in error.message


@pytest.fixture(scope="module")
def many_keys(server: SshServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of an sshd with three host keys, to be run for one connection by ProxyCommand."""
    directory = tmp_path_factory.mktemp("sshd")
    lines = ["UsePAM no", "StrictModes no", f"AuthorizedKeysFile {server.identity_file}.pub"]
    for kind in ("rsa", "ecdsa", "ed25519"):
        key = directory / kind
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key], check=True, timeout=60)
        lines.append(f"HostKey {key}")
    (directory / "config").write_text("\n".join(lines) + "\n")
    return directory


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_server_is_asked_for_the_type_of_key_that_is_known(
    place: Place, many_keys: Path, kind: str
) -> None:
    """Whichever key the server would offer first; otherwise a known host would look changed."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    place.write(f"ProxyCommand {sshd} -i -f {many_keys}/config")
    key = (many_keys / f"{kind}.pub").read_text()
    place.known.write_text(f"{place.name} {key}")
    assert works(place.target())
    place.known.write_text("")
    assert "ssh-ed25519" in refused(place.target()).message


# Jump hosts


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


# Ways to fail before any key


def test_nothing_listens(place: Place) -> None:
    error = refused(place.target(port=free_port()))
    assert error.data["reason"] == "refused"
    assert "nothing listens" in error.message


def test_a_name_without_an_address(place: Place) -> None:
    error = refused(place.target(host="no-such-host.invalid"))
    assert error.data["reason"] == "dns"
    assert "no-such-host.invalid" in error.message


@pytest.mark.parametrize("behaviour", ["mute", "other protocol", "closes"])
def test_what_listens_is_no_ssh_server(place: Place, behaviour: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            if behaviour == "other protocol":
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 60)
            if behaviour != "closes":
                done.wait(30)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        timeout_s = 0.5 if behaviour == "mute" else 30
        error = refused(place.target(port=listener.getsockname()[1], connect_timeout_s=timeout_s))
    finally:
        done.set()
        thread.join(30)
        listener.close()
    assert error.data["reason"] == "not-ssh"


def test_a_full_backlog_is_a_timeout(place: Place) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    port = listener.getsockname()[1]
    waiting: list[socket.socket] = []
    try:
        for _ in range(8):  # until the kernel no longer answers
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        error = refused(place.target(port=port, connect_timeout_s=0.3))
    finally:
        for one in [*waiting, listener]:
            one.close()
    assert error.data["reason"] in ("timeout", "not-ssh")
    assert "0.3 s" in error.message


@pytest.mark.parametrize("command", ["/no/such/program %h", "sh -c 'echo why not >&2; exit 3'", "'"])
def test_a_proxy_command_that_fails_is_told(place: Place, command: str) -> None:
    place.write(f"ProxyCommand {command}")
    error = refused(place.target())
    assert error.data["reason"] == "jump-failed"
    assert ("why not" if "why not" in command else command.replace("%h", "127.0.0.1")) in error.message


def test_a_proxy_command_ends_with_the_connection(place: Place, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = (
        "import os, socket, sys, threading; s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def pump():\n    while data := s.recv(65536): os.write(1, data)\n"
        "threading.Thread(target=pump, daemon=True).start()\n"
        "try:\n    while data := os.read(0, 65536): s.sendall(data)\n"
        "finally:\n    open(sys.argv[3], 'w').write('ended')\n"
    )
    program = tmp_path / "proxy.py"
    program.write_text(code)
    place.write(f"ProxyCommand exec {sys.executable} {program} %h %p {trace}")
    assert works(place.target())
    assert trace.read_text() == "ended"


def test_nothing_of_paramiko_is_printed() -> None:
    """Python prints the log of a library on standard error when nobody else takes it."""
    code = (
        "import sys\nfrom remote.errors import ConnectError\nfrom remote.ssh import Target, connect\n"
        "try:\n    connect(Target('n', '127.0.0.1', port=int(sys.argv[1]), ssh_config='/dev/null'))\n"
        "except ConnectError as error:\n    print(error.data['reason'])\n"
    )
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(listener.getsockname()[1])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    try:
        connection, _ = listener.accept()
        connection.close()
        out, err = process.communicate(timeout=60)
    finally:
        listener.close()
        process.kill()
        process.communicate()
    assert err == ""
    assert out == "not-ssh\n"


# Recording keys


def test_a_key_is_fetched_without_logging_in_and_recorded_once(place: Place) -> None:
    place.known.write_text("other.example " + other_key())  # without a line end
    place.write("HashKnownHosts no")
    (key,) = trust.fetch_host_key(place.target())
    assert key.check.status is Status.UNKNOWN
    assert key.public_key == place.key
    assert key.file == place.known
    recorded = trust.record(place.target(), key)
    assert recorded.written
    assert place.known.read_text().splitlines()[1] == f"{place.name} {place.key}"
    assert works(place.target())
    (again,) = trust.fetch_host_key(place.target())
    assert again.check.status is Status.KNOWN
    assert not trust.record(place.target(), again).written
    assert len(place.known.read_text().splitlines()) == 2


def test_a_key_is_recorded_hashed_where_ssh_config_says_so(place: Place, home: Path) -> None:
    place.write("HashKnownHosts yes", known="GlobalKnownHostsFile none")
    (key,) = trust.fetch_host_key(place.target())
    recorded = trust.record(place.target(), key)
    assert recorded.file == home / ".ssh/known_hosts"
    assert recorded.file.read_text().startswith("|1|")
    assert recorded.file.stat().st_mode & 0o777 == 0o600
    assert recorded.file.parent.stat().st_mode & 0o777 == 0o700
    assert works(place.target())


def test_a_changed_key_is_only_recorded_when_asked_to_replace(place: Place, tmp_path: Path) -> None:
    before = f"{place.name} {other_key()}\nother.example {other_key()}\n"
    real = tmp_path / "elsewhere"
    real.write_text(before)
    place.known.unlink()
    place.known.symlink_to(real)
    (key,) = trust.fetch_host_key(place.target())
    assert key.check.status is Status.CHANGED
    with pytest.raises(RefusedError) as caught:
        trust.record(place.target(), key)
    assert caught.value.exit_code == 5
    assert real.read_text() == before
    recorded = trust.record(place.target(), key, replace=True)
    assert recorded.removed_lines == (1,)
    assert real.read_text() == before.splitlines(keepends=True)[1] + f"{place.name} {place.key}\n"
    assert place.known.is_symlink()
    assert works(place.target())


def test_a_revoked_key_is_never_recorded(place: Place) -> None:
    place.known.write_text(f"@revoked * {place.key}\n")
    (key,) = trust.fetch_host_key(place.target())
    with pytest.raises(RefusedError):
        trust.record(place.target(), key, replace=True)


def test_without_a_file_to_write_to_that_is_said(place: Place) -> None:
    place.write(known="UserKnownHostsFile none\n  GlobalKnownHostsFile none")
    (key,) = trust.fetch_host_key(place.target())
    with pytest.raises(UsageError, match="names no file"):
        trust.record(place.target(), key)


def test_the_keys_of_the_hops_are_fetched_up_to_the_first_unknown_one(behind: Place) -> None:
    whole = behind.known.read_text()
    behind.known.write_text("")
    assert [key.hop.name for key in trust.fetch_host_key(behind.target())] == ["gate"]
    behind.known.write_text(whole.replace(behind.key, other_key()))
    keys = trust.fetch_host_key(behind.target())
    assert [(key.hop.name, key.check.status) for key in keys] == [
        ("gate", Status.KNOWN),
        ("node-a", Status.CHANGED),
    ]


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
