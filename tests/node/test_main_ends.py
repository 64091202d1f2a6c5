"""The dispatcher: deadlines, and a clean end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remote.node import main
from remote.node.base import Context, changes
from remote.node.state import State
from tests.node.dispatcher import Bench, Op, echo, until_cancelled
from tests.support import wait_until

# Deadlines


def test_an_operation_is_cancelled_at_its_deadline(bench: Callable[[dict[str, Op]], Bench]) -> None:
    one = bench({"wait": until_cancelled})
    one.ask(1, "wait", deadline_s=0.05)
    assert one.next()["event"]
    assert one.next()["error"]["kind"] == "timeout"


def test_an_operation_that_does_not_react_is_given_up_and_its_late_result_dropped(
    bench: Callable[[dict[str, Op]], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "OVERDUE_S", 0.05)
    release, released = threading.Event(), threading.Event()

    def deaf(_params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
        release.wait(30)
        released.set()
        return {"late": True}

    one = bench({"deaf": deaf, "same": echo})
    one.ask(1, "deaf", deadline_s=0.05)
    error = one.next()["error"]
    assert error["kind"] == "timeout"
    assert "may still be running" in error["message"]
    release.set()
    assert released.wait(30)
    wait_until(one.service.given_up[0].done.is_set)
    one.ask(2, "same")
    assert one.next() == {"id": 2, "result": {}}


def test_the_helper_ends_when_nothing_is_asked_any_more(bench: Callable[[dict[str, Op]], Bench]) -> None:
    finished = threading.Event()

    def work(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        ctx.wait(0.3)
        finished.set()
        return {}

    one = bench({"work": work})
    one.ask(1, "hello", {"idle_s": 0.1})
    one.ask(2, "work")
    assert one.ended.wait(30)
    assert finished.is_set(), "it ended although an operation was running"


# The end


def test_at_the_end_a_change_is_finished_and_everything_else_is_dropped(
    bench: Callable[[dict[str, Op]], Bench], tmp_path: Path
) -> None:
    begun, may_finish = threading.Event(), threading.Event()
    order: list[str] = []

    @changes
    def slow(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        begun.set()
        ctx.wait(600)
        order.append("cancelled")
        may_finish.wait(30)
        order.append("finished with the lock" if ctx.state.holds_lock() else "finished without the lock")
        return {}

    def deaf(_params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
        may_finish.wait(30)
        return {}

    one = bench({"slow": slow, "deaf": deaf})
    one.ask(1, "lock", {"who": "me", "command": "test"})
    one.next()
    one.ask(2, "deaf")
    one.ask(3, "slow", journal={"deploy_id": "d1"})
    assert begun.wait(30)
    one.end_input()
    wait_until(lambda: order == ["cancelled"])
    may_finish.set()
    assert one.ended.wait(30)
    assert order == ["cancelled", "finished with the lock"]
    assert State(str(tmp_path / "state")).journal_tail(1)[0]["outcome"] == "ok"


def test_a_change_that_does_not_end_is_not_waited_for_for_ever(
    bench: Callable[[dict[str, Op]], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "CLEAN_END_S", 0.1)
    begun, stop = threading.Event(), threading.Event()

    @changes
    def endless(_params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
        begun.set()
        stop.wait(30)
        return {}

    one = bench({"endless": endless})
    one.ask(1, "lock", {"who": "me", "command": "test"})
    one.next()
    one.ask(2, "endless")
    assert begun.wait(30)
    one.end_input()
    try:
        assert one.ended.wait(20)
    finally:
        stop.set()


def test_a_reader_that_is_gone_ends_the_helper(bench: Callable[[dict[str, Op]], Bench]) -> None:
    one = bench({"same": echo})
    read_end, write_end = os.pipe()
    os.close(read_end)
    one.service.replies_fd = write_end
    try:
        one.ask(1, "ping")
        assert one.ended.wait(30)
    finally:
        os.close(write_end)
