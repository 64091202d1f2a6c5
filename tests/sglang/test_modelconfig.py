"""A model's config.json is anybody's file: whatever it holds, it is read or it tells nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remote.diagnose import conclude
from remote.proofs import prove
from remote.sglang.modelconfig import architectures, json_object, language
from tests import pictures


@pytest.mark.parametrize(
    "text", [None, "", "[]", "null", "{", "[" * 100_000, b"\xff{}", b"\xef\xbb\xbf{}", "{}".encode("utf-16")]
)
def test_what_is_no_object_tells_nothing(text: str | bytes | None) -> None:
    assert json_object(text) is None


def test_the_language_model_is_a_part_or_all_of_it() -> None:
    assert language({"a": 1, "text_config": {"b": 2}}) == {"b": 2}
    assert language({"a": 1, "text_config": [None]}) == {"a": 1, "text_config": [None]}
    assert language(None) == {}
    assert architectures({"architectures": ["A", None]}) == ("A",)
    assert architectures({"architectures": True}) == ()


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        *(("architectures", value, False) for value in (True, 1, {"a": 1}, [], [None])),
        *(("num_hidden_layers", value, False) for value in (None, "61", [], 1.5)),
        *(("first_k_dense_replace", value, False) for value in ("x", [1])),
        ("first_k_dense_replace", None, True),
        *(("text_config", value, True) for value in (None, [None], "x", 1)),
    ],
)
def test_odd_values_end_no_command(key: str, value: Any, known: bool) -> None:
    """A null where a number is usual was a traceback in each command, `inv status` among them."""
    facts = pictures.healthy()
    model = facts["configs"][pictures.MODEL]
    model["text"] = json.dumps({**json.loads(model["text"]), key: value})
    found = pictures.picture(facts)
    assert (found.wiring is not None) is known
    verdict = {check.id: check.verdict for check in prove(found)}["wiring.graph"]
    assert verdict == ("pass" if known else "unknown")
    assert conclude(found)
