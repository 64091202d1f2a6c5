"""Progress: stages of real logs, any way of cutting them, and what is not ready."""

# Lines of logs are as long as they are.

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.sglang.progress import State, feed, finish
from tests.sglang import data


def _stages(text: str) -> list[str]:
    seen: list[str] = []
    state = State()
    for line in text.splitlines(keepends=True):
        state = feed(state, line)
        if not seen or seen[-1] != state.stage:
            seen.append(state.stage)
    return seen


@pytest.mark.parametrize("name", ["eagle3_0.5.9.log", "eagle3_0.5.23.log"])
def test_the_stages_of_a_real_start_in_order(name: str) -> None:
    text = data.capture(name)
    up_to_ready = text[: text.index("ready to roll!") + 15]
    assert _stages(up_to_ready) == ["starting", "loading-target", "loading-draft", "warmup", "serving"]
    state = data.follow(up_to_ready)
    assert state.ready
    assert state.ready_at is not None
    assert [load.type for load in state.loads] == ["DeepseekV3ForCausalLM", "LlamaForCausalLMEagle3"]


@pytest.mark.parametrize("name", data.logs())
@given(cuts=st.lists(st.integers(0, 100_000), max_size=40))
def test_any_cut_gives_the_same_state(name: str, cuts: list[int]) -> None:
    text = data.capture(name)[-9_000:]
    at_once = finish(feed(State(), text))
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    state = State()
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        state = feed(state, text[start:end])
    assert finish(state) == at_once


def test_character_by_character() -> None:
    text = data.capture("eagle3_0.5.23.log")
    text = text[text.index("Load weight begin") - 30 :][:6_000] + data.case("021") + data.case("096")
    state = State()
    for character in text:
        state = feed(state, character)
    assert finish(state) == finish(feed(State(), text))


def test_a_bar_counts_as_it_is_drawn() -> None:
    state = feed(State(), "[10:00:00 TP0] Load weight begin. avail mem=78 GB\n")
    state = feed(
        state, "\rLoading safetensors checkpoint shards:  38% Completed | 3/8 [00:01<00:01,  1.12it/s]"
    )
    assert (state.detail, state.percent, state.stage) == ("loading target shards 3/8", 37.5, "loading-target")
    before = state.position
    state = feed(
        state, "\rLoading safetensors checkpoint shards:  50% Completed | 4/8 [00:02<00:01,  1.12it/s]"
    )
    assert state.detail == "loading target shards 4/8"
    assert state.position > before
    # The same bar drawn once more is no progress.
    again = feed(
        state, "\rLoading safetensors checkpoint shards:  50% Completed | 4/8 [00:09<00:01,  1.12it/s]"
    )
    assert again.position == state.position


def test_the_second_server_on_a_port_is_never_ready() -> None:
    """It logs the ready line after "address already in use", and exits (0.5.9 and 0.5.23)."""
    text = data.capture("port_in_use_0.5.9.log")
    assert "ready to roll!" in text
    state = State()
    for line in text.splitlines(keepends=True):
        state = feed(state, line)
        assert not state.ready
    assert state.failure is not None
    assert state.failure.code == "port-in-use"
    assert state.stage == "warmup"


def test_ready_before_the_port_is_refused_is_withdrawn() -> None:
    lines = data.capture("port_in_use_0.5.9.log").splitlines(keepends=True)
    error = next(line for line in lines if "Errno 98" in line)
    ready = next(line for line in lines if "ready to roll" in line)
    state = feed(State(), ready)
    assert state.ready
    assert not feed(state, error).ready


def test_a_stopping_server_is_not_ready() -> None:
    state = data.follow(data.capture("freeze_gc_0.5.23.log"))
    assert (state.was_ready, state.ready, state.stage, state.failure) == (True, False, "stopping", None)


@pytest.mark.parametrize(
    "line",
    [
        "WARNING - Attempt 13: Please wait for sglang server to become ready...",
        "[10:00:00] INFO:     Application startup complete.",
        "[10:00:00] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
        '[10:00:00] INFO:     127.0.0.1:40418 - "GET /health HTTP/1.1" 200 OK',
        "[10:00:00] Receive: obj=GenerateReqInput(text='The server is fired up and ready to roll!', rid=1)",
        "the server is fired up",
    ],
)
def test_what_is_not_ready(line: str) -> None:
    assert not feed(State(), line + "\n").ready


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[2026-11-29 16:30:50] ",
        "sglang-1  | [2026-11-29 16:30:50] ",
        "2026-11-29T16:30:50.123456789Z stdout F [2026-11-29 16:30:50] ",
        "2025-03-07 23:50:27,531 - __main__ - INFO - [2025-03-07 23:50:27] ",
        "\x1b[36m(Server pid=105447)\x1b[0m [2026-10-06 11:00:59] ",
        "Nov 29 18:15:01 node-a sglang[1234]: [2026-11-29 16:30:50] ",
        "someone else's prefix: ",
    ],
)
def test_ready_behind_any_relay(prefix: str) -> None:
    assert feed(State(), f"{prefix}The server is fired up and ready to roll!\r\n").ready


def test_a_harmless_traceback_is_suspected_until_life_goes_on() -> None:
    text = '[10:00:00] odd\nTraceback (most recent call last):\n  File "x.py", line 1\nValueError: odd\n'
    state = feed(State(), text)
    assert state.failure is None
    assert state.suspect is not None
    assert state.suspect.cause == "ValueError: odd"
    state = feed(state, "[10:00:01 TP0] Load weight begin. avail mem=78 GB\n")
    assert state.suspect is None


def test_what_breaks_while_it_stops_is_no_failure() -> None:
    text = (
        "[10:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
        "[10:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):\nKeyboardInterrupt\n"
        "[10:00:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    )
    state = data.follow("[09:00:00] The server is fired up and ready to roll!\n" + text)
    assert (state.failure, state.stage) == (None, "stopping")


def test_eight_ranks_load_and_capture_twice() -> None:
    """0.5.9 loads the target, captures, then starts the draft on the same ranks; ranks come in any order."""

    def each(text: str) -> str:
        return "".join(f"[10:00:00 TP{rank}] {text}\n" for rank in (3, 0, 1, 2, 7, 6, 5, 4))

    target = each("Init torch distributed begin.") + each("Load weight begin. avail mem=90 GB")
    state = feed(State(), target)
    assert state.stage == "loading-target"
    state = feed(
        state, each("Load weight end. elapsed=9 s, type=KimiK25ForConditionalGeneration, avail mem=20 GB")
    )
    assert state.stage == "loading-target"
    state = feed(
        state, each("Capture cuda graph begin. This can take up to several minutes. avail mem=11 GB")
    )
    assert state.stage == "graph-capture"
    state = feed(
        state, "\rCapturing batches (bs=8 avail_mem=10.83 GB):  25%|██▌       | 1/4 [00:24<00:00,  6.0s/it]"
    )
    assert (state.percent, state.detail) == (25.0, "capturing graphs 1/4")
    state = feed(state, "\n" + each("Capture cuda graph end. Time elapsed: 20 s. mem usage=1 GB."))
    assert (state.stage, state.percent) == ("graph-capture", 100.0)
    state = feed(state, each("Init torch distributed begin.") + each("Load weight begin. avail mem=9 GB"))
    assert state.stage == "loading-draft"
    state = feed(
        state, each("Capture draft cuda graph begin. This can take up to several minutes. avail mem=9 GB")
    )
    assert (state.stage, state.detail) == ("graph-capture", "capturing draft graphs")


def test_a_target_that_another_rank_loads_later_is_no_draft() -> None:
    text = (
        "[10:00:00 TP0] Load weight begin. avail mem=90 GB\n"
        "[10:00:01 TP0] Load weight end. elapsed=1 s, type=A, avail mem=80 GB\n"
        "[10:00:02 TP1] Load weight begin. avail mem=90 GB\n"
    )
    assert feed(State(), text).stage == "loading-target"


@pytest.mark.parametrize("unit", ["x", "|", "Error: ", "[", "Loading shards: ", "a:1: ", "\x1b["])
def test_a_line_of_20_mb_is_no_trap(unit: str) -> None:
    chunk = unit * (1_000_000 // len(unit))
    state = State()
    for _ in range(20):
        state = feed(state, chunk)
    state = feed(state, "\n[10:00:00] The server is fired up and ready to roll!\n")
    assert state.ready
    assert state.failure is None


def test_another_boot_in_the_same_log_starts_from_nothing() -> None:
    """A supervisor that restarts the server: the first one's ready line is not the second's."""
    record = "[2026-11-29 10:0{}:00] server_args=ServerArgs(model_path='/m')\n"
    ready = "[2026-11-29 10:00:09] The server is fired up and ready to roll!\n"
    state = feed(State(), record.format(0) + ready)
    assert state.ready
    before = state.position
    state = feed(state, record.format(1))
    assert (state.ready, state.stage, state.failure) == (False, "starting", None)
    assert state.position > before
    assert feed(state, ready).ready


def test_warnings_of_process_groups_are_no_failure() -> None:
    text = "[rank0]:[W421 04:13:43.4 ProcessGroupNCCL.cpp:4115] Warning: heartbeat monitor is off\n"
    assert feed(State(), text + "[10:00:00 TP0] Exit code: 0\n").failure is None
    assert data.follow(text).suspect is None
