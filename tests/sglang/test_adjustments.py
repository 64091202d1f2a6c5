"""Requested, adjusted and effective arguments compared; ranks and prefixes."""

# Lines of logs are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from remote.sglang.adjustments import canonical, command_line, compare, from_argv, noted
from remote.sglang.lines import entry
from remote.sglang.ranks import data_parallel, parts, rank_of


@pytest.mark.parametrize(
    ("name", "requested", "effective"),
    [
        ("tp-size", 8, 8),
        ("--tensor-parallel-size", "8", 8),
        ("speculative_algorithm", "NEXTN", "EAGLE"),
        ("trust-remote-code", True, True),
        ("mem-fraction-static", "0.9", 0.9),
        ("kv-cache-dtype", "auto", "auto"),
        ("json_model_override_args", "{}", "{}"),
        ("cuda-graph-bs", [1, 2, 4], [1, 2, 4]),
        ("cuda-graph-bs", ["1", "2", "4"], [1, 2, 4]),
        ("cuda-graph-bs", "[1, 2, 4]", [1, 2, 4]),
        ("cuda-graph-bs", 8, [8]),
        ("served-model-name", ["my", "model"], "my model"),
        # Of a secret nobody can tell.
        ("api-key", "in the clear", "***"),
    ],
)
def test_the_same(name: str, requested: object, effective: object) -> None:
    assert compare({name: requested}, {canonical(name): effective}) == []


@pytest.mark.parametrize(
    ("name", "requested", "effective"),
    [
        ("tp-size", 8, 4),
        ("speculative_algorithm", "EAGLE3", "EAGLE"),
        ("speculative_algorithm", "EAGLE", "NEXTN"),
        ("trust-remote-code", True, False),
        ("page-size", 1, 64),
        ("cuda-graph-bs", [1, 2, 4], [1, 2]),
        ("cuda-graph-bs", 8, [4]),
    ],
)
def test_not_the_same(name: str, requested: object, effective: object) -> None:
    (found,) = compare({name: requested}, {canonical(name): effective})
    assert (found.name, found.requested, found.effective) == (canonical(name), requested, effective)


def test_options_of_a_command_line() -> None:
    words = [
        "--tp",
        "8",
        "--trust-remote-code",
        "--cuda-graph-bs",
        "1",
        "2",
        "4",
        "--host=0.0.0.0",
        "--port=8000",
    ]
    assert from_argv(words) == {
        "tp_size": 8,
        "trust_remote_code": True,
        "cuda_graph_bs": [1, 2, 4],
        "host": "0.0.0.0",
        "port": 8000,
    }


@pytest.mark.parametrize(
    "rest",
    [
        *(
            "2>&1 | tee server.log",
            "| tee server.log",
            "|tee x",
            "|& tee x",
            "> x",
            ">> x 2>&1",
            ">x",
            "2>x",
            "&>x",
            "< x",
        ),
        *("&", "&& echo x", "|| echo x", "; echo x", "2> x &", ">| x"),
    ],
)
def test_a_command_ends_where_the_shell_goes_on(rest: str) -> None:
    assert from_argv(["--speculative-num-steps", "1", *rest.split()]) == {"speculative_num_steps": 1}


@pytest.mark.parametrize("end", [";", "&"])
def test_what_ends_a_command_may_stick_to_it(end: str) -> None:
    assert from_argv(["--port", f"8000{end}", "--x", "1"]) == {"port": 8000}


@pytest.mark.parametrize(
    "text",
    [
        "Example: sglang serve --model-path <model> [options]",
        "launch_server.py: error: unrecognized arguments: --speculative-steps 3",
        "UserWarning: 'python -m sglang.launch_server' is still supported --x 1",
        "server_args=ServerArgs(launch_command='python -m sglang.launch_server --tp 8')",
        "something else --tp 8",
    ],
)
def test_what_is_no_command(text: str) -> None:
    assert command_line(text) is None


@pytest.mark.parametrize(
    ("text", "name", "requested", "effective"),
    [
        ("Max running requests is reset to 48 for speculative decoding.", "max_running_requests", None, 48),
        ("FlashMLA only supports a page_size of 64, change page_size to 64.", "page_size", None, 64),
        ("FlashMLA only supports 64, change page_size from 1 to 64.", "page_size", 1, 64),
        (
            "DFLASH only supports speculative_num_steps == 1; overriding speculative_num_steps=3 to 1.",
            "speculative_num_steps",
            3,
            1,
        ),
        ("does not support Intel AMX, will fallback to torch_native backend.", "attention_backend", None, "torch_native"),
    ],
)  # fmt: skip
def test_lines_that_tell_of_a_change(text: str, name: str, requested: object, effective: object) -> None:
    for prefix in ("", "[2026-05-02 08:00:00] ", "[2026-05-02 08:00:00] WARNING server_args.py:2364: "):
        (found,) = noted(entry(7, prefix + text))
        assert (found.name, found.requested, found.effective, found.line) == (name, requested, effective, 7)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[2025-05-31 18:31:21 DP0 TP0] Decode batch.", "DP0 TP0"),
        ("[2026-06-27 10:02:58 PP0 ATTN_CP1 TP1 EP1] Prefill", "PP0 ATTN_CP1 TP1 EP1"),
        ("[2026-06-27 10:02:58.123 TP3 scheduler.py:99] x", "TP3"),
        ("[14:39:18 TP7] Init nccl begin.", "TP7"),
        ("sglang-1  | [12-16 14:27:08 TP2] x", "TP2"),
        ("2025-03-07 23:50:27,531 - __main__ - INFO - [2025-03-07 23:50:27 TP0] x", "TP0"),
        ("[2026-11-29 16:30:36] no rank", None),
        ("no prefix [TP0] at all", None),
    ],
)
def test_rank_of_a_line(line: str, rank: str | None) -> None:
    assert rank_of(line) == rank


def test_parts_of_a_rank() -> None:
    assert parts("PP0 ATTN_CP1 TP1 EP1") == {"PP": 0, "ATTN_CP": 1, "TP": 1, "EP": 1}
    assert (data_parallel("DP3 TP1"), data_parallel("TP1"), parts("")) == (3, None, {})
