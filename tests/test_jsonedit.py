"""JSON by key path: the value changes, every other byte stays."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.jsonedit import JsonProblem, get_value, parse, same_value, set_value

KEY = ["eagle_config", "eagle_aux_hidden_state_layer_ids"]
IDS = [-1, 2, 30]


def test_only_the_value_changes_on_one_line() -> None:
    text = (
        '{ "a":1.50e0,\t"eagle_config" : {"eagle_aux_hidden_state_layer_ids":[2,30,58],"x":null},'
        ' "b":"\\u00e9" }\n'
    )
    assert set_value(text, KEY, IDS) == text.replace("[2,30,58]", "[-1, 2, 30]")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("step", ["  ", "    ", "\t"])
def test_an_array_over_several_lines_stays_so(newline: str, step: str) -> None:
    old = json.dumps({"a": 1, "eagle_config": {KEY[1]: [2, 30, 58], "z": []}, "b": [1]}, indent=step)
    new = json.dumps({"a": 1, "eagle_config": {KEY[1]: IDS, "z": []}, "b": [1]}, indent=step)
    assert set_value(old.replace("\n", newline), KEY, IDS) == new.replace("\n", newline)


def test_a_value_that_is_right_already_is_not_respelled() -> None:
    text = '{"eagle_config":{"eagle_aux_hidden_state_layer_ids":[ -1,2 , 30 ]}}'
    assert set_value(text, KEY, IDS) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a":1,"b":2}', '{"a":1,"b":2,"k":[-1, 2, 30]}'),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 2, "k": [-1, 2, 30]}'),
        ('{"a": 1}', '{"a": 1, "k": [-1, 2, 30]}'),
        ("{}", '{"k": [-1, 2, 30]}'),
        ('{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "k": [-1, 2, 30]\n}\n'),
        ('{\r\n\t"a" : 1\r\n}', '{\r\n\t"a" : 1,\r\n\t"k" : [-1, 2, 30]\r\n}'),
    ],
)
def test_a_missing_key_is_added_in_the_style_of_the_others(before: str, after: str) -> None:
    assert set_value(before, ["k"], IDS) == after


def test_missing_objects_on_the_way_are_made() -> None:
    text = set_value('{\n  "a": 1\n}', KEY, IDS)
    assert json.loads(text) == {"a": 1, "eagle_config": {KEY[1]: IDS}}
    assert text.startswith('{\n  "a": 1,\n  "eagle_config": {\n')


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"a": 1,\n "a": 2}', 2, "twice"),
        ('{"a": 1,\n // remark\n "b": 2}', 2, "key in double quotes"),
        ('{"a": 1,}', 1, "key in double quotes"),
        ('{"a": [1,]}', 1, "value is missing"),
        ('{"a": 1}\n\n{"b": 2}', 3, "after the end"),
        ('{"a": 1', 1, "closing brace"),
        ('{"a" 1}', 1, "colon"),
        ("{'a': 1}", 1, "key in double quotes"),
        ('{"a": tru}', 1, "not a JSON value"),
        ('{"a": "x\ny"}', 1, "value is missing"),
        ("", 1, "value is missing"),
        ("[" * 100_000, 1, "deeply"),
    ],
)
def test_what_is_not_plain_json_is_refused(text: str, line: int, message: str) -> None:
    with pytest.raises(JsonProblem) as caught:
        set_value(text, ["k"], 1)
    assert message in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize("text", ['{"eagle_config": null}', '{"eagle_config": [1]}', "[1]"])
def test_a_key_inside_something_else_than_an_object_is_refused(text: str) -> None:
    with pytest.raises(JsonProblem, match="is no object"):
        set_value(text, KEY, IDS)
    with pytest.raises(JsonProblem, match="is no object"):
        get_value(parse(text), KEY)


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (0, False), (2, 2.0), ([1], [1.0]), ({"a": 1}, {"a": 1, "b": 2}), ("1", 1), (None, False)],
)
def test_values_of_different_types_are_different(a: Any, b: Any) -> None:
    assert not same_value(a, b)
    assert not same_value(b, a)


def test_python_reads_more_numbers_than_json_has_and_so_do_we() -> None:
    assert get_value(parse('{"a": -Infinity, "b": 1e3}'), ["a"]) == (True, float("-inf"))


LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
VALUE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
DOCUMENT = st.dictionaries(st.text(max_size=5), VALUE, max_size=4)
PATH = st.lists(st.text(max_size=5), min_size=1, max_size=3)
LAYOUT = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 1, 2, 4, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" ,", " : "), (", ", ": ")]),
        "ensure_ascii": st.booleans(),
    }
)


def place(document: dict[str, Any], path: list[str], value: Any) -> dict[str, Any] | None:
    """The document with the value at the path, None where the path leads through something else."""
    result = copy.deepcopy(document)
    inner: Any = result
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            return None
    inner[path[-1]] = value
    return result


@settings(max_examples=150, deadline=None)
@given(
    DOCUMENT, PATH, VALUE, LAYOUT, st.tuples(st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n\n"]))
)
def test_the_result_reads_as_the_document_with_the_value(
    document: dict[str, Any], path: list[str], value: Any, layout: dict[str, Any], ends: tuple[str, str]
) -> None:
    newline, tail = ends
    text = json.dumps(document, **layout).replace("\n", newline) + tail
    expected = place(document, path, value)
    if expected is None:
        with pytest.raises(JsonProblem):
            set_value(text, path, value)
        return
    changed = set_value(text, path, value)
    assert same_value(json.loads(changed), expected)
    assert set_value(changed, path, value) == changed
    assert changed.endswith(tail)


@settings(max_examples=150, deadline=None)
@given(DOCUMENT, PATH, st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=4), LAYOUT)
def test_every_byte_outside_the_value_stays(
    document: dict[str, Any], path: list[str], value: Any, layout: dict[str, Any]
) -> None:
    mark = "the value that is replaced"
    marked = place(document, path, mark)
    if marked is None or mark == value:
        return
    text = json.dumps(marked, **layout)
    spelled = json.dumps(value, ensure_ascii=False)
    assert set_value(text, path, value) == text.replace(json.dumps(mark), spelled)
