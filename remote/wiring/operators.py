"""Operators of the interpreter on its values."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from .machine import MAX_BITS, MAX_SIZE, Run, affordable, bounded, type_name
from .values import (
    Buffer,
    Layer,
    Layers,
    SourceError,
    Stub,
    Tensor,
    Unfollowed,
    View,
    is_opaque,
    show,
)

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.BitXor: ("^", operator.xor),
    ast.MatMult: ("@", operator.matmul),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}
PYTHON_ERRORS = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    ZeroDivisionError,
    AttributeError,
    OverflowError,
)


def binary(run: Run, left: object, right: object, kind: type[ast.operator]) -> object:
    """`left kind right`. The sum of a layer's two states is that layer's input."""
    symbol, apply = _BINARY[kind]
    for value in (left, right):
        if isinstance(value, Tensor | Buffer | View):
            return _with_state(left, right, symbol)
    if is_opaque(left) or is_opaque(right):
        return Stub(f"({show(left)} {symbol} {show(right)})")
    if kind in (ast.Pow, ast.LShift) and not (isinstance(right, int) and abs(right) <= MAX_BITS):
        raise Unfollowed(f"a power or shift by {show(right)}, at {run.where}")
    if kind is ast.Mult:
        for value, times in ((left, right), (right, left)):
            if (
                isinstance(value, str | list | tuple)
                and isinstance(times, int)
                and len(value) * times > MAX_SIZE
            ):
                raise Unfollowed(f"a value of more than {MAX_SIZE} elements, at {run.where}")
    if kind is ast.Mod and isinstance(left, str):
        return percent(left, right)
    try:
        return bounded(run, apply(left, right))
    except PYTHON_ERRORS as error:
        raise python_error(error) from None


def _with_state(left: object, right: object, symbol: str) -> object:
    if left is None or right is None:
        sides = ["Tensor" if side is not None else "NoneType" for side in (left, right)]
        raise SourceError(
            "TypeError", f"unsupported operand type(s) for {symbol}: '{sides[0]}' and '{sides[1]}'"
        )
    labels = [side.label if isinstance(side, Tensor) else show(side) for side in (left, right)]
    kinds = sorted(label.partition(":")[0] for label in labels)
    index = {label.partition(":")[2] for label in labels}
    if symbol == "+" and kinds == ["hidden", "residual"] and len(index) == 1:
        return Tensor(f"in:{index.pop()}")
    return Tensor(f"other:({labels[0]} {symbol} {labels[1]})")


def percent(template: str, values: object) -> object:
    """`template % values` with bounded widths; unknown parts stay readable."""
    if re.search(r"%[^a-zA-Z%]*\d{4,}", template) or "*" in template:
        raise Unfollowed("a format with a huge width")
    items = values if isinstance(values, tuple) else (values,)
    plain = tuple(item if isinstance(item, int | float | str) else show(item) for item in items)
    try:
        return template % plain
    except PYTHON_ERRORS as error:
        if any(isinstance(item, Stub) for item in items):
            return f"{template} {', '.join(show(item) for item in items)}"
        raise python_error(error) from None


def python_error(error: Exception) -> SourceError:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return SourceError(type(error).__name__, text)


def compare(run: Run, left: object, right: object, kind: type[ast.cmpop]) -> object:
    """`left kind right`; a Stub when it cannot be told."""
    if kind in _NEGATED:
        value = compare(run, left, right, _NEGATED[kind])
        return Stub(f"not {value.path}") if isinstance(value, Stub) else not value
    if kind is ast.Is:
        if left is right:
            return True
        unknown = isinstance(left, Stub) or isinstance(right, Stub)
        return Stub(f"{show(left)} is {show(right)}") if unknown else _same_constant(left, right)
    if kind is ast.In:
        return _contains(run, left, right)
    symbol, apply = _COMPARE[kind]
    unknown = is_opaque(left) or is_opaque(right)
    if kind is ast.Eq and isinstance(left, Stub) and isinstance(right, Stub) and left.path == right.path:
        return True
    if unknown or any(isinstance(side, Tensor | Buffer | View) for side in (left, right)):
        return Stub(f"{show(left)} {symbol} {show(right)}")
    affordable(run, left, right)
    try:
        return bool(apply(left, right))
    except PYTHON_ERRORS as error:
        raise python_error(error) from None


def _same_constant(left: object, right: object) -> bool:
    return isinstance(left, bool | type(None) | int | str) and type(left) is type(right) and left == right


def _contains(run: Run, item: object, container: object) -> object:
    if isinstance(container, Stub | Tensor):
        return Stub(f"{show(item)} in {show(container)}")
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    if isinstance(container, str) and isinstance(item, int | float | None | list | tuple | dict):
        text = f"'in <string>' requires string as left operand, not {type_name(item)}"
        raise SourceError("TypeError", text)
    if not isinstance(container, list | tuple | set | frozenset | dict | range):
        if container is None or isinstance(container, int):
            raise SourceError("TypeError", f"argument of type '{type_name(container)}' is not iterable")
        return Stub(f"{show(item)} in {show(container)}")
    run.step(len(container) // 8)
    elements = list(container)
    affordable(run, item)
    if any(element is item or _equal(element, item) for element in elements):
        return True
    if isinstance(item, Stub) or any(is_opaque(element) for element in elements):
        return Stub(f"{show(item)} in {show(container)}")
    return False


def _equal(left: object, right: object) -> bool:
    plain = (int, float, str, bool, type(None), tuple)
    return isinstance(left, plain) and isinstance(right, plain) and left == right


def subscript(run: Run, value: object, index: object) -> object:
    """`value[index]`."""
    if isinstance(value, Stub):
        key = f"[{show(index)}]"
        return value.attrs.setdefault(key, Stub(f"{value.path}{key}"))
    if isinstance(value, Layers):
        return _layers(run, value, index)
    if isinstance(value, Tensor):
        return Tensor(f"other:{value.label}[...]")
    if isinstance(value, Buffer):
        return _view(value, index)
    if is_opaque(index) or isinstance(index, Stub):
        return Stub(f"{show(value)}[{show(index)}]")
    if not isinstance(value, list | tuple | dict | str | range):
        raise SourceError("TypeError", f"'{type_name(value)}' object is not subscriptable")
    affordable(run, index)
    factory = value.get(FACTORY) if isinstance(value, dict) else None
    if isinstance(value, dict) and factory is not None and index not in value:
        from .calls import call

        value[index] = call(run, factory, [], {})
    try:
        found: object = value[index]  # type: ignore[index,call-overload]
        return found
    except PYTHON_ERRORS as error:
        raise python_error(error) from None


# Key under which a stand-in for `defaultdict` keeps its factory.
FACTORY = ("default factory",)


def _layers(run: Run, layers: Layers, index: object) -> object:
    if isinstance(index, slice):
        return Layers(layers.indices[index], layers.cls)
    if not isinstance(index, int):
        return Stub(f"layers[{show(index)}]")
    try:
        return Layer(layers.indices[index], layers.cls)
    except IndexError:
        raise SourceError("IndexError", f"layer index {index} out of range, at {run.where}") from None


def _view(buffer: Buffer, index: object) -> object:
    last = index[-1] if isinstance(index, tuple) and index else index
    if isinstance(last, slice):
        start, stop, _ = last.indices(len(buffer.cells))
        return View(buffer, start, stop)
    return Stub(f"buffer[{show(index)}]")


def hashable(run: Run, elements: list[object], make: Callable[[], object]) -> object:
    """The set or dict that `make` gives of the elements, with Python's error when one cannot be hashed."""
    affordable(run, elements)
    try:
        return make()
    except TypeError as error:
        raise SourceError("TypeError", str(error)) from None
