"""Calls of the interpreter: functions of the source, classes, stand-ins and unknowns."""

from __future__ import annotations

import ast
from functools import lru_cache

from .attributes import NoAttribute, decorator_names, find_in_class, get_attribute
from .logs import LOG_CALLS, emit
from .machine import MAX_DEPTH, Frame, ReturnSignal, Run, evaluate, execute, type_name
from .slices import slice_of
from .stand_ins import CALL_STAND_INS, GRAPH_RUNNERS, HOOK, NOT_BUILT, captured, layer_outputs, pass_through
from .values import (
    Bound,
    Class,
    ExceptionType,
    ExceptionValue,
    Function,
    Instance,
    Layer,
    Native,
    SourceError,
    Stub,
    Tensor,
    Unfollowed,
    holds_state,
    is_opaque,
    show,
    words,
)

# Decorators that do not change what a function computes.
_TRANSPARENT = words(
    "no_grad inference_mode property cached_property staticmethod classmethod override "
    "abstractmethod lru_cache cache contextmanager wraps torch_compile"
)


def call(
    run: Run, function: object, args: list[object], keywords: dict[str, object], frame: Frame | None = None
) -> object:
    """`function(*args, **keywords)`."""
    run.step()
    if isinstance(function, Bound):
        target = function.function
        if target.name == HOOK and frame is not None and frame.module.sliced:
            run.hook_site = run.where
            vague = next((value for value in (*args, *keywords.values()) if is_opaque(value)), None)
            run.vague = (
                None if vague is None else f"the ids given at {run.where} cannot be told: {show(vague)}"
            )
            if vague is not None:
                return None
        return call_function(run, target, [function.receiver, *args], keywords)
    if isinstance(function, Function):
        return call_function(run, function, args, keywords)
    if isinstance(function, Native):
        return function.call(run, args, keywords)
    if isinstance(function, Stub):
        return _call_stub(run, function, args, keywords)
    if isinstance(function, Class):
        return _instantiate(run, function, args, keywords)
    if isinstance(function, Instance):
        name = "__call__" if find_in_class(run, function.cls, "__call__") is not None else "forward"
        return call(run, get_attribute(run, function, name), args, keywords)
    if isinstance(function, Layer):
        return layer_outputs(run, function, args, keywords)
    if isinstance(function, ExceptionType):
        return ExceptionValue(function.name, show(args[0]) if args else "")
    raise SourceError("TypeError", f"'{type_name(function)}' object is not callable")


def _call_stub(run: Run, function: Stub, args: list[object], keywords: dict[str, object]) -> object:
    name = function.path.rpartition(".")[2]
    if name == HOOK:
        raise Unfollowed(f"whose {HOOK} is called cannot be told, at {run.where}")
    if name in LOG_CALLS:
        emit(run, function.path, args)
        return None
    if name in CALL_STAND_INS:
        return CALL_STAND_INS[name](run, args, keywords)
    same = pass_through(function.path, args, keywords)
    if same is not None:
        return same
    if name in GRAPH_RUNNERS:
        run.overrides["capture"](run, [f"the source of {name} was not given"], {})
    if not run.quiet and any(value is run.model for value in (*args, *keywords.values())):
        run.handed = run.handed or f"{function.path}(...) at {run.where} is given the model and not followed"
    if any(holds_state(value) for value in (*args, *keywords.values())):
        run.suspicions.append(f"{function.path}(...) at {run.where} is given the captured states")
    shown = [*map(_argument, args), *(f"{key}={_argument(value)}" for key, value in keywords.items())]
    return Stub(f"{function.path}({', '.join(shown)[:120]})", keywords=dict(keywords))


def _argument(value: object) -> str:
    # Without details that differ between layers and modes: what is the same condition must read the same.
    if isinstance(value, Tensor):
        return "state"
    return (
        f"{value.path.partition('(')[0]}(...)"
        if isinstance(value, Stub) and "(" in value.path
        else show(value)
    )


def _instantiate(run: Run, cls: Class, args: list[object], keywords: dict[str, object]) -> object:
    if cls.module.sliced:
        return _instantiate_sliced(run, cls, args, keywords)
    if NOT_BUILT.search(cls.name):
        return Stub(f"{cls.name}(...)")
    if cls.node.decorator_list:
        raise Unfollowed(f"class {cls.name} is decorated, at {cls.module.path}:{cls.node.lineno}")
    instance = Instance(cls)
    start = find_in_class(run, cls, "__init__")
    if isinstance(start, Function):
        call_function(run, start, [instance, *args], keywords)
    else:
        instance.attrs.update(keywords)
    return instance


def _instantiate_sliced(run: Run, cls: Class, args: list[object], keywords: dict[str, object]) -> object:
    instance = Instance(cls, {}, lenient=True)
    start = find_in_class(run, cls, "__init__")
    before = run.captures
    if isinstance(start, Function):
        call_function(run, start, [instance, *args], keywords)
    else:
        instance.attrs.update(keywords)
    if cls.name in GRAPH_RUNNERS and run.captures == before:
        # Its constructor captures in a way that is not seen here, at the latest at its end.
        captured(run, instance)
    return instance


def call_function(run: Run, function: Function, args: list[object], keywords: dict[str, object]) -> object:
    """Run a function of the source. One outside the slice of its file is unknown."""
    node = function.node
    only = None
    if function.module.sliced and isinstance(node, ast.FunctionDef):
        only = slice_of(run.modules.sliced_trees(), node, function.owner.name if function.owner else "")
        if not only:
            return Stub(f"{function.name}({', '.join(map(show, args[1:]))[:120]})", keywords=dict(keywords))
    if run.depth >= MAX_DEPTH:
        raise Unfollowed(f"calls nested deeper than {MAX_DEPTH}, at {run.where}")
    if isinstance(node, ast.FunctionDef):
        unknown, generator = _nature(node)
        if unknown and not function.module.sliced:
            raise Unfollowed(f"{function.name} is decorated with {unknown}")
        if generator:
            return Stub(f"{function.name}(...)")
    frame = Frame(function.module, {}, function.closure, function.owner, args[0] if args else None, only)
    bind(run, frame, function, args, keywords)
    run.depth += 1
    at, quiet = run.at, run.quiet
    if function.name == HOOK:
        run.quiet = False
    try:
        if isinstance(node, ast.Lambda):
            return evaluate(run, frame, node.body)
        execute(run, frame, node.body)
    except ReturnSignal as signal:
        return signal.value
    finally:
        run.depth -= 1
        run.quiet = quiet
    run.at = at
    return None


@lru_cache(maxsize=1024)
def _nature(node: ast.FunctionDef) -> tuple[str, bool]:
    """Decorators that may change the function's result, and whether it is a generator."""
    unknown = ", ".join(sorted(decorator_names(node) - _TRANSPARENT))
    return unknown, any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))


def bind(run: Run, frame: Frame, function: Function, args: list[object], keywords: dict[str, object]) -> None:
    """Bind arguments to parameters, with Python's errors."""
    spec = function.node.args
    names = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
    frame.names.update(zip(names, args, strict=False))
    extra = args[len(names) :]
    if spec.vararg is not None:
        frame.names[spec.vararg.arg] = tuple(extra)
    elif extra:
        raise SourceError(
            "TypeError",
            f"{function.name}() takes {len(names)} positional arguments but {len(args)} were given",
        )
    only_keyword = [parameter.arg for parameter in spec.kwonlyargs]
    rest: dict[str, object] = {}
    for key, value in keywords.items():
        if key in frame.names and key in names:
            raise SourceError("TypeError", f"{function.name}() got multiple values for argument '{key}'")
        if key in names or key in only_keyword:
            frame.names[key] = value
        elif spec.kwarg is not None:
            rest[key] = value
        else:
            raise SourceError("TypeError", f"{function.name}() got an unexpected keyword argument '{key}'")
    if spec.kwarg is not None:
        frame.names[spec.kwarg.arg] = rest
    outer = Frame(function.module, {}, function.closure)
    defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
    defaults.update(
        {key: node for key, node in zip(only_keyword, spec.kw_defaults, strict=True) if node is not None}
    )
    for key in (*names, *only_keyword):
        if key not in frame.names:
            if key not in defaults:
                raise SourceError(
                    "TypeError", f"{function.name}() missing 1 required positional argument: '{key}'"
                )
            frame.names[key] = evaluate(run, outer, defaults[key])


__all__ = ["HOOK", "NoAttribute", "call", "call_function"]
