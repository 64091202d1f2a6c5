"""Waiting for a boot: ready only when all of it is, failed at once when it is, stuck by its own limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from remote import steps
from remote.errors import ExitCode, RefusedError, UnhealthyError
from remote.health import Watched, wait_ready
from remote.reporting import Silent
from remote.running import Boot
from tests import changes, fact_faults
from tests.pictures import BUNDLE, NODE

BOOT = Boot("b1", pid=100, starttime_ticks=1, start_time=0.0, log="/logs/x.log")
READY_LINE = "[2026-11-29 10:00:09] The server is fired up and ready to roll!\n"
ARGS_LINE = "[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=2)\n"

LAUNCHER = {"pid": 100, "title": "python", "state": "S", "role": "launcher"}
RANKS = [
    {"pid": 101, "title": "sglang::scheduler_TP0", "state": "S", "role": "scheduler"},
    {"pid": 102, "title": "sglang::scheduler_TP1", "state": "S", "role": "scheduler"},
]
ALL_UP: list[dict[str, Any]] = [
    {"log": ARGS_LINE, "offset": 1},
    {"procs": [LAUNCHER, *RANKS]},
    {"listener": {"pid": 100}},
    {"log": READY_LINE, "offset": 2},
]


@dataclass
class FakePending:
    """Hands out scripted events, one per poll; then nothing, or the operation's end."""

    events: Iterator[dict[str, Any]]
    take: Callable[[dict[str, Any]], None]
    ends: bool
    cancelled: bool = False

    def poll(self, wait_s: float) -> bool:
        assert wait_s >= 0
        event = next(self.events, None)
        if event is None:
            return self.ends
        self.take(event)
        return False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class FakeSession:
    """A session whose node sends `events` and answers one generation with `answer`."""

    events: list[dict[str, Any]]
    answer: dict[str, Any]
    ends: bool = False
    node: Any = NODE
    watching: FakePending | None = None
    watched: dict[str, Any] | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def helper(self) -> FakeSession:
        return self

    def submit(self, op: str, params: dict[str, Any], *, timeout_s: float, on_event: Any) -> FakePending:
        assert (op, params["pid"], params["port"]) == ("watch", 100, 8000)
        assert timeout_s > 3600
        self.watched = params
        self.watching = FakePending(iter(self.events), on_event, self.ends)
        return self.watching

    def request(self, op: str, params: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        assert params["port"] == 8000
        assert timeout_s > 0
        self.asked.append(op)
        return {"generate": self.answer}


@dataclass
class Clock:
    """Each look at the clock is a second later."""

    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


GENERATED = {"status": 200, "elapsed_s": 0.1, "body": json.dumps({"meta_info": {"completion_tokens": 8}})}


def wait(session: FakeSession) -> Any:
    return wait_ready(session, BOOT, Silent(), clock=Clock())  # type: ignore[arg-type]


def test_ready_with_the_line_the_listener_all_ranks_and_a_generation() -> None:
    session = FakeSession(ALL_UP, GENERATED)
    done = wait(session)
    assert not done.changed
    assert "2 of 2 ranks, generated 8 tokens" in done.detail
    assert session.asked == ["http"]
    assert session.watching is not None
    assert session.watching.cancelled, "the node must not go on following"


@pytest.mark.parametrize("left_out", range(len(ALL_UP)))
def test_any_part_alone_is_not_ready(left_out: int) -> None:
    watched = Watched()
    for number, event in enumerate(ALL_UP):
        if number != left_out:
            watched.take(event, 1.0)
    # Without the arguments' record the log still tells that it is ready: all else must be there.
    assert watched.ready(2) is (left_out == 0)


DECODES = "[2026-11-29 10:00:20 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 100.0\n"


@pytest.mark.parametrize(
    ("log", "status", "ready"),
    [(DECODES, 200, True), ("", 200, True), ("", 503, False), (ARGS_LINE, 200, False)],
)
def test_of_a_log_without_its_beginning_health_stands_in_for_the_ready_line(
    log: str, status: int, ready: bool
) -> None:
    """logrotate's copytruncate, or `log-level: warning`: it was waited for until the limit, in vain."""
    watched = Watched()
    for event in [*ALL_UP[1:3], {"log": log}, {"health": {"status": status, "elapsed_s": 1.0}}]:
        watched.take(event, 1.0)
    assert watched.ready(2) is ready


def test_a_listener_that_is_not_ours_is_not_ready() -> None:
    watched = Watched()
    for event in [*ALL_UP, {"listener": {"pid": 4711}}]:
        watched.take(event, 1.0)
    assert not watched.ready(2)


def test_a_rank_that_became_a_zombie_is_not_ready() -> None:
    watched = Watched()
    for event in [*ALL_UP, {"procs": [LAUNCHER, RANKS[0], {**RANKS[1], "state": "Z"}]}]:
        watched.take(event, 1.0)
    assert not watched.ready(2)


def test_the_end_of_the_launcher_is_told_at_once_with_the_first_cause() -> None:
    trouble = "[2026-11-29 10:00:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    trouble += '  File "x.py", line 1, in f\n'
    trouble += "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n\n"
    events = [ALL_UP[0], {"log": trouble}, {"alive": False, "exit": 1}]
    with pytest.raises(UnhealthyError) as caught:
        wait(FakeSession(events, GENERATED, ends=True))
    assert caught.value.exit_code == ExitCode.UNHEALTHY
    assert "gpu-oom" in caught.value.message
    assert "exit status 1" in caught.value.message
    assert "blackwell" in caught.value.message
    assert "inv logs --errors" in caught.value.hint


def test_a_launcher_that_ends_without_a_word_is_no_success() -> None:
    with pytest.raises(UnhealthyError, match="it is gone"):
        wait(FakeSession([ALL_UP[0], {"alive": False, "exit": None}], GENERATED, ends=True))


def test_the_second_server_on_a_taken_port_is_not_ready() -> None:
    """It logs the ready line all the same, and exits (captures of 0.5.9)."""
    taken = "[2026-11-29 10:00:08] ERROR:    [Errno 98] error while attempting to bind on address "
    taken += "('127.0.0.1', 8000): address already in use\n"
    events = [ALL_UP[0], ALL_UP[1], {"log": taken}, {"log": READY_LINE}, {"listener": {"pid": 100}}]
    with pytest.raises(UnhealthyError, match="port-in-use"):
        wait(FakeSession(events, GENERATED, ends=True))


def test_no_progress_is_the_limit_and_progress_moves_it() -> None:
    """The limit is of silence, not of all: a clock of one second a look, and a limit of 20 of them."""
    node = NODE.__class__(
        **{**vars(NODE), "server": NODE.server.model_copy(update={"ready_timeout_s": 20.0})}
    )
    bars = [
        {"log": f"\rLoading safetensors checkpoint shards: {n}% Completed | {n}/100 [00:01<00:01]"}
        for n in range(1, 40)
    ]
    begin = {"log": "[2026-11-29 10:00:01 TP0] Load weight begin. avail mem=90.00 GB\n"}
    session = FakeSession([ALL_UP[0], begin, *bars], GENERATED, node=node)
    with pytest.raises(UnhealthyError, match="no progress for 20 s while loading-target") as caught:
        wait(session)
    assert "inv stop" in caught.value.hint
    assert next(session.watching.events, None) is None, "it gave up before the log fell silent"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 200, "elapsed_s": 0.1, "body": json.dumps({"meta_info": {"completion_tokens": 0}})},
        {"status": 200, "elapsed_s": 0.1, "body": json.dumps({"meta_info": {"completion_tokens": "x"}})},
        {"status": 200, "elapsed_s": 0.1, "body": json.dumps({"meta_info": {"completion_tokens": -1}})},
        {"status": 200, "elapsed_s": 0.1, "body": json.dumps({"meta_info": {"completion_tokens": True}})},
        {"status": 200, "elapsed_s": 0.1, "body": "no json"},
        {"status": 503, "elapsed_s": 20.0, "body": ""},
        {"status": None, "error": "no answer within 60 s", "elapsed_s": 60.0},
    ],
)
def test_ready_without_a_generation_is_unhealthy(answer: dict[str, Any]) -> None:
    with pytest.raises(UnhealthyError, match="does not generate"):
        wait(FakeSession(ALL_UP, answer))


def test_a_server_that_wants_a_key_is_ready_and_whether_it_generates_is_unknown() -> None:
    done = wait(FakeSession(ALL_UP, {"status": 401, "elapsed_s": 0.0, "body": "{}"}))
    assert not done.known
    assert "2 of 2 ranks, whether it generates is unknown: the server wants an API key" in done.detail
    assert steps.Stepped("blackwell", (), known=done.known).exit_code == ExitCode.UNDETERMINED


@pytest.mark.parametrize(
    ("whose", "says"),
    [
        (fact_faults.log_elsewhere, "writes to /tmp/nohup.out, not to /logs/server.log"),
        (fact_faults.log_into_a_pipe, "cannot be seen where pid 100 writes"),
        (fact_faults.log_of_another_port, "of a server on port 8001"),
    ],
)
def test_a_log_that_is_not_the_servers_own_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, whose: changes.Change, says: str
) -> None:
    """An old failure in it would make a healthy server unhealthy."""
    monkeypatch.setattr(steps, "observe", lambda *_, **__: changes.node(whose))
    session = FakeSession(ALL_UP, GENERATED)
    with pytest.raises(RefusedError, match=says) as caught:
        steps.health(session, BUNDLE, Silent())  # type: ignore[arg-type]
    assert "inv restart --node blackwell" in caught.value.hint
    assert session.watching is None


def test_the_servers_own_log_is_followed_from_its_last_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    def second_boot(facts: dict[str, Any]) -> None:
        facts["log"]["boots"] = [{"offset": 0}, {"offset": 4096}]

    monkeypatch.setattr(steps, "observe", lambda *_, **__: changes.node(second_boot))
    session = FakeSession(ALL_UP, GENERATED)
    steps.health(session, BUNDLE, Silent())  # type: ignore[arg-type]
    assert session.watched is not None
    assert (session.watched["log"], session.watched["from_offset"]) == (NODE.server.log, 4096)
