"""Whole logs: one boot, several, none; all lines or only those that matter."""

# Lines of logs are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest

from remote.sglang.boots import boot_json
from tests.sglang import data
from tests.sglang.data import read_log

_READY = "[2026-11-29 10:00:09] The server is fired up and ready to roll!\n"


def _record(stamp: str, port: int = 8000) -> str:
    return f"[{stamp}] server_args=ServerArgs(model_path='/m', port={port}, speculative_num_draft_tokens=6)\n"


def _decode(second: int, rate: float, rank: str = "") -> str:
    return (
        f"[2026-11-29 10:01:{second:02}{rank}] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, "
        f"accept len: 3.00, accept rate: 0.40, cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 0\n"
    )


def _prefill(second: int, running: int, rank: str = "") -> str:
    return f"[2026-11-29 10:01:{second:02}{rank}] Prefill batch, #new-seq: 1, #running-req: {running}, #queue-req: 0\n"


@pytest.mark.parametrize(
    ("name", "state", "stage", "samples", "accept_len"),
    [
        ("eagle3_0.5.9.log", "stopped", "stopping", 35, 1.3),
        ("eagle3_0.5.23.log", "ready", "serving", 1, 4.01),
        ("freeze_gc_0.5.23.log", "stopped", "stopping", None, None),
        ("port_in_use_0.5.9.log", "failed", "warmup", None, None),
        ("crash_after_ready_0.5.23.log", "failed", "serving", None, None),
        ("syntax_error_0.5.9.log", "failed", "loading-target", None, None),
    ],
)
def test_real_logs(name: str, state: str, stage: str, samples: int | None, accept_len: float | None) -> None:
    (boot,) = read_log(data.capture(name))
    shown = boot_json(boot)
    assert (shown["state"], shown["stage"], shown["args_record"]) == (state, stage, "complete")
    found = shown["decode"]
    assert (found is None) == (samples is None)
    if isinstance(found, dict):
        assert (found["samples"], found["accept_len"]) == (samples, accept_len)
    assert set(shown) == {
        "started_at", "version", "args", "args_record", "adjusted", "state", "ready_at", "stage", "failure", "decode",
    }  # fmt: skip
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize("by", data.RELAYS)
@pytest.mark.parametrize("name", data.logs())
def test_a_real_log_that_was_handed_on_tells_the_same(name: str, by: str) -> None:
    text, relayed = data.capture(name), data.handed_on(data.capture(name), by)
    plain, found = (boot_json(read_log(each)[0]) for each in (text, relayed))
    for boot, log in ((plain, text), (found, relayed)):
        failure = boot["failure"]
        if isinstance(failure, dict):  # a line that was cut is several
            assert failure["cause"][:40] in log.split("\n")[failure.pop("line") - 1].replace("\\u003e", ">")
    assert found == plain


def test_the_time_of_who_hands_it_on_where_sglang_tells_none() -> None:
    text = "INFO:     Uvicorn running on http://127.0.0.1:8000\nThe server is fired up and ready to roll!\n"
    (boot,) = read_log(data.handed_on(text, "docker logs -t"))
    assert (boot.started_at, boot.ready_at) == ("2026-11-29 16:30:36", "2026-11-29 16:30:36")


def test_ready_at_of_a_server_that_never_listened_is_null() -> None:
    (refused,) = read_log(data.capture("port_in_use_0.5.9.log"))
    assert refused.ready_at is None
    (crashed,) = read_log(data.capture("crash_after_ready_0.5.23.log"))
    assert crashed.ready_at == "2026-11-29 16:12:19"


def test_what_sglang_says_that_it_changed() -> None:
    (boot,) = read_log(data.capture("eagle3_0.5.9.log"))
    assert boot_json(boot)["adjusted"] == [
        {"name": "max_running_requests", "requested": None, "effective": 48},
        {"name": "disable_overlap_schedule", "requested": None, "effective": True},
    ]


def test_a_requested_value_in_an_echoed_command() -> None:
    text = (
        "+ python -m sglang.launch_server --model-path /m --speculative-num-draft-tokens 4 --tp-size 8\n"
        + _record("2026-11-29 10:00:00").replace("port", "tp_size=8, port")
    )
    (boot,) = read_log(text)
    (change,) = boot.adjusted
    assert (change.name, change.requested, change.effective) == ("speculative_num_draft_tokens", 4, 6)


def test_an_echoed_command_with_lists_and_a_pipe_was_not_adjusted() -> None:
    text = (
        "Running: python -m sglang.launch_server --model-path /m --lora-paths a=/x b=/y --cuda-graph-bs 1 2 4 8 "
        "--speculative-num-steps 1 2>&1 | tee server.log\n[2026-11-29 10:00:00] server_args=ServerArgs("
        "model_path='/m', cuda_graph_bs=[1, 2, 4, 8], lora_paths=[LoRARef(x=1)], speculative_num_steps=1)\n"
    )
    (boot,) = read_log(text)
    assert boot.adjusted == ()


def test_a_secret_in_an_echoed_command_is_neither_shown_nor_adjusted() -> None:
    """Also one of digits alone, which is a number on a command line and text in the record."""
    text = (
        "+ python -m sglang.launch_server --model-path /m --api-key hunter2hunter2 --admin-api-key 12345678 "
        "--ssl-keyfile-password=pw-pw-pw-1\n[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/m', "
        "api_key='hunter2hunter2', admin_api_key='12345678', ssl_keyfile_password='pw-pw-pw-1', port=1)\n"
    )
    for log in (text, text.replace("api_key='hunter2hunter2'", "api_key=None")):
        (boot,) = read_log(log)
        assert boot.adjusted == ()
        assert not any(secret in repr(boot) for secret in ("hunter2", "12345678", "pw-pw"))


def test_several_boots_in_one_file() -> None:
    first = data.capture("unfiltered_minus_one_0.5.9.log")
    second = data.capture("eagle3_0.5.9.log")
    third = data.capture("port_in_use_0.5.9.log")
    boots = read_log(first + second + third)
    assert [boot.state for boot in boots] == ["failed", "stopped", "failed"]
    # What SGLang changed before the record is the next boot's.
    assert [len(boot.adjusted) for boot in boots] == [2, 2, 2]
    alone = [read_log(text)[0] for text in (first, second, third)]
    assert [boot.decode for boot in boots] == [boot.decode for boot in alone]
    shift = first.count("\n") + second.count("\n")
    assert boots[2].failure is not None
    assert alone[2].failure is not None
    assert boots[2].failure.line == alone[2].failure.line + shift


def test_a_boot_that_was_killed_without_a_word() -> None:
    text = (
        _record("2026-11-29 10:00:00")
        + _READY
        + _record("2026-11-29 11:00:00")
        + "[11:00:01] Load weight begin.\n"
    )
    boots = read_log(text)
    assert [(boot.state, boot.started_at) for boot in boots] == [
        ("ready", "2026-11-29 10:00:00"),
        ("starting", "2026-11-29 11:00:00"),
    ]


def test_a_start_that_fails_before_its_record() -> None:
    text = (
        _record("2026-11-29 10:00:00") + _READY + "usage: launch_server.py [-h] --model-path MODEL_PATH\n"
        "launch_server.py: error: unrecognized arguments: --speculative-steps 3\n"
    )
    ready, failed = read_log(text)
    assert (ready.state, ready.failure) == ("ready", None)
    assert (failed.state, failed.args_record, failed.args) == ("failed", "absent", {})
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.line) == ("bad-argument", 4)
    after = read_log(text + _record("2026-11-29 12:00:00") + _READY)
    assert [boot.state for boot in after] == ["ready", "failed", "ready"]


def test_a_log_without_a_record_is_one_boot() -> None:
    (boot,) = read_log("[10:00:00 TP0] Load weight begin. avail mem=9 GB\n" + _READY)
    assert (boot.args_record, boot.state, boot.record) == ("absent", "ready", None)
    (noise,) = read_log("hello\n")
    assert noise.state == "unknown"
    assert read_log("") == []


def test_the_engine_logs_its_record_twice() -> None:
    text = _record("2026-11-29 10:00:00") + _record("2026-11-29 10:00:01") + _READY
    assert len(read_log(text)) == 1
    # An hour later it is another boot, and with other arguments at any time.
    assert len(read_log(_record("2026-11-29 10:00:00") + _record("2026-11-29 11:00:00"))) == 2
    assert len(read_log(_record("2026-11-29 10:00:00") + _record("2026-11-29 10:00:01", port=1))) == 2


def test_the_first_sample_after_idleness_is_no_measure() -> None:
    text = (
        _record("2026-11-29 10:00:00") + _READY + _decode(0, 1.0) + _decode(1, 50.0) + _decode(2, 52.0)
        + _prefill(3, 1) + _decode(4, 54.0) + _prefill(50, 0) + _decode(51, 2.0) + _decode(52, 56.0)
    )  # fmt: skip
    (boot,) = read_log(text)
    assert boot_json(boot)["decode"] == {"samples": 4, "accept_len": 3.0, "gen_tok_s": 53.0}


def test_throughput_is_summed_over_data_parallel_ranks_only() -> None:
    lines = [_decode(second, 50.0, rank) for second in range(3) for rank in (" DP0 TP0", " DP1 TP1")]
    (boot,) = read_log("".join(lines))
    assert boot.decode is not None
    assert (boot.decode.gen_tok_s, boot.decode.samples) == (100.0, 6)
    lines = [
        _decode(second, 50.0, rank) for second in range(3) for rank in (" PP0 TP0", " PP0 TP1", " PP1 TP0")
    ]
    (boot,) = read_log("".join(lines))
    assert boot.decode is not None
    assert (boot.decode.gen_tok_s, boot.decode.samples) == (50.0, 3)


def test_line_numbers_start_where_the_caller_says() -> None:
    (boot,) = read_log(data.case("026"), first_line=101)
    assert boot.failure is not None
    assert boot.failure.line == 105


def test_separators_other_than_newlines_are_no_lines() -> None:
    text = "a\x0bb\x0cc\u2028d\x85e\n" + data.case("026")
    (boot,) = read_log(text)
    assert boot.failure is not None
    assert boot.failure.line == 6


def test_values_that_json_cannot_hold() -> None:
    text = "server_args=ServerArgs(a=(1, 2), b={3, 1}, c=1e999, d=b'x', e={1: None}, f=LoRARef(x=1))\n"
    (boot,) = read_log(text)
    shown = boot_json(boot)["args"]
    assert shown == {"a": [1, 2], "b": [1, 3], "c": "inf", "d": "b'x'", "e": {"1": None}, "f": "LoRARef(x=1)"}


def test_a_download_before_the_record_is_no_boot() -> None:
    text = "Fetching 17 files: 100%|██████████| 17/17 [00:00<00:00, 99.1it/s]\n" + _record(
        "2026-11-29 10:00:00"
    )
    (boot,) = read_log(text)
    assert (boot.first_line, boot.record, boot.state) == (1, 2, "starting")
