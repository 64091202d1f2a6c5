"""The values that the interpreter of installed source computes with.

Concrete Python values (int, str, list, dict, ...) stand for themselves. Everything else is one of the
classes here: a `Stub` for what is not known, a `Tensor` for a state whose origin is tracked, and the
interpreter's own functions, classes and instances. Nothing here gives interpreted code a way to a real
Python object.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import Frame, Run
    from .modules import Module

# The feature size of every tracked state: one, so that a packed buffer's columns are its states.
FEATURES = 1
TOKENS = 5


class Unfollowed(Exception):
    """The source does something that this engine does not follow: the answer is `unknown`."""


class SourceError(Exception):
    """An exception that the interpreted code raises, as on the node."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class NothingCaptured(SourceError):
    """The model's forward returned one tensor where a tensor and captured states are unpacked."""


@dataclass(eq=False)
class Stub:
    """Something unknown, named by the expression that gave it; `keywords` are those of the call behind it."""

    path: str
    attrs: dict[str, object] = field(default_factory=dict)
    keywords: dict[str, object] = field(default_factory=dict)


@dataclass(eq=False)
class Tensor:
    """A state of the target model. `label`: `embed`, `in:3` (input of layer 3), `hidden:3` and `residual:3`
    (its two summands), `other:...` for anything that is neither. `shared`: later layers write into the same
    memory (the fused add and norm of layers/layernorm.py works in place), so that only a copy keeps it."""

    label: str
    shared: bool = False
    attrs: dict[str, object] = field(default_factory=dict)


@dataclass(eq=False)
class Buffer:
    """A packed tensor `[tokens, states]`; `cells`: labels of its columns, None where nothing was written."""

    cells: list[str | None]


@dataclass(eq=False)
class View:
    """Columns `start` to `stop` of a buffer."""

    buffer: Buffer
    start: int
    stop: int


@dataclass(eq=False)
class Layers:
    """The target's decoder layers, or a slice of them, by index, and their class."""

    indices: range
    cls: Class | None


@dataclass(eq=False)
class Layer:
    """One decoder layer."""

    index: int
    cls: Class | None


@dataclass(eq=False)
class Native:
    """A stand-in that the engine gives in place of something of SGLang, PyTorch or Python."""

    name: str
    call: Callable[[Run, list[object], dict[str, object]], object]


@dataclass(eq=False)
class Function:
    """A function or lambda of the installed source."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    module: Module
    closure: Frame | None
    owner: Class | None


@dataclass(eq=False)
class Bound:
    """A function with its first argument."""

    function: Function
    receiver: object


@dataclass(eq=False)
class Class:
    """A class of the installed source; `attrs` are its evaluated class attributes."""

    name: str
    node: ast.ClassDef
    module: Module
    attrs: dict[str, object] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Instance:
    """An instance. A lenient one was not built by its `__init__`: attributes that it lacks are unknown.
    `fixed` attributes keep their value whatever is assigned."""

    cls: Class
    attrs: dict[str, object] = field(default_factory=dict)
    lenient: bool = False
    fixed: frozenset[str] = frozenset()


@dataclass(eq=False)
class Super:
    """`super()` inside a method of `cls`."""

    cls: Class
    receiver: object


@dataclass(eq=False)
class ExceptionType:
    """A built-in exception class, by name."""

    name: str


@dataclass(eq=False)
class ExceptionValue:
    """An exception instance."""

    kind: str
    message: str


SYMBOLIC = (
    Stub, Tensor, Buffer, View, Layers, Layer, Native, Function, Bound, Class, Instance, Super,
    ExceptionType, ExceptionValue,
)  # fmt: skip


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


def is_opaque(value: object) -> bool:
    """True when `value`, or one of its direct elements, is unknown."""
    if isinstance(value, Stub):
        return True
    if isinstance(value, list | tuple | set | frozenset):
        return any(isinstance(item, Stub) for item in value)
    return False


def holds_state(value: object) -> bool:
    """True when `value` is a collection that states are, or can be, captured into."""
    if isinstance(value, list):
        return any(isinstance(item, Tensor) for item in value)
    if isinstance(value, Instance):
        return any(isinstance(item, Buffer) for item in value.attrs.values())
    return isinstance(value, Buffer)


def show(value: object, depth: int = 4) -> str:
    """A short, stable text of `value`, for the names of unknowns and for messages."""
    named: dict[type, Callable[[object], str]] = {
        Stub: lambda v: v.path if isinstance(v, Stub) else "",
        Tensor: lambda v: f"<{v.label}>" if isinstance(v, Tensor) else "",
        Instance: lambda v: v.cls.name if isinstance(v, Instance) else "",
        Class: lambda v: v.name if isinstance(v, Class) else "",
        Function: lambda v: v.name if isinstance(v, Function) else "",
        ExceptionValue: lambda v: v.message if isinstance(v, ExceptionValue) else "",
    }
    if isinstance(value, list | tuple):
        inner = ", ".join(show_item(item, depth - 1) for item in value[:8]) if depth else "..."
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, str):
        return value[:200]
    if type(value) in named:
        return named[type(value)](value)
    if isinstance(value, int | float | None):
        return str(value)
    return f"<{type(value).__name__.lower()}>"


def show_item(value: object, depth: int) -> str:
    """`show`, with quotes around a string: an element of a shown collection."""
    return repr(value[:200]) if isinstance(value, str) else show(value, depth)
