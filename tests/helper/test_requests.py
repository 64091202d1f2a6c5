"""Requests to the helper over real SSH servers: what comes back, in which order, in how many turns."""

from __future__ import annotations

import os
import pwd
import sys
import threading
from pathlib import Path

import pytest

from remote.errors import NodeError
from remote.helper import Helper, open_helper
from remote.practice.ssh_server import SshServer, starttime_ticks
from tests.helper.kit import linked
from tests.links import link


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
