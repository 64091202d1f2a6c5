"""Attributes of the interpreter's values: the whole list of what interpreted code can reach."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from .facts import NOT_KNOWN, value_of
from .machine import MAX_SIZE, Frame, Run, affordable, bounded, evaluate, iterate, type_name
from .stand_ins import GRAPH_RUNNERS, INSTANCE_STAND_INS, buffer_attribute, captured, tensor_attribute
from .values import (
    Bound,
    Buffer,
    Class,
    Function,
    Instance,
    Layer,
    Layers,
    Native,
    SourceError,
    Stub,
    Super,
    Tensor,
    Unfollowed,
    View,
    is_opaque,
    show,
    words,
)

# Bases that add nothing which the wiring depends on.
_INERT = frozenset(
    {
        "torch.nn.Module",
        "object",
        "ABC",
        "msgspec.Struct",
        "Protocol",
        "Generic",
        "DeepseekV2WeightLoaderMixin",
    }
)
_MODULE_METHODS = words(
    "to cuda cpu half float bfloat16 eval train parameters named_parameters modules "
    "named_modules children buffers named_buffers state_dict load_state_dict "
    "register_buffer register_parameter apply register_forward_hook requires_grad_ _apply "
    "training add_module register_module get_submodule compile"
)
_METHODS: dict[type, frozenset[str]] = {
    list: words("append extend insert pop remove index count sort reverse copy clear"),
    dict: words("get items keys values pop setdefault update copy clear"),
    set: words("add discard remove union intersection difference update copy issubset issuperset"),
    tuple: frozenset(("index", "count")),
    str: words("lower upper strip lstrip rstrip split startswith endswith join replace"),
    int: frozenset(("bit_length",)),
}
# Attributes of the model runner whose absence is told exactly: the patch reads them with getattr.
_EXACT = ("eagle", "aux_hidden", "layers_to_capture", "capture_embedding")


class NoAttribute(SourceError):
    """The interpreted AttributeError, apart from others so that getattr and hasattr can tell it."""

    def __init__(self, value: object, name: str) -> None:
        super().__init__("AttributeError", f"'{type_name(value)}' object has no attribute '{name}'")


def get_attribute(run: Run, value: object, name: str) -> object:
    """`value.name`. NoAttribute when it certainly has none."""
    if isinstance(value, Stub):
        return _stub_attribute(run, value, name)
    if isinstance(value, Instance):
        return _instance_attribute(run, value, name)
    if isinstance(value, Tensor):
        return tensor_attribute(value, name)
    if isinstance(value, Buffer | View):
        return buffer_attribute(value, name)
    if isinstance(value, Class | Super):
        return _class_attribute(run, value, name)
    if isinstance(value, Layers | Layer | Function | Bound | Native):
        return Stub(f"{show(value)}.{name}")
    return _concrete_attribute(value, name)


def _stub_attribute(run: Run, value: Stub, name: str) -> object:
    if name not in value.attrs:
        known = value_of(f"{value.path}.{name}")
        if name in ("hf_config", "hf_text_config") and value.keywords.get("is_draft_model") is True:
            known = run.overrides["draft config"](run, [], {})
        value.attrs[name] = Stub(f"{value.path}.{name}") if known is NOT_KNOWN else known
    return value.attrs[name]


def _instance_attribute(run: Run, value: Instance, name: str) -> object:
    if name in value.attrs:
        return value.attrs[name]
    if name == "capture" and value.cls.name in GRAPH_RUNNERS:
        method = find_in_class(run, value.cls, "capture")
        return Native("capture", lambda run, _args, _keywords: captured(run, value, method))
    stand_in = INSTANCE_STAND_INS.get((value.cls.name, name)) if value.lenient else None
    if stand_in is not None:
        return stand_in(run, value)
    found = find_in_class(run, value.cls, name)
    if found is not None:
        return _bind(run, found, value)
    known = value_of(f"{value.cls.name}.{name}")
    if known is not NOT_KNOWN:
        return known
    if name in ("__class__", "__dict__"):
        return Stub(f"{value.cls.name}.{name}", {"__name__": value.cls.name})
    exact = value.lenient and value.cls.module.sliced and any(word in name for word in _EXACT)
    if name in _MODULE_METHODS or (not exact and (value.lenient or _unknown_base(run, value.cls))):
        return value.attrs.setdefault(name, Stub(f"{value.cls.name}.{name}"))
    raise NoAttribute(value, name)


def _bind(run: Run, found: object, receiver: object) -> object:
    if not isinstance(found, Function) or not isinstance(found.node, ast.FunctionDef):
        return found
    decorators = decorator_names(found.node)
    if decorators & {"property", "cached_property"}:
        from .calls import call

        return call(run, Bound(found, receiver), [], {})
    if "staticmethod" in decorators:
        return found
    if "classmethod" in decorators and isinstance(receiver, Instance):
        return Bound(found, receiver.cls)
    return Bound(found, receiver)


def decorator_names(node: ast.FunctionDef) -> set[str]:
    """The last names of the decorators, calls stripped."""
    found = set()
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        found.add(target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "?"))
    return found


def find_in_class(run: Run, cls: Class, name: str, after: Class | None = None) -> object | None:
    """`name` in the class or its bases; with `after`, only behind that class in the order of resolution."""
    order = list(resolution_order(run, cls))
    if after is not None:
        order = order[order.index(after) + 1 :] if after in order else []
    for candidate in order:
        if name not in candidate.attrs and name not in candidate.absent:
            _load_class_attribute(run, candidate, name)
        if name in candidate.attrs:
            return candidate.attrs[name]
        candidate.absent.add(name)
    return None


def _load_class_attribute(run: Run, cls: Class, name: str) -> None:
    for node in cls.node.body:
        if isinstance(node, ast.If | ast.Try | ast.For | ast.With) and any(
            isinstance(part, ast.FunctionDef) and part.name == name for part in ast.walk(node)
        ):
            raise Unfollowed(
                f"{cls.name}.{name} is defined conditionally, at {cls.module.path}:{node.lineno}"
            )
        if isinstance(node, ast.FunctionDef) and node.name == name:
            if "setter" not in decorator_names(node):
                cls.attrs[name] = Function(name, node, cls.module, None, cls)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                cls.attrs[name] = evaluate(run, Frame(cls.module), node.value)


def resolution_order(run: Run, cls: Class) -> Iterator[Class]:
    """The class and its bases that have a source, depth first."""
    run.step()
    yield cls
    for base in cls.node.bases:
        value = evaluate(run, Frame(cls.module), base)
        if isinstance(value, Class) and value is not cls:
            yield from resolution_order(run, value)


def _unknown_base(run: Run, cls: Class) -> bool:
    for candidate in resolution_order(run, cls):
        for base in candidate.node.bases:
            value = evaluate(run, Frame(candidate.module), base)
            if isinstance(value, Stub) and value.path.split("[")[0] not in _INERT:
                return True
    return False


def _class_attribute(run: Run, value: Class | Super, name: str) -> object:
    if isinstance(value, Super):
        start = value.receiver.cls if isinstance(value.receiver, Instance) else value.cls
        found = find_in_class(run, start, name, after=value.cls)
        if found is None:
            return Native(f"super().{name}", lambda _run, _args, _keywords: None)
        return _bind(run, found, value.receiver)
    if name == "__name__":
        return value.name
    found = find_in_class(run, value, name)
    if found is None:
        return Stub(f"{value.name}.{name}")
    if isinstance(found, Function) and isinstance(found.node, ast.FunctionDef):
        return Bound(found, value) if "classmethod" in decorator_names(found.node) else found
    return found


def _concrete_attribute(value: object, name: str) -> object:
    for kind, methods in _METHODS.items():
        if type(value) is kind and name in methods:
            return Native(f"{kind.__name__}.{name}", _method(value, name))
    if value is None or not hasattr(type(value), name):
        raise NoAttribute(value, name)
    return Stub(f"{show(value)}.{name}")


def _method(value: object, name: str) -> Callable[[Run, list[object], dict[str, object]], object]:
    from .operators import PYTHON_ERRORS

    def invoke(run: Run, args: list[object], keywords: dict[str, object]) -> object:
        if name == "sort" and isinstance(value, list):
            value[:] = sorted_values(run, value, keywords)
            return None
        if any(isinstance(arg, Stub) for arg in args) and name not in _STORING:
            return Stub(f"{show(value)}.{name}({', '.join(show(arg) for arg in args)})")
        if name in ("extend", "join") and args:
            args = [list(iterate(run, args[0]))]
        _affordable(run, value, name, args)
        try:
            result: object = getattr(value, name)(*args, **keywords)
        except PYTHON_ERRORS as error:
            raise SourceError(type(error).__name__, str(error)) from None
        bounded(run, value)
        if isinstance(value, dict) and name in ("items", "keys", "values"):
            return list(result)  # type: ignore[call-overload]
        return bounded(run, result)

    return invoke


_STORING = frozenset(("append", "insert", "setdefault", "update", "extend"))


def _affordable(run: Run, value: object, name: str, args: list[object]) -> None:
    if name not in ("append", "insert", "extend", "items", "keys", "values", "copy"):
        affordable(run, *args, value if name in ("index", "count", "remove") else None)
    # These two can make a huge text out of small ones.
    size = 0
    if name == "replace":
        size = len(str(value)) * (len(str(args[-1])) + 1)
    elif name == "join" and isinstance(args[0], list):
        size = sum(len(item) + len(str(value)) for item in args[0] if isinstance(item, str))
    if size > MAX_SIZE:
        raise Unfollowed(f"a text of more than {MAX_SIZE} characters, at {run.where}")


def sorted_values(run: Run, values: list[object], keywords: dict[str, object]) -> list[object]:
    """`sorted(values, key=..., reverse=...)`. Unfollowed in the form of an unknown when keys are unknown."""
    from .calls import call

    key = keywords.get("key")
    keys = [item if key is None else call(run, key, [item], {}) for item in values]
    if any(is_opaque(item) for item in keys):
        return [Stub(f"sorted({show(values)})")]
    affordable(run, keys)
    try:
        order = sorted(range(len(values)), key=lambda i: keys[i], reverse=bool(keywords.get("reverse")))  # type: ignore[arg-type,return-value]
    except TypeError as error:
        raise SourceError("TypeError", str(error)) from None
    return [values[i] for i in order]
