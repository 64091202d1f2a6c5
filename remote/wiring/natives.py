"""Python's built-in functions, as far as interpreted code may use them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator

from .attributes import NoAttribute, get_attribute, sorted_values
from .machine import MAX_SIZE, Run, affordable, bounded, iterate, lazy, truth, type_name
from .values import (
    SYMBOLIC,
    Bound,
    Buffer,
    Class,
    ExceptionType,
    Function,
    Instance,
    Layers,
    Native,
    SourceError,
    Stub,
    Super,
    Tensor,
    Unfollowed,
    is_opaque,
    show,
)

_TYPES: dict[str, type] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple, "dict": dict,
    "set": set, "frozenset": frozenset, "range": range,
}  # fmt: skip


def _items(run: Run, args: list[object]) -> list[object]:
    return list(iterate(run, args[0])) if args else []


def _collection(
    kind: Callable[[list[object]], object],
) -> Callable[[Run, list[object], dict[str, object]], object]:
    def make(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
        if args and isinstance(args[0], Stub):
            return Stub(f"{getattr(kind, '__name__', 'list')}({args[0].path})")
        items = _items(run, args)
        if kind is not list and kind is not tuple:
            affordable(run, items)
        try:
            return bounded(run, kind(items))
        except TypeError as error:
            raise SourceError("TypeError", str(error)) from None

    return make


def _dict(run: Run, args: list[object], keywords: dict[str, object]) -> object:
    if args and isinstance(args[0], Stub):
        return Stub(f"dict({args[0].path})")
    if args and isinstance(args[0], dict):
        return {**args[0], **keywords}
    pairs = [tuple(iterate(run, item)) for item in _items(run, args)]
    affordable(run, [pair[:1] for pair in pairs])
    made: dict[object, object] = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    made.update(keywords)
    return made


def _number(kind: type[int] | type[float]) -> Callable[[Run, list[object], dict[str, object]], object]:
    def make(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
        value = args[0] if args else 0
        if isinstance(value, SYMBOLIC):
            return Stub(f"{kind.__name__}({show(value)})")
        try:
            return kind(value)  # type: ignore[arg-type,call-overload]
        except (TypeError, ValueError) as error:
            raise SourceError(type(error).__name__, str(error)) from None

    return make


def _len(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    value = args[0] if args else None
    if isinstance(value, Layers):
        return len(value.indices)
    if isinstance(value, Instance):
        from .calls import call

        return call(_run, get_attribute(_run, value, "__len__"), [], {})
    if isinstance(value, SYMBOLIC):
        return Stub(f"len({show(value)})")
    if not isinstance(value, str | list | tuple | dict | set | frozenset | range):
        raise SourceError("TypeError", f"object of type '{type_name(value)}' has no len()")
    return len(value)


def _range(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    if any(isinstance(arg, Stub) for arg in args):
        return Stub(f"range({', '.join(map(show, args))})")
    try:
        made = range(*args)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise SourceError(type(error).__name__, str(error)) from None
    if len(made) > MAX_SIZE:
        raise Unfollowed(f"a range of more than {MAX_SIZE}, at {run.where}")
    return made


def _getattr(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    if len(args) < 2 or not isinstance(args[1], str):
        return Stub(f"getattr({', '.join(map(show, args))})")
    try:
        return get_attribute(run, args[0], args[1])
    except SourceError as error:
        if error.kind == "AttributeError" and len(args) > 2:
            return args[2]
        raise


def _hasattr(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    value, attribute = (*args, None, None)[:2]
    if not isinstance(attribute, str):
        return Stub("hasattr(...)")
    if isinstance(value, Stub):
        return True if attribute in value.attrs else Stub(f"hasattr({value.path}, {attribute})")
    try:
        found = get_attribute(run, value, attribute)
    except SourceError as error:
        if error.kind == "AttributeError":
            return False
        raise
    unknown = (
        isinstance(value, Instance)
        and isinstance(found, Stub)
        and found.path == f"{value.cls.name}.{attribute}"
    )
    return Stub(f"hasattr({show(value)}, {attribute})") if unknown else True


def _setattr(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    from .statements import set_attribute

    if len(args) == 3 and isinstance(args[1], str):
        set_attribute(args[0], args[1], args[2])
        return None
    raise Unfollowed(f"setattr of an unknown name, at {run.where}")


def _isinstance(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    value, kind = (*args, None, None)[:2]
    if isinstance(kind, tuple):
        answers = [_isinstance(_run, [value, item], {}) for item in kind]
        if any(answer is True for answer in answers):
            return True
        return (
            False if all(answer is False for answer in answers) else Stub(f"isinstance({show(value)}, ...)")
        )
    if isinstance(kind, Native) and kind.name in _TYPES and not isinstance(value, Stub):
        return isinstance(value, _TYPES[kind.name]) and not isinstance(value, SYMBOLIC)
    if isinstance(kind, Class) and isinstance(value, Instance):
        from .attributes import resolution_order

        return any(candidate.node is kind.node for candidate in resolution_order(_run, value.cls))
    if isinstance(kind, Stub) and kind.path == "torch.Tensor" and not isinstance(value, Stub):
        return isinstance(value, Tensor | Buffer)
    if isinstance(value, int | float | str | list | tuple | dict | type(None)):
        return False
    return Stub(f"isinstance({show(value)}, {show(kind)})")


def _any_all(stop_at: bool) -> Callable[[Run, list[object], dict[str, object]], object]:
    def check(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
        if args and isinstance(args[0], Stub):
            return Stub(f"{'any' if stop_at else 'all'}({args[0].path})")
        for item in _items(run, args):
            if truth(run, item) is stop_at:
                return stop_at
        return not stop_at

    return check


def _fold(name: str, fold: Callable[..., object]) -> Callable[[Run, list[object], dict[str, object]], object]:
    def run_fold(run: Run, args: list[object], keywords: dict[str, object]) -> object:
        values = list(args) if len(args) > 1 and name != "sum" else _items(run, args)
        if keywords or is_opaque(values) or any(isinstance(value, SYMBOLIC) for value in (*args, *values)):
            return Stub(f"{name}({', '.join(map(show, args))})")
        affordable(run, values)
        try:
            return bounded(run, fold(values))
        except (TypeError, ValueError) as error:
            raise SourceError(type(error).__name__, str(error)) from None

    return run_fold


def _abs(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    value = args[0] if args else None
    if isinstance(value, int | float):
        return abs(value)
    if isinstance(value, SYMBOLIC):
        return Stub(f"abs({show(value)})")
    raise SourceError("TypeError", f"bad operand type for abs(): '{type_name(value)}'")


def _enumerate(run: Run, args: list[object], keywords: dict[str, object]) -> object:
    start = keywords.get("start", args[1] if len(args) > 1 else 0)
    first = start if isinstance(start, int) else 0

    def pairs() -> Iterator[object]:
        for offset, item in enumerate(iterate(run, args[0] if args else [])):
            yield first + offset, item

    return Stub(f"enumerate({args[0].path})") if args and isinstance(args[0], Stub) else lazy(pairs())


def _zip(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    if any(isinstance(arg, Stub) for arg in args):
        return Stub(f"zip({', '.join(map(show, args))})")
    return lazy(zip(*(list(iterate(run, arg)) for arg in args), strict=False))


def _sorted(run: Run, args: list[object], keywords: dict[str, object]) -> object:
    return (
        Stub(f"sorted({args[0].path})")
        if is_opaque(args[0]) and isinstance(args[0], Stub)
        else sorted_values(run, _items(run, args), keywords)
    )


def _reversed(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    return (
        Stub(f"reversed({args[0].path})")
        if isinstance(args[0], Stub)
        else lazy(iter(_items(run, args)[::-1]))
    )


def _map(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    from .calls import call

    return [call(run, args[0], [item], {}) for item in _items(run, args[1:])]


def _filter(run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    from .calls import call

    keep = args[0]
    return [
        item
        for item in _items(run, args[1:])
        if truth(run, item if keep is None else call(run, keep, [item], {}))
    ]


def _super(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    cls, receiver = (*args, None, None)[:2]
    if not isinstance(cls, Class):
        return Stub("super()")
    return Super(cls, receiver)


def _str(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    return (
        Stub(f"str({args[0].path})") if args and isinstance(args[0], Stub) else show(args[0]) if args else ""
    )


def _callable(_run: Run, args: list[object], _keywords: dict[str, object]) -> object:
    return (
        Stub("callable")
        if isinstance(args[0], Stub)
        else isinstance(args[0], Native | Function | Bound | Class)
    )


_FUNCTIONS: dict[str, Callable[[Run, list[object], dict[str, object]], object]] = {
    "list": _collection(list),
    "tuple": _collection(tuple),
    "set": _collection(set),
    "frozenset": _collection(frozenset),
    "dict": _dict,
    "int": _number(int),
    "float": _number(float),
    "bool": lambda run, args, _keywords: (
        args[0] if args and isinstance(args[0], Stub) else truth(run, *args[:1])
    ),
    "str": _str,
    "repr": _str,
    "len": _len,
    "range": _range,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "isinstance": _isinstance,
    "any": _any_all(True),
    "all": _any_all(False),
    "sum": _fold("sum", sum),
    "min": _fold("min", min),
    "max": _fold("max", max),
    "abs": _abs,
    "enumerate": _enumerate,
    "zip": _zip,
    "sorted": _sorted,
    "reversed": _reversed,
    "map": _map,
    "filter": _filter,
    "super": _super,
    "callable": _callable,
    "print": lambda _run, _args, _keywords: None,
}
EXCEPTIONS: dict[str, type[BaseException]] = {
    key: value
    for key, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
BUILTINS: dict[str, object] = {
    **{key: Stub(key) for key in dir(builtins) if not key.startswith("_")},
    **{key: ExceptionType(key) for key in EXCEPTIONS},
    **{key: Native(key, function) for key, function in _FUNCTIONS.items()},
}

__all__ = ["BUILTINS", "EXCEPTIONS", "NoAttribute"]
