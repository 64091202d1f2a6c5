"""The small interpreter held against Python itself."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wiring import programs
from tests.wiring.support import run_here

NAMES = [
    name
    for name, value in vars(programs).items()
    if inspect.isfunction(value) and list(inspect.signature(value).parameters) == ["n"]
]
SOURCE = Path(programs.__file__).read_text(encoding="utf-8")


def run_there(function: Any, *args: object) -> object:
    """The same by Python."""
    try:
        return function(*args)
    except Exception as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        return f"{type(error).__name__}: {text}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_programs_do_what_python_does(name: str, n: int) -> None:
    there = run_there(getattr(programs, name), n)
    here = run_here(SOURCE, name, n)
    if isinstance(there, str) and ": " in there:
        # Python's own texts differ between versions: the kind, and how the text begins.
        kind = there.split(":")[0].replace("UnboundLocalError", "NameError")
        assert isinstance(here, str)
        assert here.startswith(kind)
        assert kind in ("NameError", "TypeError") or here[:35] == there[:35]
    else:
        assert here == there


numbers = st.integers(-20, 20)
OPERATORS = ["+", "-", "*", "//", "%", "==", "!=", "<", ">", "<=", "and", "or", "in"]
expressions = st.recursive(
    st.one_of(numbers.map(str), st.sampled_from(["a", "b", "[a, b]", "(a,)", "'x'", "None", "True"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda x: f"(not {x})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        inner.map(lambda x: f"len([{x}])"),
        inner.map(lambda x: f"[{x} for c in [1, 2]]"),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(expressions, numbers, numbers)
@example("(0 in 'x')", 0, 0)
@example("(None in 'x')", 0, 0)
@example("([a, b] in 'x')", 0, 0)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_expressions_mean_what_they_mean_in_python(expression: str, a: int, b: int) -> None:
    source = f"def f(a, b):\n    return {expression}\n"
    names: dict[str, Any] = {}
    exec(compile(ast.parse(source), "m.py", "exec"), names)
    there = run_there(names["f"], a, b)
    here = run_here(source, "f", a, b)
    if isinstance(there, str) and ": " in there:
        assert isinstance(here, str)
        assert here.split(":")[0] == there.split(":")[0]
    else:
        assert here == there
