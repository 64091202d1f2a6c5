"""The dispatcher: requests in, frames out, deadlines, the lock, the journal, and a clean end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remote import bootstrap
from remote.frames import FrameReader
from remote.node import main
from remote.node.base import Context, OpError, changes
from remote.node.state import State
from tests.support import wait_until

NONCE = "0123456789abcdef"
Op = Callable[[dict[str, Any], Context], dict[str, Any]]


class Bench:
    """A dispatcher that runs in a thread, with the other ends of its pipes."""

    def __init__(self, state_dir: Path, ops: dict[str, Op], monkeypatch: pytest.MonkeyPatch) -> None:
        trial = types.ModuleType("remote.node.trial")
        trial.OPS = ops  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "remote.node.trial", trial)
        # The children of this process belong to other tests; see test_helper.py for this part.
        monkeypatch.setattr(main.about, "descendants", lambda _pid: [])
        requests_fd, self.requests = os.pipe()
        self.replies, replies_fd = os.pipe()
        names = dict.fromkeys(ops, "trial") | {"lock": "lock", "unlock": "lock"}
        self.service = main.Service(requests_fd, replies_fd, NONCE, names)
        self.service.state_dir = str(state_dir)
        self.frames = FrameReader(NONCE)
        self.received: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.ended = threading.Event()
        self._ends = [requests_fd, replies_fd]
        self._threads = [threading.Thread(target=self._serve), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self.service.serve()
            self.service.finish()
        finally:
            self.ended.set()
            for end in self._ends:
                os.close(end)

    def _read(self) -> None:
        while piece := os.read(self.replies, 4096):
            for frame in self.frames.feed(piece):
                self.received.put(json.loads(frame))
        os.close(self.replies)

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.requests, data) :]

    def ask(self, identifier: int, op: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        self.send(json.dumps({"id": identifier, "op": op, "params": params or {}, **more}).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        return self.received.get(timeout=30)

    def end_input(self) -> None:
        if self.requests >= 0:
            os.close(self.requests)
            self.requests = -1

    def close(self) -> None:
        self.end_input()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Op]], Bench]]:
    made: list[Bench] = []

    def make(ops: dict[str, Op]) -> Bench:
        made.append(Bench(tmp_path / "state", ops, monkeypatch))
        return made[-1]

    yield make
    for one in made:
        one.close()


def echo(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    return params


def until_cancelled(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.event({"begun": True})
    ctx.wait(600)
    ctx.check()
    return {}


@changes
def change(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    return {"changed": params}


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


# As a process of its own

PROBE = """
import sys

def modules(params, ctx):
    return {"modules": sorted(sys.modules), "path": sys.path}

OPS = {"modules": modules}
"""


@contextlib.contextmanager
def process(cwd: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], dict[str, Any]]]]:
    """The helper as it runs on the node, and a way to ask it."""
    code = bootstrap.pack({**bootstrap.node_sources(), "probe": PROBE})
    command = [sys.executable, "-B", "-u", "-c", bootstrap.BOOTSTRAP, str(len(code)), NONCE]
    helper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
    )
    assert helper.stdin is not None
    assert helper.stdout is not None
    reader = FrameReader(NONCE)

    def ask(op: str) -> dict[str, Any]:
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.write(json.dumps({"id": 1, "op": op}).encode() + b"\n")
        helper.stdin.flush()
        while True:
            piece = os.read(helper.stdout.fileno(), 65536)
            assert piece, "the helper ended"
            for frame in reader.feed(piece):
                result: dict[str, Any] = json.loads(frame)["result"]
                return result

    try:
        helper.stdin.write(code)
        helper.stdin.flush()
        yield helper, ask
    finally:
        helper.kill()
        helper.wait()
        for stream in (helper.stdin, helper.stdout, helper.stderr):
            assert stream is not None
            stream.close()


def test_a_hangup_is_survived_and_a_termination_ends_it(tmp_path: Path) -> None:
    with process(tmp_path) as (helper, ask):
        assert ask("hello")["pid"] == helper.pid
        helper.send_signal(signal.SIGHUP)
        assert ask("ping") == {}
        helper.send_signal(signal.SIGTERM)
        assert helper.wait(30) == 0


def test_the_end_of_the_input_ends_it(tmp_path: Path) -> None:
    with process(tmp_path) as (helper, ask):
        ask("ping")
        assert helper.stdin is not None
        helper.stdin.close()
        assert helper.wait(30) == 0
        assert helper.stderr is not None
        assert helper.stderr.read() == b""


def test_the_helper_imports_little_and_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """What it needs costs CPU and memory of a node that has a model to serve."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')\n")
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    with process(tmp_path) as (helper, ask):
        ask("hello")
        answer = ask("modules")
        status = Path(f"/proc/{helper.pid}/status").read_text()
    assert "" not in answer["path"]
    assert str(tmp_path) not in answer["path"]
    added = set(answer["modules"]) - set(bare.stdout.split())
    assert not added & {
        "subprocess",
        "ssl",
        "socket",
        "http",
        "typing",
        "pathlib",
        "logging",
        "hashlib",
        "tempfile",
    }
    assert {name for name in added if name.startswith("fixops_node.")} == {
        f"fixops_node.{name}" for name in ("main", "base", "about", "procfs", "probe")
    }
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak_kib < 30 * 1024
