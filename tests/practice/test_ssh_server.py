"""The practice node's SSH servers behave like one another and like sshd."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from remote.practice.ssh_server import (
    Kind,
    SshServer,
    SshServerError,
    is_running,
    start,
    starttime_ticks,
    stop,
)
from tests.support import wait_until

KINDS: tuple[Kind, ...] = ("openssh", "asyncssh")
DETACHED = "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!"


@contextlib.contextmanager
def client_of(server: SshServer) -> Iterator[paramiko.SSHClient]:
    client = paramiko.SSHClient()
    client.load_host_keys(str(server.known_hosts))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(
            server.host,
            server.port,
            server.user,
            key_filename=str(server.identity_file),
            allow_agent=False,
            look_for_keys=False,
        )
        yield client
    finally:
        client.close()


def run(server: SshServer, command: str, data: bytes = b"") -> tuple[int, bytes, bytes]:
    """Status (negative: signal or none), stdout, stderr of one command, its input ended after `data`."""
    with client_of(server) as client:
        channel = client.get_transport().open_session()  # type: ignore[union-attr]
        channel.settimeout(30)
        channel.exec_command(command)
        channel.sendall(data)
        channel.shutdown_write()
        out = channel.makefile("rb").read()
        err = channel.makefile_stderr("rb").read()
        return channel.recv_exit_status(), out, err


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    directory = tmp_path_factory.mktemp("ssh server")
    (directory / "home").mkdir()  # without login files: they can take longer than all the rest
    made = start(
        directory,
        kind=request.param,
        path_prefix=[directory / "bin"],
        env={"FIXOPS_TEST": 'a "quoted" $value', "HOME": str(directory / "home")},
    )
    yield made
    stop(made)


def test_the_server_asked_for_runs_and_belongs_to_this_account(server: SshServer) -> None:
    assert is_running(server)
    assert server.why is None
    assert server.user == pwd.getpwuid(os.getuid()).pw_name
    assert server.host == "127.0.0.1"
    for path in (server.identity_file, server.identity_file.with_name("host_key")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_bytes_pass_both_ways_with_half_close(server: SshServer) -> None:
    data = bytes(range(256)) * 1024
    assert run(server, "cat", data) == (0, data, b"")


def test_streams_and_status_are_kept_apart(server: SshServer) -> None:
    assert run(server, "echo out; echo err >&2; exit 7") == (7, b"out\n", b"err\n")


def test_a_command_that_a_signal_ends_has_no_success_status(server: SshServer) -> None:
    status, _, _ = run(server, "kill -KILL $$")
    assert status != 0


def test_commands_run_in_the_login_shell_and_the_home_directory(server: SshServer) -> None:
    account = pwd.getpwuid(os.getuid())
    _, out, _ = run(server, 'echo "$SHELL"; pwd; echo "$HOME:$USER"; ps -o sid= -p $$; echo $$')
    shell, where, who, session, pid = out.decode().split("\n")[:5]
    assert shell == account.pw_shell
    assert Path(where).samefile(account.pw_dir)
    assert who == f"{server.identity_file.parent / 'home'}:{account.pw_name}"
    assert session.strip() == pid  # a session of its own, as under sshd


def test_the_given_directory_and_variables_are_in_the_environment(server: SshServer) -> None:
    directory = server.identity_file.parent / "bin"
    directory.mkdir(exist_ok=True)
    tool = directory / "fixops-practice-tool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    assert run(server, "fixops-practice-tool") == (0, b"found\n", b"")
    assert run(server, 'printf %s "$FIXOPS_TEST"')[1] == b'a "quoted" $value'


@pytest.mark.parametrize(
    "redirection", ["", "2>&1 >/dev/null", ">/dev/null 2>&1"], ids=["none", "wrong order", "output only"]
)
def test_a_background_process_that_holds_a_stream_keeps_the_channel_open(
    server: SshServer, redirection: str
) -> None:
    """Field case 084, lines 1 to 3. The last one only holds standard input, which sshd does not wait for."""
    with client_of(server) as client:
        _, stdout, stderr = client.exec_command(f"nohup sleep 600 {redirection} & echo $! >&2")
        pid = next(int(line) for line in stderr if line.strip().isdigit())
        try:
            if redirection == ">/dev/null 2>&1":
                assert stdout.channel.recv_exit_status() == 0
            else:
                assert not ends_within(stdout.channel, 0.3)
        finally:
            os.kill(pid, signal.SIGKILL)


def ends_within(channel: paramiko.Channel, timeout_s: float) -> bool:
    channel.settimeout(timeout_s)
    try:
        while channel.recv(4096):
            pass
    except TimeoutError:
        return False
    return True


def test_a_detached_process_survives_connection_and_server(tmp_path: Path) -> None:
    """Field case 084, line 4."""
    for kind in KINDS:
        server = start(tmp_path / kind, kind=kind)
        try:
            status, out, _ = run(server, DETACHED)
            pid = int(out)
            ticks = starttime_ticks(pid)
        finally:
            stop(server)
        assert status == 0
        try:
            assert ticks is not None
            assert starttime_ticks(pid) == ticks
        finally:
            os.kill(pid, signal.SIGKILL)


def test_a_lost_connection_ends_the_input_of_the_command(server: SshServer, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with client_of(server) as client:
        stdin, _, _ = client.exec_command(f"echo begun >{trace}; cat >/dev/null; echo ended >{trace}")
        wait_until(lambda: trace.exists() and trace.read_text() == "begun\n")
        del stdin
    wait_until(lambda: trace.read_text() == "ended\n", what="the end of the command's input")


@pytest.mark.parametrize("kind", KINDS)
def test_connections_are_passed_on_only_where_that_is_allowed(kind: Kind, tmp_path: Path) -> None:
    for forwarding in (True, False):
        server = start(tmp_path / str(forwarding), kind=kind, forwarding=forwarding)
        try:
            with client_of(server) as client:
                transport = client.get_transport()
                assert transport is not None
                where = ("direct-tcpip", ("127.0.0.1", server.port), ("", 0))
                if forwarding:
                    channel = transport.open_channel(*where)
                    channel.settimeout(30)
                    assert channel.recv(4) == b"SSH-"
                else:
                    with pytest.raises(paramiko.ChannelException) as caught:
                        transport.open_channel(*where)
                    assert caught.value.code == 1
        finally:
            stop(server)


@pytest.mark.parametrize("kind", KINDS)
def test_stop_ends_this_process_and_no_other(kind: Kind, tmp_path: Path) -> None:
    server = start(tmp_path, kind=kind)
    somebody_else = dataclasses.replace(server, starttime_ticks=server.starttime_ticks + 1)
    try:
        assert not is_running(somebody_else)
        assert not stop(somebody_else)
        assert is_running(server)
    finally:
        assert stop(server)
    assert not is_running(server)
    assert not stop(server)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_kept_from_one_start_to_the_next(kind: Kind, tmp_path: Path) -> None:
    first = start(tmp_path, kind=kind)
    key = first.known_hosts.read_text().split()[2]
    stop(first)
    second = start(tmp_path, kind=kind)
    try:
        assert second.known_hosts.read_text().split()[2] == key
        assert run(second, "true")[0] == 0
    finally:
        stop(second)


@pytest.mark.parametrize("change", ["user", "key"])
def test_another_user_and_another_key_do_not_get_in(server: SshServer, change: str) -> None:
    stranger = server.identity_file.with_name("host_key")
    changed = {"user": {"user": "nobody"}, "key": {"identity_file": stranger}}[change]
    with pytest.raises(paramiko.AuthenticationException), client_of(dataclasses.replace(server, **changed)):  # type: ignore[arg-type]
        pass


def test_without_a_usable_sshd_the_other_server_is_started_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sshd refuses an account whose password is locked: it runs, but lets nobody in."""
    refusing = tmp_path / "sshd"
    refusing.write_text("#!/bin/sh\necho 'User not allowed because account is locked' >&2\nexit 255\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(SshServerError, match="sshd"):
        start(tmp_path / "asked", kind="openssh")
    server = start(tmp_path / "any")
    try:
        assert server.kind == "asyncssh"
        assert server.why
        assert "sshd" in server.why
        assert run(server, "true")[0] == 0
    finally:
        stop(server)
