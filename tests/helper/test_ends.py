"""The helper's end over real SSH servers: what ends with it, and how a connection that is lost is told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from remote.errors import ConnectError, NodeError
from remote.helper import Helper, open_helper
from remote.practice.ssh_server import SshServer, starttime_ticks
from remote.ssh import Connection
from tests.helper.kit import linked, trial_code
from tests.links import link
from tests.support import wait_until


def alive(pid: int) -> bool:
    return starttime_ticks(pid) is not None


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
