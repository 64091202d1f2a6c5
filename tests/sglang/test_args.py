"""The server_args record: both forms, wrapped, cut, repeated, nested."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sglang import data

_KEY = st.from_regex(r"[a-z][a-z_]{0,15}", fullmatch=True).filter(
    lambda key: (
        key not in ("in", "is", "or", "if", "as", "not", "and", "for", "def", "del", "try", "from", "pass")
        and not re.search("key|token|secret|password|passwd", key)
    )
)
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20).filter(
    lambda text: (
        not re.search(r"(?i)key|token|secret|passw|bearer|authorization|://|hf_|sk-|gh._|server_args", text)
    )
)
_LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXT,
)
_VALUE = st.recursive(
    _LEAF,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_KEY, inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
_ARGS = st.dictionaries(_KEY, _VALUE, min_size=1, max_size=12)


def _record(values: dict[str, object], form: str) -> str:
    if form == "dict":
        return f"server_args={values!r}"
    return f"server_args=ServerArgs({', '.join(f'{key}={value!r}' for key, value in values.items())})"


@given(_ARGS, st.sampled_from(["repr", "dict"]), st.lists(st.integers(1, 10_000), max_size=6))
def test_a_record_wrapped_anywhere_is_read_back(
    values: dict[str, object], form: str, cuts: list[int]
) -> None:
    text = _record(values, form)
    head = len("server_args=ServerArgs(") if form == "repr" else len("server_args={")
    places = sorted({head + cut % (len(text) - head) for cut in cuts} - {0})
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    log = (
        f"[2026-11-29 16:30:36] {chr(10).join(pieces)}\n[2026-11-29 16:30:37] Init torch distributed begin.\n"
    )
    # A piece that looks like the start of another line is told apart by nothing at all.
    if any(
        re.match(r"Traceback|INFO:|ERROR:|WARNING:|  File|\S+:\d+: \w*Warning: ", piece)
        for piece in pieces[1:]
    ):
        return
    (record,) = data.records(log)
    assert record.complete
    assert record.kind == form
    assert record.values == values
    assert (record.line, record.last_line) == (1, len(pieces))


@given(_ARGS, st.sampled_from(["repr", "dict"]), st.integers(0, 10_000))
def test_a_cut_record_tells_only_what_is_whole(values: dict[str, object], form: str, cut: int) -> None:
    text = _record(values, form)
    head = text.index("=") + (12 if form == "repr" else 2)
    kept = text[: head + cut % (len(text) - head)]
    (record,) = data.records(f"[10:00:00] {kept}\n[10:00:01 TP0] Load weight begin. avail mem=1 GB\n")
    assert not record.complete
    assert {name: values.get(name) for name in record.values} == record.values
    assert len(record.values) < len(values)


def test_records_of_several_boots_and_on_one_line() -> None:
    one, two = "server_args=ServerArgs(port=1)", "server_args={'port': 2}"
    found = data.records(f"[10:00:00] {one}\nnoise\n[10:01:00] {two} {one}\n")
    assert [(record.line, record.values["port"]) for record in found] == [(1, 1), (3, 2), (3, 1)]


def test_values_that_are_no_literals_stay_source_text() -> None:
    text = "server_args=ServerArgs(mode=<Mode.A: 1>, hook=<function f at 0x7f>, dtype=torch.float16, port=3)"
    (record,) = data.records(text)
    assert record.opaque == ("mode", "hook", "dtype")
    assert record.values["mode"] == "<Mode.A: 1>"
    assert record.values["port"] == 3


def test_the_continuation_loses_the_prefix_of_its_shipper() -> None:
    """Kubernetes cuts lines at 16 kB and marks the pieces P (partial) and F (full)."""
    log = (
        "2026-09-22T06:49:56.3Z stdout P [2026-09-22 06:49:56] server_args={'model_path': '/mo\n"
        "2026-09-22T06:49:56.3Z stdout F dels/x', 'port': 8000}\n"
    )
    (record,) = data.records(log)
    assert record.values == {"model_path": "/models/x", "port": 8000}


def test_docker_json_lines_are_unwrapped() -> None:
    log = json.dumps(
        {"log": "[10:00:00] server_args={'chat_template': \"it's\", 'port': 1}\\n", "stream": "stdout"}
    )
    (record,) = data.records(log)
    assert record.values == {"chat_template": "it's", "port": 1}


@pytest.mark.parametrize(
    ("name", "kind", "count"), [("eagle3_0.5.9.log", "repr", 328), ("eagle3_0.5.23.log", "dict", 546)]
)
def test_real_records(name: str, kind: str, count: int) -> None:
    (record,) = data.records(data.capture(name))
    assert (record.kind, record.complete, len(record.values), record.opaque) == (kind, True, count, ())
    assert record.values["speculative_num_draft_tokens"] == 6
    assert record.values["speculative_eagle_topk"] == 1


def test_a_gap_between_lines_ends_a_record() -> None:
    from remote.sglang.args import find_in

    lines = [(1, "[10:00:00] server_args=ServerArgs(port=1, host='a"), (9, "b', tp_size=8)")]
    (record,) = find_in(lines)
    assert not record.complete
    assert record.values == {"port": 1}


@pytest.mark.parametrize("unit", ["'", "[{", "server_args=ServerArgs(a='", "\\"])
def test_a_line_of_20_mb_is_no_trap(unit: str) -> None:
    """Anything but a linear scan would not come back."""
    line = "server_args=ServerArgs(port=1, x='" + unit * (20_000_000 // len(unit))
    (record,) = data.records(line)
    assert not record.complete
    assert record.values == {"port": 1}
