"""The wiring of patched source: the incident's three edits, the whole bundle, and what was measured."""

from __future__ import annotations

import pytest

from remote import wiring
from tests.wiring.support import (
    CONTRACT,
    IDS,
    K25,
    MODEL,
    V3,
    compute,
    draft,
    edited,
    patched,
    pristine,
    told,
)

CAPTURE = """        if self.capture_embedding_for_eagle3:
            aux_hidden_states.append(
                hidden_states.clone() if residual is None else hidden_states + residual
            )
"""
ALL = "embed, in:3, in:31"


@pytest.mark.parametrize("version", ["0.5.5", "0.5.9", "0.5.10"])
def test_the_three_edits_do_not_reach_decode(version: str) -> None:
    found = compute(patched(version, "eagle3-three-edits"), version, IDS)
    assert [told(found.mode(mode)) for mode in wiring.MODES] == [ALL, "in:2, in:30, in:58", "embed"]
    assert wiring.compare(found.eager, CONTRACT) == "match"
    assert wiring.compare(found.graph, CONTRACT) == wiring.compare(found.overlap, CONTRACT) == "mismatch"


@pytest.mark.parametrize("version", ["0.5.11", "0.5.12"])
def test_the_three_edits_suffice_where_ids_are_set_before_capture(version: str) -> None:
    found = compute(patched(version, "eagle3-three-edits"), version, IDS)
    assert [told(found.mode(mode)) for mode in wiring.MODES] == [ALL, ALL, "embed"]


@pytest.mark.parametrize("version", ["0.5.5", "0.5.7", "0.5.9", "0.5.10.post1", "0.5.12"])
def test_the_bundle_reaches_every_mode_that_can_be(version: str) -> None:
    sources = patched(version, "eagle3-embedding-capture")
    found = compute(sources, version, IDS)
    assert [told(found.mode(mode)) for mode in wiring.MODES] == [ALL, ALL, "embed"]
    # Other configurations keep what they had: the ids, or the defaults without any.
    assert told(compute(sources, version, [2, 30, 58]).graph) == "in:3, in:31, in:59"
    assert told(compute(sources, version, None).graph) == "in:2, in:30, in:58"


@pytest.mark.parametrize("version", ["0.5.9", "0.5.10", "0.5.12"])
def test_the_bundle_through_the_wrapper(version: str) -> None:
    sources = patched(version, "eagle3-embedding-capture", K25)
    found = compute(sources, version, IDS, architecture=K25)
    assert [told(found.mode(mode)) for mode in wiring.MODES] == [ALL, ALL, "embed"]


def test_the_patched_code_logs_what_it_sets() -> None:
    logged: list[tuple[str, str]] = []
    compute(patched("0.5.9", "eagle3-embedding-capture"), "0.5.9", IDS, logged=logged)
    line = ("info", "EAGLE-3 capture: draft input [embed, in:3, in:31] (ids [-1, 2, 30])")
    assert logged == [line, line]


def test_released_code_logs_nothing_while_it_sets_the_layers() -> None:
    logged: list[tuple[str, str]] = []
    compute(pristine("0.5.9"), "0.5.9", [2, 30, 58], logged=logged)
    assert logged == []


@pytest.mark.parametrize(
    ("version", "bundle", "ids", "expected"),
    [
        ("0.5.9", None, [1, 3, 4], "in:2, in:4, in:5"),
        ("0.5.8", None, [1, 3, 4], "in:2, in:4, in:5"),
        ("0.5.9", None, [-1, 1, 3], "crash: TypeError"),
        ("0.5.9", "eagle3-three-edits", [-1, 1, 3], "embed, in:2, in:4"),
        ("0.5.8", "eagle3-three-edits", [-1, 1, 3], "embed, in:2, in:4"),
        ("0.5.9", "eagle3-three-edits", [1, 3, 4], "in:2, in:4, in:5"),
        ("0.5.23", None, [0, 2, 4], "embed, in:2, in:4"),
        ("0.5.23", None, [-1, 1, 3], "crash: RuntimeError: captured 2 of 3 aux hidden states"),
    ],
)
def test_what_was_measured_on_running_servers(
    version: str, bundle: str | None, ids: list[int], expected: str
) -> None:
    """A six-layer DeepSeek-V3, by the accept length of a draft that knows only the embedding (CPU)."""
    sources = pristine(version) if bundle is None else patched(version, bundle)
    assert told(compute(sources, version, ids, layers=6).eager).startswith(expected)


def test_measured_without_the_capture_in_the_forward() -> None:
    sources = edited(patched("0.5.9", "eagle3-three-edits"), MODEL, CAPTURE, "")
    error = compute(sources, "0.5.9", [-1, 1, 3], layers=6).eager.error
    assert error is not None
    assert "mat1 and mat2 shapes cannot be multiplied: 2 states (in:2, in:4)" in error
    assert "nothing for id -1" in compute(sources, "0.5.9", [-1, 1, 3], layers=6).eager.explain


def test_measured_with_the_embedding_last() -> None:
    sources = edited(
        patched("0.5.9", "eagle3-three-edits"), MODEL, CAPTURE, "        embedding = hidden_states.clone()\n"
    )
    end = "        if len(aux_hidden_states) == 0:\n            return hidden_states\n"
    sources = edited(
        sources,
        MODEL,
        end,
        "        if self.capture_embedding_for_eagle3:\n"
        f"            aux_hidden_states.append(embedding)\n{end}",
    )
    found = compute(sources, "0.5.9", [-1, 1, 3], layers=6)
    assert told(found.eager) == "in:2, in:4, embed"
    assert wiring.compare(found.eager, ["embed", "in:2", "in:4"]) == "mismatch"


def test_behaviour() -> None:
    def ask(sources: dict[str, str]) -> wiring.Behaviour:
        return wiring.behaviour(
            sources,
            version="0.5.9",
            architecture=V3,
            num_layers=61,
            first_k_dense_replace=1,
            contract=CONTRACT,
            ids=IDS,
        )

    fixed = ask(patched("0.5.9", "eagle3-three-edits"))
    assert (fixed.verdict, fixed.layers) == ("match", ("embed", "in:3", "in:31"))
    released = ask(pristine("0.5.9"))
    assert released.verdict == "crash"
    assert "TypeError" in released.text
    assert "[-1, 2, 30]" in released.text


def test_json() -> None:
    found = compute(patched("0.5.9", "eagle3-three-edits"), "0.5.9", IDS)
    assert wiring.to_json(found, CONTRACT) == {
        "contract": CONTRACT,
        "eager": ["embed", "in:3", "in:31"],
        "graph": ["in:2", "in:30", "in:58"],
        "overlap": ["embed"],
    }
    released = wiring.to_json(compute(pristine("0.5.9"), "0.5.9", IDS), CONTRACT)
    assert released["eager"] == {
        "error": "TypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'"
    }
    assert wiring.to_json(compute({}, "0.5.9", IDS), CONTRACT)["graph"] is None


def test_ids_without_a_list() -> None:
    for value in ("2,30,58", 3, [[2]], ["2"], None):
        found = wiring.compute(
            pristine("0.5.9"),
            version="0.5.9",
            architecture=V3,
            num_layers=61,
            first_k_dense_replace=1,
            draft_config={**draft(None), "eagle_config": {"eagle_aux_hidden_state_layer_ids": value}},
        )
        if value is None:
            assert told(found.eager) == "in:2, in:30, in:58"
        else:
            assert found.eager.error is not None
            assert found.eager.error.startswith("TypeError")
