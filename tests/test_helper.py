"""The helper over real SSH servers: what it survives, how it ends, what is said when it does not start."""

from __future__ import annotations

import itertools
import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote import bootstrap
from remote.errors import ConnectError, NodeError
from remote.frames import FrameReader
from remote.helper import Helper, open_helper
from remote.practice.ssh_server import SshServer, start, starttime_ticks, stop
from remote.ssh import Connection, Target, connect
from tests.links import link
from tests.support import wait_until

# Operations for these tests, sent to the node beside the real dispatcher.
TRIAL = """
import os, subprocess, sys, threading
from .base import OpError, changes

def count(params, ctx):
    for n in range(params["to"]):
        ctx.event({"n": n})
    return {"to": params["to"]}

def wait(params, ctx):
    ctx.event({"waiting": True})
    ctx.wait(600)
    ctx.check()
    return {}

def deaf(params, ctx):
    threading.Event().wait(600)

def child(params, ctx):
    process = subprocess.Popen(["sleep", "600"])
    ctx.event({"pid": process.pid})
    process.wait()

def detached(params, ctx):
    shell = "setsid sleep 600 >&2 & echo $!"
    return {"pid": int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE).stdout)}

def refuse(params, ctx):
    raise OpError("precondition", "the file differs", path="/x", sha256="abc")

def crash(params, ctx):
    return {}["missing"]

def text(params, ctx):
    return {"text": params["text"], "size": len(params["text"])}

def chatter(params, ctx):
    print("printed")
    sys.stderr.write("complained\\n")
    os.write(1, b"written" * 1000)
    subprocess.run(["sh", "-c", "echo shouted; cat"])
    return {"quiet": True}

OPS = {"count": count, "wait": wait, "deaf": deaf, "child": child, "detached": detached, "refuse": refuse,
       "crash": crash, "text": text, "chatter": chatter}
"""
NOISE = (
    b"Welcome to node-a! GPU quota: 8\n(base) activated\n\x1e{}\n\x00\xff\xfe\x1e\x1e no line end \xe2\x96"
)


def trial_code() -> bytes:
    return bootstrap.pack({**bootstrap.node_sources(), "trial": TRIAL})


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


def target_of(server: SshServer, **changes: Any) -> Target:
    values: dict[str, Any] = {
        "node": "blackwell",
        "host": server.host,
        "user": server.user,
        "port": server.port,
        "identity_file": str(server.identity_file),
        "known_hosts": str(server.known_hosts),
        "ssh_config": os.devnull,
    }
    return Target(**{**values, **changes})


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


def alive(pid: int) -> bool:
    return starttime_ticks(pid) is not None


def tool(server: SshServer, name: str, text: str) -> Path:
    """A script that comes first on the PATH of the node."""
    path = server.identity_file.parent / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_requests_are_answered_by_the_interpreter_asked_for(helper: Helper) -> None:
    """Field case 087: not by whichever python3 the login shell would have found."""
    assert helper.request("echo", {"a": [1, None, "x"]}, timeout_s=60) == {"a": [1, None, "x"]}
    hello = helper.hello
    assert hello["python"] == sys.executable
    assert hello["version"] == ".".join(map(str, sys.version_info[:3]))
    assert hello["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert starttime_ticks(hello["pid"]) == hello["starttime_ticks"]
    assert hello["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (helper.stats.requests, helper.stats.channels) == (2, 1)
    assert helper.stats.received_bytes > 0


def test_what_login_files_print_is_not_taken_for_a_reply(helper: Helper, server: SshServer) -> None:
    """Field case 089, with bytes that are no text and look like frames."""
    assert helper.request("echo", {"version": "0.5.9"}, timeout_s=60) == {"version": "0.5.9"}
    if pwd.getpwuid(os.getuid()).pw_shell.endswith("bash"):
        assert (server.identity_file.parent / "home/trace").exists(), "the login file was not read"


def test_what_an_operation_and_its_children_print_disturbs_nothing(helper: Helper) -> None:
    assert helper.request("chatter", {}, timeout_s=60) == {"quiet": True}
    assert helper.request("echo", {}, timeout_s=60) == {}


def test_text_of_any_kind_passes_whatever_the_locale(helper: Helper) -> None:
    """Field case 096: progress bars, quotes of other languages, cut characters; the node has LC_ALL=C."""
    for text in (
        "100%|██████████| 4/4",
        "chown: invalid user: ‘nosuch’",
        "cut \ufffd\udc96",
        "\x1e\n\r\0",
        "あ" * 70_000,
    ):
        reply = helper.request("text", {"text": text}, timeout_s=60)
        assert reply == {"text": text, "size": len(text)}


def test_events_come_in_order_in_the_thread_that_waits(helper: Helper) -> None:
    seen: list[tuple[int, str]] = []
    result = helper.request(
        "count",
        {"to": 500},
        timeout_s=60,
        on_event=lambda event: seen.append((event["n"], threading.current_thread().name)),
    )
    assert result == {"to": 500}
    assert seen == [(n, threading.current_thread().name) for n in range(500)]


def test_requests_do_not_wait_for_each_other(helper: Helper) -> None:
    waiting = helper.submit("wait", {}, timeout_s=600)
    first = helper.submit("text", {"text": "a"}, timeout_s=60)
    second = helper.submit("text", {"text": "b"}, timeout_s=60)
    assert second.result()["text"] == "b"
    assert first.result()["text"] == "a"
    waiting.cancel()
    with pytest.raises(NodeError) as caught:
        waiting.result()
    assert caught.value.kind == "cancelled"


def test_an_operation_ends_at_its_deadline(helper: Helper) -> None:
    with pytest.raises(NodeError) as caught:
        helper.request("wait", {}, timeout_s=0.2)
    assert caught.value.kind == "timeout"
    assert helper.request("echo", {"still": "there"}, timeout_s=60) == {"still": "there"}


def test_errors_of_operations_come_as_they_are(helper: Helper) -> None:
    with pytest.raises(NodeError) as caught:
        helper.request("refuse", {}, timeout_s=60)
    assert (caught.value.kind, caught.value.message) == ("precondition", "the file differs")
    assert caught.value.data == {"path": "/x", "sha256": "abc"}
    with pytest.raises(NodeError) as caught:
        helper.request("crash", {}, timeout_s=60)
    assert caught.value.kind == "internal"
    assert "crash" in caught.value.data["trace"][-1]
    with pytest.raises(NodeError) as caught:
        helper.request("no.such.op", {}, timeout_s=60)
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("op", ["wait", "deaf", "child"])
def test_the_helper_ends_with_the_connection_and_takes_its_children_along(
    connection: Connection, op: str
) -> None:
    pids: list[int] = []
    with open_helper(connection, sys.executable, node="blackwell", code=trial_code()) as helper:
        pids.append(helper.hello["pid"])
        pending = helper.submit(
            op, {}, timeout_s=600, on_event=lambda event: pids.append(event.get("pid", pids[0]))
        )
        if op != "deaf":
            wait_until(lambda: pending.poll(0.01) or len(pids) > 1)
        assert all(map(alive, pids))
    wait_until(lambda: not any(map(alive, pids)), what="the end of the helper and its children")


def test_a_detached_process_outlives_the_helper_and_holds_nothing_open(connection: Connection) -> None:
    """Field case 084: what is started keeps no stream of the connection."""
    with open_helper(connection, sys.executable, node="blackwell", code=trial_code()) as helper:
        pid = helper.request("detached", {}, timeout_s=60)["pid"]
        own = helper.hello["pid"]
        wait_until(lambda: "sleep" in Path(f"/proc/{pid}/comm").read_text())
        streams = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    try:
        wait_until(lambda: not alive(own), what="the end of the helper")
        assert alive(pid)
        assert not any("socket" in stream for stream in streams), streams
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_helper_that_is_killed_is_told(helper: Helper) -> None:
    pending = helper.submit("wait", {}, timeout_s=600)
    os.kill(helper.hello["pid"], signal.SIGKILL)
    with pytest.raises(ConnectError) as caught:
        pending.result()
    assert caught.value.node == "blackwell"
    assert "connection to blackwell was lost while wait ran: the helper ended" in caught.value.message
    with pytest.raises(ConnectError):
        helper.request("echo", {}, timeout_s=60)


def linked(server: SshServer, port: int, directory: Path) -> Connection:
    known = directory / "known_hosts"
    known.write_text(server.known_hosts.read_text().replace(f":{server.port} ", f":{port} "))
    return connect(target_of(server, port=port, known_hosts=str(known)))


def test_a_connection_that_breaks_is_told_at_once(server: SshServer, tmp_path: Path) -> None:
    """Field case 094."""
    with link(server.port) as way:
        connection = linked(server, way.port, tmp_path)
        try:
            with open_helper(connection, sys.executable, node="blackwell", code=trial_code()) as helper:
                pid = helper.hello["pid"]
                pending = helper.submit("wait", {}, timeout_s=600)
                way.cut()
                with pytest.raises(ConnectError) as caught:
                    pending.result()
        finally:
            connection.close()
    assert caught.value.exit_code == 3
    assert "connection to blackwell was lost while wait ran" in caught.value.message
    assert "inv status --node blackwell" in caught.value.hint
    wait_until(lambda: not alive(pid), what="the end of the helper")


def test_a_connection_that_falls_silent_is_told_in_time(server: SshServer, tmp_path: Path) -> None:
    """Field case 094: no reset, no end, nothing."""
    with link(server.port) as way:
        connection = linked(server, way.port, tmp_path)
        try:
            with open_helper(
                connection,
                sys.executable,
                node="blackwell",
                code=trial_code(),
                heartbeat_s=0.1,
                lost_after_s=1.0,
            ) as helper:
                assert helper.hello["pid"]
                way.silence()
                with pytest.raises(ConnectError) as caught:
                    helper.request("wait", {}, timeout_s=600)
        finally:
            connection.close()
    assert caught.value.node == "blackwell"
    assert "nothing was heard of it for" in caught.value.message


def test_a_connection_that_is_silent_from_the_start_is_told(server: SshServer, tmp_path: Path) -> None:
    with link(server.port) as way:
        connection = linked(server, way.port, tmp_path)
        try:
            way.silence()
            with pytest.raises(ConnectError) as caught:
                open_helper(connection, sys.executable, node="blackwell", start_timeout_s=1.0)
        finally:
            connection.close()
    assert caught.value.node == "blackwell"


def test_a_long_silence_of_an_operation_is_no_lost_connection(connection: Connection) -> None:
    with open_helper(
        connection, sys.executable, node="blackwell", code=trial_code(), heartbeat_s=0.05, lost_after_s=5
    ) as helper:
        sent = helper.stats.requests
        begun = helper.hello["pid"]
        pending = helper.submit("wait", {}, timeout_s=600)
        before = helper.stats.received_bytes
        # Signs of life come although the operation says nothing.
        wait_until(lambda: helper.stats.received_bytes > before + 300)
        assert not pending.poll(0.01) or begun
        assert helper.stats.requests == sent + 1
        pending.cancel()
        with pytest.raises(NodeError):
            pending.result()


# Starting


def failure(connection: Connection, python: str, **options: Any) -> ConnectError:
    with (
        open_helper(connection, python, node="blackwell", **options) as helper,
        pytest.raises(ConnectError) as caught,
    ):
        helper.request("echo", {}, timeout_s=60)
    assert caught.value.exit_code == 3
    assert caught.value.node == "blackwell"
    assert "already printed" not in caught.value.message
    return caught.value


def test_an_interpreter_that_is_not_there(connection: Connection) -> None:
    """Field case 087: say which one, and that login files do not count."""
    error = failure(connection, "/opt/none/bin/python")
    assert error.message == "there is no /opt/none/bin/python on blackwell"
    assert "absolute path" in error.hint
    assert "login files are not read" in error.hint


def test_an_interpreter_that_cannot_be_executed(connection: Connection, tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text("no program\n")
    file.chmod(0o644)
    assert "cannot be executed" in failure(connection, str(file)).message


def test_an_interpreter_that_is_too_old(connection: Connection, server: SshServer) -> None:
    """A real interpreter that is told that it is 3.7, and then runs the very bootstrap."""
    code = "import sys;sys.version_info=(3,7,16);sys.argv=sys.argv[1:];exec(sys.argv[0])"
    old = tool(
        server, "python3.7", f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(code)} "$4" "$5" "$6"\n'
    )
    error = failure(connection, str(old))
    assert error.message == f"{old} on blackwell is Python 3.7; at least 3.8 is needed"


def test_an_interpreter_that_fails_is_told_with_what_it_printed(
    connection: Connection, server: SshServer
) -> None:
    """Field case 097: the status and both streams, not `already printed`; and no secret among them."""
    broken = tool(
        server,
        "broken-python",
        "#!/bin/sh\necho 'libpython3.11.so.1.0: cannot open shared object --api-key sk-verysecret'\n"
        "echo 'seen on stderr' >&2\nexit 5\n",
    )
    error = failure(connection, str(broken))
    assert "ended with status 5 before it answered" in error.message
    assert "libpython3.11.so.1.0" in error.message
    assert "seen on stderr" in "\n".join(error.data["output"])
    assert "sk-verysecret" not in json.dumps([error.message, error.data])


def test_an_interpreter_that_never_answers(connection: Connection, server: SshServer) -> None:
    mute = tool(server, "mute-python", "#!/bin/sh\necho waiting for you\nexec cat >/dev/null\n")
    error = failure(connection, str(mute), heartbeat_s=0.1, start_timeout_s=1.0)
    assert "did not answer within 1 s" in error.message
    assert "waiting for you" in error.message


# sudo


def test_the_helper_runs_under_sudo(connection: Connection, server: SshServer) -> None:
    tool(
        server,
        "sudo",
        '#!/bin/sh\n[ "$1" = -n ] && [ "$2" = -- ] || exit 9\nshift 2\nFIXOPS_SUDO=yes exec "$@"\n',
    )
    with open_helper(connection, sys.executable, sudo=True, node="blackwell", code=trial_code()) as helper:
        assert helper.request("echo", {"as": "root"}, timeout_s=60) == {"as": "root"}
        environment = Path(f"/proc/{helper.hello['pid']}/environ").read_bytes()
        assert b"FIXOPS_SUDO=yes" in environment


@pytest.mark.parametrize(
    ("says", "status", "expected"),
    [
        ("sudo: a password is required", 1, "sudo on blackwell refuses: sudo: a password is required"),
        ("ops is not in the sudoers file.", 1, "sudo on blackwell refuses: ops is not in the sudoers file."),
        (
            "sudo: sorry, you must have a tty to run sudo",
            1,
            "sudo on blackwell refuses: sudo: sorry, you must",
        ),
        ("sudo: /opt/x/python: command not found", 1, "there is no /opt/x/python on blackwell"),
    ],
)
def test_what_sudo_says_is_told(
    connection: Connection, server: SshServer, says: str, status: int, expected: str
) -> None:
    tool(server, "sudo", f"#!/bin/sh\necho {shlex.quote(says)} >&2\nexit {status}\n")
    assert failure(connection, "/opt/x/python", sudo=True).message.startswith(expected)


# The command line


def test_the_command_is_read_alike_by_every_shell() -> None:
    """In single quotes sh, csh and fish leave everything but these alone."""
    assert not set("'!\\\n") & set(bootstrap.BOOTSTRAP)
    assert "sglang" not in bootstrap.BOOTSTRAP  # field case 086: pkill -f sglang does not mean the helper


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_odd_paths_reach_the_interpreter_unharmed(tmp_path: Path, shell: str) -> None:
    odd = tmp_path / "it's a $HOME `x` dir"
    odd.mkdir()
    python = odd / "python"
    python.symlink_to(sys.executable)
    code = trial_code()
    line = bootstrap.command(str(python), sudo=False, length=len(code), nonce="0123456789abcdef")
    requests = b'{"id": 1, "op": "hello", "params": {"state_dir": "/x"}}\n'
    requests += b'{"id": 2, "op": "echo", "params": {"a": 1}}\n'
    done = subprocess.run(
        [shell, "-c", line], input=code + requests, capture_output=True, timeout=60, check=True
    )
    frames = FrameReader("0123456789abcdef").feed(done.stdout)
    assert [json.loads(frame)["id"] for frame in frames] == [1, 2]
    assert json.loads(frames[0])["result"]["state_dir"] == "/x"
    assert json.loads(frames[1])["result"] == {"a": 1}


def test_code_that_is_cut_off_starts_nothing() -> None:
    code = trial_code()
    line = bootstrap.command(sys.executable, sudo=False, length=len(code), nonce="0123456789abcdef")
    done = subprocess.run(shlex.split(line), input=code[:-1], capture_output=True, timeout=60, check=False)
    assert done.returncode == 9
    assert done.stdout == b""


def test_the_names_of_the_operations_are_read_from_the_text() -> None:
    """The table that is sent names the operations that the modules really have."""
    import importlib

    sources = {name: text for name, text in bootstrap.node_sources().items() if name != "loader"}
    real = {
        op: name
        for name in sources
        for op in getattr(importlib.import_module(f"remote.node.{name}"), "OPS", {})
    }
    assert bootstrap.op_index(sources) == real
    assert bootstrap.op_index({"trial": TRIAL})["chatter"] == "trial"


# Turns


def test_connecting_starting_and_two_requests_take_at_most_nine_turns(
    server: SshServer, tmp_path: Path
) -> None:
    with link(server.port, delay_s=0.02) as way:
        connection = linked(server, way.port, tmp_path)
        with open_helper(connection, sys.executable, node="blackwell") as helper:
            helper.request("echo", {"first": 1}, timeout_s=60)
            after_first = way.turns
            helper.request("echo", {"second": 2}, timeout_s=60)
            after_second = way.turns
        connection.close()
    assert after_second <= 9
    assert after_second - after_first == 1


# Frames


@given(
    pieces=st.lists(st.one_of(st.binary(max_size=30), st.integers(0, 5)), max_size=12),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_frames_are_found_in_any_noise_however_the_stream_is_cut(
    pieces: list[bytes | int], cuts: list[int]
) -> None:
    mark = b"\x1e0123456789abcdef "
    texts = [b'{"id": %d}' % piece for piece in pieces if isinstance(piece, int)]
    stream = b"".join(
        mark + b'{"id": %d}\n' % p if isinstance(p, int) else p.replace(mark, b"") for p in pieces
    )
    edges = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    reader = FrameReader("0123456789abcdef")
    found = [frame for a, b in itertools.pairwise(edges) for frame in reader.feed(stream[a:b])]
    assert found == texts
    assert len(reader.noise) <= 4096


def test_the_end_of_the_noise_is_kept() -> None:
    reader = FrameReader("0123456789abcdef")
    reader.feed(b"x" * 100_000 + b"the end \x1e0123")
    assert reader.noise.endswith(b"the end \x1e0123")
    assert len(reader.noise) == 4096
