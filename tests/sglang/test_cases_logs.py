"""Public reports about start-up logs, each with its right answer. The numbers are theirs.

Those of which only the situation was reported, not the lines, have inputs of our own here.
"""

# Lines of logs are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json

from remote.sglang import progress
from remote.sglang.adjustments import compare
from remote.sglang.boots import boot_json
from remote.sglang.lines import entries, numbered
from remote.sglang.redact import redact_text
from tests.sglang import data
from tests.sglang.data import read_log


def test_001_no_prefix_and_no_speculative_fields_at_all() -> None:
    values = data.boot("001").args
    assert values["tp_size"] == 1
    assert values["additional_ports"] == [30001, 30002, 30003, 30004]
    assert values["schedule_conservativeness"] == 1.0
    assert not [name for name in values if name.startswith("speculative")]
    # Absent is neither "off" nor "adjusted".
    assert compare({"speculative_num_steps": 3}, values) == []


def test_002_a_bare_clock_time_as_prefix() -> None:
    boot = data.boot("002")
    assert (boot.args["tp_size"], boot.args["host"], boot.args["context_length"]) == (8, "127.0.0.1", None)
    assert boot.started_at == "14:39:01"


def test_004_reprs_of_objects_within_the_record() -> None:
    boot = data.boot("004")
    assert boot.opaque == ("lora_paths",)
    assert str(boot.args["lora_paths"]).startswith("[LoRARef(lora_id='d77c'")
    assert boot.args["speculative_algorithm"] == "EAGLE3"
    assert boot.args["speculative_num_draft_tokens"] == 4
    assert boot.args["cuda_graph_bs"] == [1, 2, 4]
    assert boot.args["mm_process_config"] == {}
    assert boot.args["torchao_config"] == ""


def test_006_the_record_as_a_dict() -> None:
    boot = data.boot("006")
    assert boot.args_record == "complete"
    assert boot.args["tp_size"] == 2
    assert boot.args["speculative_num_draft_tokens"] == 4
    assert boot.args["watchdog_timeout"] == 1800.0
    assert boot.args["mamba_ssm_dtype"] is None


def test_007_two_timestamps_and_a_cut_record() -> None:
    first, second = read_log(data.case("007"))
    assert first.args_record == "complete"
    assert first.args["page_size"] == 64
    assert first.args["decode_log_interval"] == 40
    assert first.args["enable_hierarchical_cache"] is False
    assert second.args_record == "truncated"
    assert list(second.args) == ["model_path", "tokenizer_path", "tokenizer_mode"]
    assert (second.started_at, second.state) == ("2026-09-22 06:49:56", "failed")


def test_009_api_keys_are_shown_as_set_and_nothing_more() -> None:
    shown = redact_text(data.case("009"))
    assert "EXAMPLE" not in shown
    assert "api_key='***'" in shown
    first, second = read_log(data.case("009"))
    assert {first.args[name] for name in ("api_key", "admin_api_key", "ssl_keyfile_password")} == {"***"}
    assert (second.args["api_key"], second.args["admin_api_key"]) == ("***", None)
    assert "EXAMPLE" not in json.dumps([boot_json(first), boot_json(second)])


def test_011_nextn_is_another_name_of_eagle() -> None:
    boot = data.boot("011")
    assert boot.args["speculative_algorithm"] == "EAGLE"
    # The log itself says what was requested.
    assert boot.adjusted == ()
    (mismatch,) = compare({"speculative-algorithm": "EAGLE3"}, boot.args)
    assert (mismatch.requested, mismatch.effective) == ("EAGLE3", "EAGLE")


def test_012_draft_tokens_are_adjusted() -> None:
    """What was requested is known where the log begins with the command line."""
    asked = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6"
    (boot,) = read_log(f"python -m sglang.launch_server {asked}\n" + data.case("012"))
    adjusted = {item.name: item for item in boot.adjusted}
    tokens = adjusted["speculative_num_draft_tokens"]
    assert (tokens.requested, tokens.effective) == (6, 4)
    assert tokens.why.startswith("speculative_num_draft_tokens is adjusted to speculative_num_steps + 1")
    assert {"page_size", "disable_overlap_schedule", "enable_mixed_chunk"} < adjusted.keys()
    assert "speculative_num_steps" not in adjusted
    assert boot.failure is None
    assert {"name": "speculative_num_draft_tokens", "requested": None, "effective": 4} in boot_json(
        data.boot("012")
    )["adjusted"]  # type: ignore[operator]


def test_014_one_decode_line_per_data_parallel_rank() -> None:
    samples = data.samples(data.case("014"))
    assert [item.rank for item in samples] == ["DP0 TP0", "DP6 TP6", "DP5 TP5", "DP7 TP7"]
    assert [item.accept_len for item in samples] == [2.9, 2.86, 2.94, 2.65]
    assert [item.accept_rate_logged for item in samples] == [None] * 4
    # A sum of speeds, and no sum of accept lengths.
    assert boot_json(data.boot("014"))["decode"] == {"samples": 4, "accept_len": 2.88, "gen_tok_s": 668.15}


def test_016_colours_commas_and_a_look_alike() -> None:
    samples = data.samples(data.case("016"))
    assert [item.accept_len for item in samples] == [2.69, 2.7, 3.19]
    assert [item.accept_rate_logged for item in samples] == [0.24, 0.57, 0.31]
    assert [item.gen_tok_s for item in samples] == [22.47, 123.73, 0.5]
    assert [item.rank for item in samples] == ["TP0 EP0", "TP0", "TP0 EP0"]


def test_017_fields_behind_and_between() -> None:
    text = (
        "[2026-08-12 09:00:01 TP0] Decode batch, #running-req: 1, #token: 9, accept len: 2.31, "
        "accept rate: 0.44, block accept len: 9.00, #prealloc-req: 0, cuda graph: True, "
        "gen throughput (token/s): 88.10, #queue-req: 0, est. TFLOPS/s (per GPU): 12.10, fwd occupancy: 91.20%\n"
        "[2026-08-12 09:05:01 TP0] Decode batch, #running-req: 1, npu graph: False, "
        "gen throughput (token/s): 41.50\n"
    )
    first, second = data.samples(text)
    assert (first.accept_len, first.accept_rate_logged, first.gen_tok_s, first.graph) == (
        2.31,
        0.44,
        88.1,
        True,
    )
    assert (second.accept_len, second.accept_rate_logged, second.gen_tok_s, second.graph) == (
        None,
        None,
        41.5,
        False,
    )


def test_019_rank_tags_with_underscores() -> None:
    items = list(entries(numbered(data.case("019"))))
    assert items[0].rank == "PP0 ATTN_CP1 TP1 EP1"
    assert data.samples(data.case("019")) == []
    assert data.boot("019").decode is None


def test_021_all_shards_loaded_is_not_all_loaded() -> None:
    state = data.follow(data.case("021"))
    assert (state.stage, state.percent, state.detail) == ("loading-draft", 0.0, "loading draft shards 0/1")
    assert [load.shards for load in state.loads] == [4, 1]
    assert not state.ready
    assert not state.draft_like_target
    again = data.case("021").replace("0/1 [", "0/4 [")
    assert data.follow(again).draft_like_target


def test_022_a_wrapper_that_speaks_of_readiness() -> None:
    state = data.follow(data.case("022"))
    assert state.stage == "loading-target"
    assert not state.ready
    assert data.boot("022").state == "starting"
    ready = data.case("022") + "sglang-1  | [2025-10-24 10:01:00] The server is fired up and ready to roll!\n"
    assert data.follow(ready).ready


def test_024_a_capture_of_22_minutes_is_progress() -> None:
    boot = data.boot("024")
    assert (boot.state, boot.failure) == ("starting", None)
    positions = []
    state = progress.State()
    for line in data.case("024").splitlines(keepends=True):
        state = progress.feed(state, line)
        positions.append(state.position)
    assert positions == sorted(positions)
    assert positions[-1] > positions[0]
