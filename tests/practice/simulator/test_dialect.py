"""Lines and counts by version, held against SGLang's own log parser and the captured ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from remote.practice.simulator import dialect, logs
from remote.sglang import decode
from remote.sglang.lines import entries
from tests.wheels import wheel_source

CAPTURES = Path(__file__).resolve().parents[2] / "sglang" / "captures"
PREFILL = dialect.PrefillStats(29, 0, 0.01, 0, 0, 0.0)
DECODE = dialect.DecodeStats(1, 36, 0.01, 3.8, 6, False, 8.76, 0)


def test_lines_of_0_5_9_as_captured() -> None:
    spoken = dialect.dialect("0.5.9")
    captured = (CAPTURES / "eagle3_0.5.9.log").read_text()
    assert dialect.prefill_line(spoken, PREFILL).replace("cuda graph", "cpu graph") in captured
    assert dialect.decode_line(spoken, DECODE) == (
        "Decode batch, #running-req: 1, #token: 36, token usage: 0.01, accept len: 3.80, accept rate: 0.63, "
        "cuda graph: False, gen throughput (token/s): 8.76, #queue-req: 0"
    )


@pytest.mark.parametrize("version", ["0.5.6", "0.5.9", "0.5.10", "0.5.11", "0.5.12"])
def test_sglangs_own_parser_reads_the_decode_line(version: str) -> None:
    """The expression of debug_utils/log_parser.py; its last comma is no longer printed since 0.5.9."""
    text = wheel_source(version, "sglang/srt/debug_utils/log_parser.py").decode()
    assigned = ast.parse(text).body[0]
    assert isinstance(assigned, ast.Assign)
    pattern = ast.literal_eval(assigned.value).rstrip(",")
    line = f"[2026-01-01 00:00:00 TP0] {dialect.decode_line(dialect.dialect(version), DECODE)}"
    found = re.match(pattern, line)
    assert found is not None
    assert (found["num_token"], found["gen_throughput"], found["queue_req"]) == ("36", "8.76", "0")
    (sample,) = decode.read(entries([(1, line)]))
    assert sample.accept_len == 3.8
    assert sample.gen_tok_s == 8.76


@pytest.mark.parametrize(("version", "rate"), [("0.5.9", "0.63"), ("0.5.10", "0.63"), ("0.5.11", "0.56")])
def test_the_accept_rate_has_two_definitions(version: str, rate: str) -> None:
    assert f"accept rate: {rate}," in dialect.decode_line(dialect.dialect(version), DECODE)


@pytest.mark.parametrize(
    "version", ["0.5.5", "0.5.6", "0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12"]
)
def test_meta_info_has_the_keys_of_the_version(version: str) -> None:
    """Each key is one that tokenizer_manager.py of that version writes, and the other way round."""
    text = wheel_source(version, "sglang/srt/managers/tokenizer_manager.py").decode()
    method = text[text.index("def _calculate_spec_decoding_metrics") :]
    method = method[: method.index("\n    def ", 10)]
    written = set(re.findall(r'meta_info\["(\w+)"\]', method))
    found = dialect.spec_metrics(
        dialect.dialect(version),
        verify_ct=16,
        accepted=48,
        completion_tokens=64,
        histogram=[4, 1, 2, 1, 0, 8],
        steps=5,
        draft_tokens=6,
    )
    assert set(found) == written
    assert found["spec_accept_length"] == 4.0
    assert found["spec_accept_rate"] == 0.6


def test_progress_bars() -> None:
    assert logs.shard_bar(0, 4, 0.0) == (
        "\rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]\n"
    )
    assert logs.shard_bar(2, 4, 1.786) == (
        "\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.12it/s]\n"
    )
    assert logs.capture_bar("Capturing batches (bs=1 avail_mem=10.83 GB)", 4, 4, 24.16) == (
        "\rCapturing batches (bs=1 avail_mem=10.83 GB): 100%|██████████| 4/4 [00:24<00:00,  6.04s/it]"
    )


def test_versions_are_compared_as_numbers() -> None:
    assert dialect.version_tuple("0.5.10.post1") == (0, 5, 10, 1)
    assert dialect.dialect("0.5.10.post1").watchdog
    assert not dialect.dialect("0.5.9").watchdog
