"""Connections that fail before any key is looked at: what is said, and what is not printed."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.ssh.kit import Place, refused, works
from tests.support import free_port


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
        cwd=Path(__file__).parents[2],
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
