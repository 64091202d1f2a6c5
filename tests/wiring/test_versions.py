"""The wiring of SGLang as released.

What the engine finds for DeepseekV3ForCausalLM with 61 layers in every published wheel from 0.5.5 to 0.5.23
(all 29 were run; the parametrised subset below has one of every kind):

| SGLang | ids | eager (prefill) | CUDA graph (decode) | overlap |
|---|---|---|---|---|
| 0.5.5 to 0.5.10.post1 | [2, 30, 58] | in:3 in:31 in:59 | in:2 in:30 in:58 | nothing |
| | [-1, 2, 30] | TypeError | in:2 in:30 in:58 | TypeError |
| | [1, 29, 57] | in:2 in:30 in:58 | in:2 in:30 in:58 | nothing |
| | [0, 2, 30] | in:1 in:3 in:31 | in:2 in:30 in:58 | nothing |
| | none | in:2 in:30 in:58 | in:2 in:30 in:58 | nothing |
| 0.5.11 to 0.5.12.post1 | as above | as above | as eager | as above |
| 0.5.13, 0.5.13.post1 | [2, 30, 58] or [1, 29, 57] | in:2 in:30 in:58 | as eager | nothing |
| | [-1, 2, 30] | two states: fc's shapes | as eager | nothing |
| | [0, 2, 30] | TypeError | as eager | TypeError |
| 0.5.14 to 0.5.16 | [0, 2, 30] | embed in:2 in:30 | as eager | embed |
| | [-1, 2, 30] | two states: fc's shapes | as eager | nothing |
| 0.5.17 to 0.5.19 | [0, 2, 30] | embed in:2 in:30 | as eager | AssertionError, 1 of 3 |
| | [-1, 2, 30] | AssertionError, 2 of 3 | as eager | nothing |
| 0.5.20 to 0.5.23 | the same with RuntimeError | | | |

So the embedding is captured natively from 0.5.14 on, by id 0, and the contract is met by [0, 3, 31].
KimiK25ForConditionalGeneration (0.5.9 on) is the same, but dies at start in 0.5.9: it lacks the hook.
KimiVLForConditionalGeneration lacks it in every version.
"""

from __future__ import annotations

import pytest

from remote import wiring
from tests.wiring.support import CONTRACT, GRAPH_RUNNER, K25, MODEL_RUNNER, V3, compute, pristine, told

NO_RESIDUAL = "crash: TypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'"
TWO_STATES = (
    "crash: RuntimeError: mat1 and mat2 shapes cannot be multiplied: "
    "2 states (in:2, in:30) reach fc, which takes 3"
)
DEFAULT = "in:2, in:30, in:58"

_FIRST = {
    (2, 30, 58): ("in:3, in:31, in:59", DEFAULT, ""),
    (-1, 2, 30): (NO_RESIDUAL, DEFAULT, NO_RESIDUAL),
    (1, 29, 57): (DEFAULT, DEFAULT, ""),
    (0, 2, 30): ("in:1, in:3, in:31", DEFAULT, ""),
    None: (DEFAULT, DEFAULT, ""),
}
_ONCE = {
    (2, 30, 58): ("in:3, in:31, in:59", "in:3, in:31, in:59", ""),
    (-1, 2, 30): (NO_RESIDUAL, NO_RESIDUAL, NO_RESIDUAL),
    (1, 29, 57): (DEFAULT, DEFAULT, ""),
    (0, 2, 30): ("in:1, in:3, in:31", "in:1, in:3, in:31", ""),
    None: (DEFAULT, DEFAULT, ""),
}
_AS_THEY_ARE = {
    (2, 30, 58): (DEFAULT, DEFAULT, ""),
    (-1, 2, 30): (TWO_STATES, TWO_STATES, ""),
    (1, 29, 57): (DEFAULT, DEFAULT, ""),
    (0, 2, 30): (NO_RESIDUAL, NO_RESIDUAL, NO_RESIDUAL),
    None: (DEFAULT, DEFAULT, ""),
}
_IN_THE_LAYER = {**_AS_THEY_ARE, (0, 2, 30): ("embed, in:2, in:30", "embed, in:2, in:30", "embed")}


def _packed(kind: str) -> dict[tuple[int, ...] | None, tuple[str, str, str]]:
    two, one = (f"crash: {kind}: captured {n} of 3 aux hidden states" for n in (2, 1))
    return {
        **_AS_THEY_ARE,
        (-1, 2, 30): (two, two, ""),
        (0, 2, 30): ("embed, in:2, in:30", "embed, in:2, in:30", one),
    }


TABLE: dict[str, dict[tuple[int, ...] | None, tuple[str, str, str]]] = {
    **dict.fromkeys(("0.5.5", "0.5.7", "0.5.9", "0.5.10.post1"), _FIRST),
    **dict.fromkeys(("0.5.11", "0.5.12"), _ONCE),
    "0.5.13": _AS_THEY_ARE,
    "0.5.16": _IN_THE_LAYER,
    "0.5.20": _packed("RuntimeError"),
    "0.5.23": _packed("RuntimeError"),
}


@pytest.mark.parametrize("version", TABLE)
def test_every_mode_and_every_id_list(version: str) -> None:
    for ids, expected in TABLE[version].items():
        found = compute(pristine(version), version, None if ids is None else list(ids))
        assert tuple(told(found.mode(mode)) for mode in wiring.MODES) == expected, (version, ids)


@pytest.mark.parametrize("version", ["0.5.10.post1", "0.5.16", "0.5.23"])
def test_the_wrapper_wires_its_language_model(version: str) -> None:
    for ids in ([2, 30, 58], [0, 2, 30]):
        through = compute(pristine(version, K25), version, ids, architecture=K25)
        direct = compute(pristine(version), version, ids)
        for mode in wiring.MODES:
            assert told(through.mode(mode)) == told(direct.mode(mode))


@pytest.mark.parametrize("architecture", [K25, "KimiVLForConditionalGeneration"])
def test_a_wrapper_without_the_hook_dies_at_start(architecture: str) -> None:
    found = compute(pristine("0.5.9", architecture), "0.5.9", [2, 30, 58], architecture=architecture)
    expected = f"AttributeError: '{architecture}' object has no attribute 'set_eagle3_layers_to_capture'"
    assert [found.mode(mode).error for mode in wiring.MODES] == [expected] * 3


def test_a_later_version_says_which_class_lacks_it() -> None:
    architecture = "KimiVLForConditionalGeneration"
    error = compute(
        pristine("0.5.23", architecture), "0.5.23", [0, 3, 31], architecture=architecture
    ).eager.error
    assert error is not None
    assert error.startswith(f"ValueError: Model {architecture} does not implement")


def test_the_call_site_of_each_mode() -> None:
    found = compute(pristine("0.5.9"), "0.5.9", [2, 30, 58])
    assert found.eager.call_site == f"{MODEL_RUNNER}:622"
    assert found.graph.call_site == f"{GRAPH_RUNNER}:365"
    assert found.overlap.call_site == found.eager.call_site
    assert f"{GRAPH_RUNNER}:365" in found.graph.explain


def test_a_draft_without_aux_states_captures_nothing() -> None:
    config = {"eagle_config": {"use_aux_hidden_state": False}}
    found = wiring.compute(
        pristine("0.5.9"),
        version="0.5.9",
        architecture=V3,
        num_layers=61,
        first_k_dense_replace=1,
        draft_config=config,
    )
    assert [told(found.mode(mode)) for mode in wiring.MODES] == ["", "", ""]
    assert found.eager.call_site is None


def test_the_number_of_states_is_held_against_the_weights() -> None:
    found = wiring.compute(
        pristine("0.5.12"),
        version="0.5.12",
        architecture=V3,
        num_layers=61,
        first_k_dense_replace=1,
        draft_config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30]}},
        fc_inputs=3,
    )
    assert found.eager.error is not None
    assert "2 states (in:3, in:31) reach fc, which takes 3" in found.eager.error


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.5.12", None), ("0.5.13", None), ("0.5.16", [0, 3, 31]), ("0.5.23", [0, 3, 31])],
)
def test_native_ids(version: str, expected: list[int] | None) -> None:
    assert wiring.native_ids(pristine(version), version, V3, 61, CONTRACT) == expected


def test_an_architecture_that_is_not_known() -> None:
    found = compute(pristine("0.5.9"), "0.5.9", [2, 30, 58], architecture="MadeUpForCausalLM")
    assert found.eager.unknown == "MadeUpForCausalLM is not known"


@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
def test_a_missing_file_is_never_a_guess(version: str) -> None:
    sources = pristine(version, K25)
    whole = compute(sources, version, [0, 3, 31], architecture=K25)
    for path in sources:
        rest = {name: text for name, text in sources.items() if name != path}
        found = compute(rest, version, [0, 3, 31], architecture=K25)
        for mode in wiring.MODES:
            result = found.mode(mode)
            assert result.unknown is not None or told(result) == told(whole.mode(mode)), (path, mode)


def test_without_a_version_every_file_is_named() -> None:
    every = set(wiring.needed_files(None, K25))
    for version in ("0.5.5", "0.5.12", "0.5.15.post1", "0.5.23"):
        assert set(wiring.needed_files(version, K25)) <= every
    assert GRAPH_RUNNER not in wiring.needed_files("0.5.23", K25)
    assert GRAPH_RUNNER in wiring.needed_files("0.5.12.post1", K25)
