"""What SGLang makes of the speculative arguments, against real runs of 0.5.9 and 0.5.23."""

# Lines of logs are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.sglang.speculation import effective, normalise
from tests.sglang import data

_BASE = {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/d", "model-path": "/t"}
_NUMBERS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")


def _asked(steps: int | None, topk: int | None, draft: int | None) -> dict[str, object]:
    names = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
    given_values = {
        name: value for name, value in zip(names, (steps, topk, draft), strict=True) if value is not None
    }
    return {**_BASE, **given_values}


def _runs() -> list[tuple[str, str, dict[str, object], dict[str, object] | None]]:
    """(version, case, arguments, resulting values or None where it exited) of the captured runs."""
    found = []
    for version in ("0.5.9", "0.5.23"):
        for block in data.capture(f"serverargs_{version}.txt").split("=== CASE ")[1:]:
            head, *rest = block.split("\n")
            name = head.split(" argv:")[0].strip()
            numbers = dict(re.findall(r"(steps|topk|draft)(\d+)", name))
            asked = _asked(
                *(int(numbers[key]) if key in numbers else None for key in ("steps", "topk", "draft"))
            )
            if name == "only steps":
                asked = _asked(3, None, None)
            elif name == "no draft path":
                asked = {**_asked(5, 1, 6)}
                del asked["speculative-draft-model-path"]
            elif name == "bad algorithm":
                asked["speculative-algorithm"] = "EAGLE9"
            elif name == "steps0":
                asked = _asked(0, 1, 1)
            elif name == "no spec":
                asked = {"model-path": "/t"}
            result = next((line for line in rest if line.startswith(("{", "resolved"))), None)
            values = ast.literal_eval(result[result.index("{") :]) if result else None
            found.append((version, name, asked, values))
    return found


@pytest.mark.parametrize(("version", "name", "asked", "values"), _runs())
def test_against_real_runs(
    version: str, name: str, asked: dict[str, object], values: dict[str, object] | None
) -> None:
    found = normalise(version, asked)
    if values is None:
        assert any(change.fatal for change in found)
        return
    if name == "no draft path":
        # It resolves, and dies minutes later with the target as its own draft.
        assert [(change.name, change.fatal) for change in found] == [("speculative_draft_model_path", True)]
        return
    assert not any(change.fatal for change in found)
    predicted = effective(version, asked, architecture="DeepseekV3ForCausalLM")
    assert predicted == {key: values[key] for key in predicted}
    plain = {key.replace("-", "_"): value for key, value in asked.items()}
    changed = {key: values[key] for key in _NUMBERS if key in plain and plain[key] != values[key]}
    assert {change.name: change.effective for change in found} == changed


def test_there_are_real_runs_of_each_kind() -> None:
    names = {name for _, name, _, _ in _runs()}
    assert {"steps1 topk1 draft6", "only steps", "no draft path", "bad algorithm"} <= names
    assert len(_runs()) >= 16


def test_the_incident() -> None:
    """--speculative-num-steps 1 silently overrode --speculative-num-draft-tokens 6."""
    (change,) = normalise("0.5.9", _asked(1, 1, 6))
    assert (change.name, change.requested, change.effective, change.fatal) == (
        "speculative_num_draft_tokens",
        6,
        2,
        False,
    )
    assert normalise("0.5.9", _asked(5, 1, 6)) == []


@given(
    st.sampled_from(["0.5.3", "0.5.5", "0.5.9", "0.5.10.post1", "0.5.12", "0.5.20", "0.5.23"]),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(2, 64),
)
def test_what_is_predicted_is_stable(version: str, steps: int, topk: int, draft: int) -> None:
    asked = _asked(steps, topk, draft)
    if any(change.fatal for change in normalise(version, asked)):
        assert topk > 1
        return
    once = effective(version, asked)
    assert normalise(version, {**_BASE, **once}) == []
    assert effective(version, {**_BASE, **once}) == once
    assert topk > 1 or once["speculative_num_draft_tokens"] == steps + 1


@pytest.mark.parametrize(
    ("version", "extra", "name"),
    [
        ("0.5.9", {"speculative-num-steps": None, "speculative-eagle-topk": 1}, "speculative_eagle_topk"),
        ("0.5.9", {"speculative-num-steps": None, "speculative-num-draft-tokens": 4}, "speculative_num_draft_tokens"),
        ("0.5.9", {"speculative-eagle-topk": 4, "speculative-num-draft-tokens": None}, "speculative_num_draft_tokens"),
        ("0.5.9", {"speculative-eagle-topk": 2, "speculative-num-draft-tokens": 64}, "speculative_num_draft_tokens"),
        ("0.5.9", {"speculative-eagle-topk": 2, "attention-backend": "trtllm_mha"}, "speculative_eagle_topk"),
        ("0.5.5", {"speculative-eagle-topk": 2, "page-size": 64, "attention-backend": "fa3"}, "speculative_eagle_topk"),
        ("0.5.12", {"speculative-eagle-topk": 2, "page-size": 64, "attention-backend": "triton"}, "speculative_eagle_topk"),
        ("0.5.9", {"speculative-algorithm": "DFLASH"}, "speculative_algorithm"),
        ("0.5.9", {"speculative-algorithm": "eagle3"}, "speculative_algorithm"),
        ("0.5.9", {"speculative-num-steps": "five"}, "speculative_num_steps"),
        ("0.5.9", {"speculative-draft-model-path": "/t"}, "speculative_draft_model_path"),
        ("0.5.9", {"speculative-algorithm": "STANDALONE", "enable-dp-attention": True}, "enable_dp_attention"),
    ],
)  # fmt: skip
def test_what_the_server_exits_on(version: str, extra: dict[str, object], name: str) -> None:
    asked = {**_asked(3, 1, 4), **extra}
    given_values = {key: value for key, value in asked.items() if value is not None}
    fatal = [change.name for change in normalise(version, given_values) if change.fatal]
    assert name in fatal


@pytest.mark.parametrize(
    ("version", "extra"),
    [
        ("0.5.9", {"speculative-algorithm": "NEXTN"}),
        ("0.5.12", {"speculative-algorithm": "eagle3"}),
        ("0.5.9", {"speculative-eagle-topk": 2, "page-size": 64, "attention-backend": "fa3"}),
        ("0.5.15", {"speculative-eagle-topk": 2, "page-size": 64, "attention-backend": "triton"}),
        ("0.5.9", {"speculative-num-steps": "3", "speculative-eagle-topk": "1"}),
    ],
)
def test_what_runs_as_asked(version: str, extra: dict[str, object]) -> None:
    assert normalise(version, {**_asked(3, 1, 4), **extra}) == []


def test_spec_v2_only_takes_topk_1_in_some_versions() -> None:
    asked, env = _asked(3, 2, 4), {"SGLANG_ENABLE_SPEC_V2": "True"}
    assert [change.fatal for change in normalise("0.5.9", asked, env=env)] == [True]
    assert normalise("0.5.9", asked) == []
    assert normalise("0.5.11", asked, env=env) == []


def test_without_numbers_they_are_chosen_which_is_no_change() -> None:
    assert normalise("0.5.9", _BASE) == []
    assert effective("0.5.9", _BASE) == {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }
    assert effective("0.5.9", _BASE, architecture="LlamaForCausalLM")["speculative_eagle_topk"] == 4
    assert (
        effective("0.5.5", _BASE, architecture="KimiK25ForConditionalGeneration")["speculative_eagle_topk"]
        == 4
    )
    assert effective("0.5.9", {"model-path": "/t"}) == {}
    backend = {**_BASE, "attention-backend": "trtllm_mha"}
    assert [change.fatal for change in normalise("0.5.9", backend, architecture="LlamaForCausalLM")] == [True]


def test_dflash_and_ngram_overwrite() -> None:
    found = normalise("0.5.12", {**_asked(3, 2, 16), "speculative-algorithm": "DFLASH"})
    assert [(change.name, change.effective) for change in found] == [
        ("speculative_num_steps", 1),
        ("speculative_eagle_topk", 1),
    ]
    assert (
        effective("0.5.12", {**_asked(3, 2, 16), "speculative-algorithm": "DFLASH"})["speculative_num_steps"]
        == 1
    )
    (change,) = normalise("0.5.9", {"speculative-algorithm": "NGRAM", "speculative-eagle-topk": 1})
    assert change.effective == 10


def test_what_is_no_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a version"):
        normalise("unknown", _BASE)
