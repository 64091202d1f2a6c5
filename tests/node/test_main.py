"""The dispatcher: requests in, frames out, the lock and the journal."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remote.node import main
from remote.node.base import Context, OpError, changes, notes
from remote.node.state import State
from tests.node.dispatcher import Bench, Op, echo, until_cancelled


@changes
def change(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    return {"changed": params}


def test_what_python_3_13_0_cannot_import_in_several_threads_is_imported_before_there_are_any() -> None:
    """Sections of an observation ended with "cannot import name 'Mapping'", whichever came first."""
    imports = [
        node for node in ast.parse(Path(main.__file__).read_text()).body if isinstance(node, ast.Import)
    ]
    assert [name.name for name in imports[0].names] == ["collections.abc"]


def test_requests_come_in_pieces_of_any_size(bench: Callable[[dict[str, Op]], Bench]) -> None:
    one = bench({"same": echo})
    text = "x" * 300_000
    lines = b"".join(
        json.dumps({"id": n, "op": "same", "params": {"n": n, "text": text}}).encode() + b"\n"
        for n in range(3)
    )
    for start in range(0, len(lines), 70_001):
        one.send(lines[start : start + 70_001])
    assert sorted(one.next()["result"]["n"] for _ in range(3)) == [0, 1, 2]


def test_what_is_no_request_is_answered_and_the_next_one_is_served(
    bench: Callable[[dict[str, Op]], Bench],
) -> None:
    one = bench({"same": echo})
    for line in (
        b"garbage",
        b"[]",
        b"{}",
        b'{"id": 1}',
        b"\xff\xfe",
        b'{"id": "x", "op": "same"}',
        b'{"id": 2, "op": "cancel"}',
    ):
        one.send(line + b"\n")
        assert one.next()["error"]["kind"] == "internal", line
    one.ask(3, "same", {"a": 1})
    assert one.next() == {"id": 3, "result": {"a": 1}}


def test_a_result_that_is_no_json_is_an_error_of_that_request(
    bench: Callable[[dict[str, Op]], Bench],
) -> None:
    one = bench({"bytes": lambda _params, _ctx: {"data": b"raw"}})
    one.ask(1, "bytes")
    reply = one.next()
    assert (reply["id"], reply["error"]["kind"]) == (1, "internal")


def test_an_id_in_use_and_an_operation_that_is_not_there(bench: Callable[[dict[str, Op]], Bench]) -> None:
    one = bench({"wait": until_cancelled})
    one.ask(1, "wait")
    assert one.next() == {"id": 1, "event": {"begun": True}}
    one.ask(1, "wait")
    assert "in use" in one.next()["error"]["message"]
    one.ask(2, "nothing")
    assert one.next()["error"]["kind"] == "unsupported"
    one.ask(3, "cancel", {"id": 99})
    assert one.next() == {"id": 3, "result": {"found": False}}
    one.ask(4, "cancel", {"id": 1})
    assert {one.next()["id"], one.next()["id"]} == {1, 4}


def test_hello_tells_who_and_where_the_helper_is(
    bench: Callable[[dict[str, Op]], Bench], tmp_path: Path
) -> None:
    one = bench({})
    one.ask(1, "hello", {"state_dir": str(tmp_path / "elsewhere"), "idle_s": 5})
    hello = one.next()["result"]
    assert hello["state_dir"] == str(tmp_path / "elsewhere")
    assert hello["pid"] == os.getpid()
    assert hello["hostname"] == os.uname().nodename
    assert one.service.idle_s == 5


@pytest.mark.parametrize(
    ("uid", "xdg", "expected"),
    [
        (0, "/xdg", "/var/lib/fixops"),
        (1000, "/xdg", "/xdg/fixops"),
        (1000, "relative", "/home/ops/.local/state/fixops"),
        (1000, None, "/home/ops/.local/state/fixops"),
    ],
)
def test_the_usual_state_directory(
    monkeypatch: pytest.MonkeyPatch, uid: int, xdg: str | None, expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("HOME", "/home/ops")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_STATE_HOME", xdg)
    assert main.about.default_state_dir() == expected


# The lock


def test_a_change_needs_the_lock(bench: Callable[[dict[str, Op]], Bench]) -> None:
    one = bench({"change": change})
    one.ask(1, "change")
    assert one.next()["error"]["kind"] == "not-locked"
    one.ask(2, "lock", {"who": "me", "command": "test"})
    assert one.next()["result"]["acquired"]
    one.ask(3, "change", {"a": 1})
    assert one.next()["result"] == {"changed": {"a": 1}}
    one.ask(4, "unlock")
    assert one.next()["result"] == {"released": True}
    one.ask(5, "change")
    assert one.next()["error"]["kind"] == "not-locked"


def test_a_note_needs_no_lock(bench: Callable[[dict[str, Op]], Bench]) -> None:
    """How a start went was not told when somebody had taken the lock away meanwhile."""
    one = bench({"note": notes(lambda params, _: params)})
    one.ask(1, "note", {"a": 1})
    assert one.next()["result"] == {"a": 1}


def test_the_lock_is_released_with_the_connection(
    bench: Callable[[dict[str, Op]], Bench], tmp_path: Path
) -> None:
    one = bench({})
    one.ask(1, "lock", {"who": "me", "command": "test"})
    one.next()
    assert (tmp_path / "state/lock").exists()
    one.close()
    assert not (tmp_path / "state/lock").exists()


# The journal


def test_the_journal_has_the_beginning_and_the_end(
    bench: Callable[[dict[str, Op]], Bench], tmp_path: Path
) -> None:
    def refuse(_params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
        raise OpError("precondition", "it differs")

    def crash(_params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
        raise ValueError("--api-key sk-secret")

    one = bench({"same": echo, "refuse": refuse, "crash": crash})
    for number, op in enumerate(("same", "refuse", "crash")):
        one.ask(number, op, journal={"deploy_id": "d1", "action": op})
        one.next()
    entries = State(str(tmp_path / "state")).journal_tail(10)
    assert [(entry["op"], entry["phase"], entry.get("outcome"), entry.get("kind")) for entry in entries] == [
        ("same", "begin", None, None),
        ("same", "end", "ok", None),
        ("refuse", "begin", None, None),
        ("refuse", "end", "error", "precondition"),
        ("crash", "begin", None, None),
        ("crash", "end", "error", "internal"),
    ]
    assert all(entry["deploy_id"] == "d1" and entry["time"] > 0 for entry in entries)
    assert "sk-secret" not in (tmp_path / "state/journal.jsonl").read_text()


def test_what_cannot_be_journalled_is_not_begun(
    bench: Callable[[dict[str, Op]], Bench], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    ran = []
    one = bench({"act": lambda params, _ctx: ran.append(params) or {}})
    one.ask(1, "act", journal={"deploy_id": "d1"})
    assert one.next()["error"]["kind"] != "internal"
    assert ran == []


def test_an_end_that_cannot_be_journalled_is_told_with_the_result(
    bench: Callable[[dict[str, Op]], Bench], tmp_path: Path
) -> None:
    def spoil(_params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
        (tmp_path / "state/journal.jsonl").unlink()
        (tmp_path / "state/journal.jsonl").mkdir()
        return {"done": "it"}

    one = bench({"spoil": spoil})
    one.ask(1, "spoil", journal={"deploy_id": "d1"})
    error = one.next()["error"]
    assert "was done" in error["message"]
    assert error["data"] == {"done": True, "result": {"done": "it"}}
