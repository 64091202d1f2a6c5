"""Command line and effective arguments: each version's flags, and what ServerArgs made of them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from remote.practice.simulator import argspec, serverargs
from remote.practice.simulator.models import Model
from remote.practice.simulator.tracebacks import SimulatedError
from tests.sglang import data
from tests.wheels import wheel_source

CAPTURES = Path(__file__).parent / "captures"
KEYS = json.loads((CAPTURES / "keys_0.5.9.json").read_text())
VERSIONS = ("0.5.5", "0.5.9", "0.5.10", "0.5.12")
TARGET = Model("/t", {}, "DeepseekV3ForCausalLM", 6, 1, 64, 300, 2048, ("model.safetensors",))
CASES = {
    "steps5 topk1 draft6": (5, 1, 6),
    "steps1 topk1 draft6": (1, 1, 6),
    "steps5 topk1 draft4": (5, 1, 4),
    "steps3 topk2 draft6": (3, 2, 6),
    "auto": (None, None, None),
    "only steps": (5, None, None),
    "no draft path": (5, 1, 6),
}


def source(version: str) -> str:
    return wheel_source(version, "sglang/srt/server_args.py").decode()


def parsed(version: str, *argv: str) -> dict[str, Any]:
    spec = argspec.read_spec(source(version))
    return argspec.parse(spec, argspec.make_parser(spec, "launch_server.py", "simulated"), argv)


def effective(version: str, *argv: str, spec_v2: bool | None = None) -> serverargs.Effective:
    text = source(version)
    return serverargs.normalise(
        parsed(version, *argv), TARGET, version=version, source=text, gpu_mem_mib=97887, spec_v2=spec_v2
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_can_be_given_and_has_the_dataclasss_default(version: str) -> None:
    spec = argspec.read_spec(source(version))
    parser = argspec.make_parser(spec, "launch_server.py", "simulated")
    assert set(spec.fields) <= {action.dest for action in parser._actions}
    values = parsed(version, "--model-path", "/t")
    assert values["port"] == 30000
    assert values["speculative_ngram_capacity" if version != "0.5.12" else "sm_group_num"] in {10_000_000, 8}
    given = parsed(version, "--model", "/t", "--tp", "8", "--cuda-graph-bs", "1", "2", "--trust-remote-code")
    assert (given["tp_size"], given["cuda_graph_bs"], given["trust_remote_code"]) == (8, [1, 2], True)


def test_the_record_has_the_real_ones_fields() -> None:
    values = effective("0.5.9", "--model-path", "/t", "--api-key", "sk-x").values
    assert list(values) == KEYS["server_info"][: len(values)]
    (record,) = data.records(f"[2026-01-01 00:00:00] server_args={serverargs.record(values)}\n")
    assert record.complete
    assert record.values["api_key"] != "sk-x"
    assert {**record.values, "api_key": "sk-x"} == values


def captured_cases() -> dict[str, tuple[list[str], str]]:
    """Case -> warnings and result of the captured file."""
    found = {}
    for block in (CAPTURES / "serverargs_0.5.9.txt").read_text().split("=== CASE ")[1:]:
        name, *lines = block.splitlines()
        warnings = [line.split("server_args: ", 1)[1] for line in lines if line.startswith("LOG WARNING")]
        result = next((line for line in lines if line.startswith(("{", "EXC"))), "")
        found[name] = ([text for text in warnings if "Intel AMX" not in text], result)
    return found


@pytest.mark.parametrize("case", CASES)
def test_speculative_arguments_are_normalised_as_captured(case: str) -> None:
    warnings, result = captured_cases()[case]
    argv = ["--model-path", "/t", "--speculative-algorithm", "EAGLE3"]
    argv += [] if case == "no draft path" else ["--speculative-draft-model-path", "/d"]
    names = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    for name, value in zip(names, CASES[case], strict=True):
        argv += [] if value is None else [name, str(value)]
    if result.startswith("EXC TypeError"):
        with pytest.raises(SimulatedError, match=re.escape(result.removeprefix("EXC TypeError "))):
            effective("0.5.9", *argv)
        return
    made = effective("0.5.9", *argv)
    expected = ast.literal_eval(result)
    for name in ("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk"):
        assert made.values[name] == expected[name]
    assert made.values["speculative_num_draft_tokens"] == expected["speculative_num_draft_tokens"]
    assert made.values["max_running_requests"] == 48
    assert made.values["disable_overlap_schedule"] is True
    assert [warned.message for warned in made.warnings] == warnings


def test_a_warning_names_its_line() -> None:
    argv = ["--model-path", "/t", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d"]
    first, second, third = effective("0.5.9", *argv).warnings
    # As in the captured 0.5.9 logs.
    assert (first.where, second.where, third.where) == (
        "server_args.py:2364",
        "server_args.py:2385",
        "server_args.py:2418",
    )


@pytest.mark.parametrize(
    ("version", "asked", "off"),
    [("0.5.10", None, True), ("0.5.10", True, False), ("0.5.12", None, False), ("0.5.12", False, True)],
)
def test_overlap_with_speculation_by_version(version: str, asked: bool | None, off: bool) -> None:
    argv = ["--model-path", "/t", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d"]
    made = effective(version, *argv, spec_v2=asked)
    assert made.values["disable_overlap_schedule"] is off
    assert any("verlap schedule" in warned.message or "Spec v" in warned.message for warned in made.warnings)


def test_graph_sizes_and_memory() -> None:
    argv = ["--model-path", "/t", "--tp-size", "8"]
    assert effective("0.5.9", *argv).values["cuda_graph_bs"][:5] == [1, 2, 4, 8, 12]
    speculative = effective("0.5.9", *argv, "--speculative-algorithm", "EAGLE3").values
    assert speculative["cuda_graph_bs"][:9] == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert speculative["cuda_graph_bs"][-1] == speculative["cuda_graph_max_bs"] == 512
    assert 0.75 < speculative["mem_fraction_static"] < 0.88
    given = effective("0.5.9", *argv, "--cuda-graph-bs", "1", "16").values
    assert given["cuda_graph_max_bs"] == 16
