"""Expressions of the interpreter."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from .attributes import get_attribute
from .calls import call
from .machine import (
    EXPRESSIONS,
    Frame,
    Run,
    bounded,
    evaluate,
    iterate,
    truth,
    type_name,
)
from .modules import MISSING
from .natives import BUILTINS
from .operators import binary, compare, hashable, subscript
from .values import (
    Function,
    SourceError,
    Stub,
    Tensor,
    show,
)

_SPEC = re.compile(r"[<>^]?,?\d{0,3}(\.\d{1,2})?[a-z%]?")


def name(run: Run, frame: Frame, node: ast.Name) -> object:
    """Local, enclosing, module and built-in names. In a slice a name that was skipped is unknown."""
    scope: Frame | None = frame
    while scope is not None:
        if node.id in scope.names:
            return scope.names[node.id]
        scope = scope.parent
    value = frame.module.lookup(run, node.id)
    if value is not MISSING:
        return value
    if node.id in BUILTINS:
        return BUILTINS[node.id]
    if frame.only is not None:
        return Stub(node.id)
    raise SourceError("NameError", f"name '{node.id}' is not defined")


def _binop(run: Run, frame: Frame, node: ast.BinOp) -> object:
    return binary(run, evaluate(run, frame, node.left), evaluate(run, frame, node.right), type(node.op))


def _boolop(run: Run, frame: Frame, node: ast.BoolOp) -> object:
    stop_at = isinstance(node.op, ast.Or)
    value: object = None
    for item in node.values:
        value = evaluate(run, frame, item)
        if item is not node.values[-1] and truth(run, value) is stop_at:
            return value if not isinstance(value, Stub) else _settled(value, stop_at)
    return value


def _settled(value: Stub, decided: bool) -> object:
    # `unknown and x` taken as false must stay false afterwards; the object itself matters only when true.
    return value if decided else False


def _unary(run: Run, frame: Frame, node: ast.UnaryOp) -> object:
    value = evaluate(run, frame, node.operand)
    if isinstance(node.op, ast.Not):
        return Stub(f"not {value.path}") if isinstance(value, Stub) else not truth(run, value)
    if isinstance(value, Stub):
        return Stub(f"-{value.path}")
    if isinstance(value, Tensor):
        return Tensor(f"other:(-{value.label})")
    if not isinstance(value, int | float):
        raise SourceError("TypeError", f"bad operand type for unary -: '{type_name(value)}'")
    if isinstance(node.op, ast.USub):
        return -value
    if isinstance(node.op, ast.Invert) and isinstance(value, int):
        return ~value
    return value


def _compare(run: Run, frame: Frame, node: ast.Compare) -> object:
    left = evaluate(run, frame, node.left)
    result: object = True
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = evaluate(run, frame, comparator)
        result = compare(run, left, right, type(op))
        if len(node.ops) > 1 and not truth(run, result):
            return False
        left = right
    return result


def _attribute(run: Run, frame: Frame, node: ast.Attribute) -> object:
    return get_attribute(run, evaluate(run, frame, node.value), node.attr)


def _subscript(run: Run, frame: Frame, node: ast.Subscript) -> object:
    return subscript(run, evaluate(run, frame, node.value), evaluate(run, frame, node.slice))


def _slice(run: Run, frame: Frame, node: ast.Slice) -> object:
    parts = [
        None if part is None else evaluate(run, frame, part) for part in (node.lower, node.upper, node.step)
    ]
    return Stub("slice") if any(isinstance(part, Stub) for part in parts) else slice(*parts)


def _call(run: Run, frame: Frame, node: ast.Call) -> object:
    args: list[object] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            args.extend(iterate(run, evaluate(run, frame, argument.value)))
        else:
            args.append(evaluate(run, frame, argument))
    keywords: dict[str, object] = {}
    for keyword in node.keywords:
        value = evaluate(run, frame, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif isinstance(value, dict):
            keywords.update({str(key): item for key, item in value.items()})
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not args:
        args = [frame.owner, frame.receiver]
    function = evaluate(run, frame, node.func)
    run.at = (frame.module.path, node.lineno)
    return call(run, function, args, keywords, frame)


def _conditional(run: Run, frame: Frame, node: ast.IfExp) -> object:
    return evaluate(run, frame, node.body if truth(run, evaluate(run, frame, node.test)) else node.orelse)


def _elements(run: Run, frame: Frame, nodes: list[ast.expr]) -> list[object]:
    found: list[object] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            found.extend(iterate(run, evaluate(run, frame, node.value)))
        else:
            found.append(evaluate(run, frame, node))
    return found


def _set(run: Run, frame: Frame, node: ast.Set) -> object:
    elements = _elements(run, frame, node.elts)
    return hashable(run, elements, lambda: set(elements))


def _dict(run: Run, frame: Frame, node: ast.Dict) -> object:
    found: dict[object, object] = {}
    for key, value_node in zip(node.keys, node.values, strict=True):
        value = evaluate(run, frame, value_node)
        if key is None:
            found.update(value if isinstance(value, dict) else {})
        else:
            evaluated = evaluate(run, frame, key)
            hashable(run, [evaluated], partial(found.__setitem__, evaluated, value))
    return found


def _comprehension(
    run: Run,
    frame: Frame,
    generators: list[ast.comprehension],
    first: object,
    make: Callable[[Frame], object],
) -> Iterator[object]:
    from .statements import assign

    inner = Frame(frame.module, {}, frame, frame.owner, frame.receiver, frame.only)

    def walk(depth: int) -> Iterator[object]:
        if depth == len(generators):
            yield make(inner)
            return
        generator = generators[depth]
        source = first if depth == 0 else evaluate(run, inner, generator.iter)
        for item in iterate(run, source):
            assign(run, inner, generator.target, item)
            if all(truth(run, evaluate(run, inner, test)) for test in generator.ifs):
                yield from walk(depth + 1)

    yield from walk(0)


def _listcomp(run: Run, frame: Frame, node: ast.ListComp | ast.GeneratorExp) -> object:
    source = evaluate(run, frame, node.generators[0].iter)
    if isinstance(source, Stub) and isinstance(node, ast.ListComp):
        # A list made from an unknown collection is unknown itself, not empty: it may be the list of ids.
        return Stub(f"[... for ... in {source.path}]")
    found = _comprehension(run, frame, node.generators, source, lambda inner: evaluate(run, inner, node.elt))
    return bounded(run, list(found))


def _setcomp(run: Run, frame: Frame, node: ast.SetComp) -> object:
    source = evaluate(run, frame, node.generators[0].iter)
    found = list(
        _comprehension(run, frame, node.generators, source, lambda inner: evaluate(run, inner, node.elt))
    )
    return hashable(run, found, lambda: set(found))


def _dictcomp(run: Run, frame: Frame, node: ast.DictComp) -> object:
    def pair(inner: Frame) -> object:
        return evaluate(run, inner, node.key), evaluate(run, inner, node.value)

    source = evaluate(run, frame, node.generators[0].iter)
    made = _comprehension(run, frame, node.generators, source, pair)
    pairs = [item for item in made if isinstance(item, tuple)]
    return hashable(run, [pair[0] for pair in pairs], lambda: dict(pairs))


def _joined(run: Run, frame: Frame, node: ast.JoinedStr) -> object:
    return "".join(str(evaluate(run, frame, part)) for part in node.values)


def _formatted(run: Run, frame: Frame, node: ast.FormattedValue) -> object:
    value = evaluate(run, frame, node.value)
    spec = evaluate(run, frame, node.format_spec) if node.format_spec is not None else ""
    if isinstance(spec, str) and spec and isinstance(value, int | float) and _SPEC.fullmatch(spec):
        try:
            return format(value, spec)
        except ValueError as error:
            raise SourceError("ValueError", str(error)) from None
    return repr(value) if node.conversion == ord("r") and isinstance(value, str) else show(value)


def _lambda(_run: Run, frame: Frame, node: ast.Lambda) -> object:
    return Function("<lambda>", node, frame.module, frame, frame.owner)


def _named(run: Run, frame: Frame, node: ast.NamedExpr) -> object:
    value = evaluate(run, frame, node.value)
    frame.names[node.target.id] = value
    return value


EXPRESSIONS.update(
    {
        ast.Constant: lambda _run, _frame, node: node.value,
        ast.Name: name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.Slice: _slice,
        ast.Call: _call,
        ast.BinOp: _binop,
        ast.BoolOp: _boolop,
        ast.UnaryOp: _unary,
        ast.Compare: _compare,
        ast.IfExp: _conditional,
        ast.List: lambda run, frame, node: _elements(run, frame, node.elts),
        ast.Tuple: lambda run, frame, node: tuple(_elements(run, frame, node.elts)),
        ast.Set: _set,
        ast.Dict: _dict,
        ast.ListComp: _listcomp,
        ast.GeneratorExp: _listcomp,
        ast.SetComp: _setcomp,
        ast.DictComp: _dictcomp,
        ast.JoinedStr: _joined,
        ast.FormattedValue: _formatted,
        ast.Lambda: _lambda,
        ast.NamedExpr: _named,
    }
)
