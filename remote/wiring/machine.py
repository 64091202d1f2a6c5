"""The core of the small interpreter: one run's state and limits, frames, truth, dispatch.

Why an interpreter and not `exec`: the text comes from the node, and nothing that is installed there may run
on the engineer's machine. Here nothing real can be reached: names resolve to the given sources and to
stand-ins, attributes to the interpreter's own values and to a list of harmless methods.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .facts import fact
from .values import Buffer, Layers, SourceError, Stub, Tensor, Unfollowed, View, show

if TYPE_CHECKING:
    from .modules import Module, Modules
    from .values import Class

MAX_STEPS = 100_000
MAX_DEPTH = 30
MAX_SIZE = 20_000
MAX_BITS = 256


@dataclass
class Run:
    """State of one interpretation. `flips`: predicates taken as true against the default of false. `decided`:
    those that a forward asked for, or (`lasting`) a module's own top level, whose values live on. `handed`:
    what the target `model` was given to without being followed. `vague`: why the layers set now are
    unknown. `settings`: facts of this server beside those of facts.py."""

    modules: Modules
    flips: frozenset[str] = frozenset()
    settings: Mapping[str, bool] = field(default_factory=dict)
    mode: str = "eager"
    log: Callable[[str, str], None] | None = None
    overrides: dict[str, Callable[[Run, list[object], dict[str, object]], object]] = field(
        default_factory=dict
    )
    undecided: dict[str, str] = field(default_factory=dict)
    suspicions: list[str] = field(default_factory=list)
    reached: list[object] = field(default_factory=list)
    hook_site: str | None = None
    model: object = None
    handed: str | None = None
    vague: str | None = None
    at: tuple[str, int] = ("", 0)
    layer: int = 0
    captures: int = 0
    quiet: bool = False
    lasting: bool = False
    decided: set[str] = field(default_factory=set)
    steps: int = 0
    depth: int = 0

    @property
    def where(self) -> str:
        """`path:line` of the statement or call that is executed."""
        return f"{self.at[0]}:{self.at[1]}"

    def step(self, count: int = 1) -> None:
        """Count work; the bound is what makes endless loops impossible."""
        self.steps += count
        if self.steps > MAX_STEPS:
            raise Unfollowed(f"more than {MAX_STEPS} steps, at {self.where}")


@dataclass(eq=False)
class Frame:
    """Names of one call. `only`: when set, just these statements (by `id`) of the function are executed."""

    module: Module
    names: dict[str, object] = field(default_factory=dict)
    parent: Frame | None = None
    owner: Class | None = None
    receiver: object = None
    only: frozenset[int] | None = None
    globals: set[str] = field(default_factory=set)


class ReturnSignal(Exception):
    """`return`."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class BreakSignal(Exception):
    """`break`."""


class ContinueSignal(Exception):
    """`continue`."""


EXPRESSIONS: dict[type[ast.AST], Callable[[Run, Frame, Any], object]] = {}
STATEMENTS: dict[type[ast.AST], Callable[[Run, Frame, Any], None]] = {}


def site(frame: Frame, node: ast.AST) -> str:
    """`path:line` of `node`."""
    return f"{frame.module.path}:{getattr(node, 'lineno', 0)}"


def evaluate(run: Run, frame: Frame, node: ast.expr) -> object:
    """The value of an expression."""
    handler = EXPRESSIONS.get(type(node))
    if handler is None:
        raise Unfollowed(f"{type(node).__name__} is not followed, at {site(frame, node)}")
    run.steps += 1
    return handler(run, frame, node)


def execute(run: Run, frame: Frame, body: Iterable[ast.stmt]) -> None:
    """Run statements in order."""
    only = frame.only
    for statement in body:
        if only is not None and id(statement) not in only:
            continue
        run.step()
        run.at = (frame.module.path, statement.lineno)
        handler = STATEMENTS.get(type(statement))
        if handler is None:
            raise Unfollowed(f"{type(statement).__name__} is not followed, at {run.where}")
        handler(run, frame, statement)


def decide(run: Run, text: str) -> bool:
    """Truth of an unknown: a fact of the standard configuration, else a default that is tried both ways."""
    inverted = False
    while text.startswith("not "):
        text, inverted = text[4:], not inverted
    known = run.settings.get(text, fact(text, run.mode))
    if known is None:
        run.undecided.setdefault(text, run.where)
        if run.lasting:
            run.decided.add(text)
        known = text in run.flips
    return bool(known) != inverted


def truth(run: Run, value: object) -> bool:
    """`bool(value)`."""
    if isinstance(value, Stub):
        return decide(run, value.path)
    if isinstance(value, Tensor | Buffer | View):
        return decide(run, f"bool({show(value)})")
    if isinstance(value, Layers):
        return len(value.indices) > 0
    return bool(value)


def iterate(run: Run, value: object) -> Iterator[object]:
    """Elements of `value`, counted. An unknown collection has none, and as the other possibility one."""
    if isinstance(value, Stub):
        if decide(run, f"any of {value.path}"):
            yield Stub(f"{value.path}[]")
        return
    if isinstance(value, Tensor | Buffer | View):
        raise SourceError("TypeError", f"iteration over {show(value)}")
    if not isinstance(value, list | tuple | dict | set | frozenset | str | range | Layers | _Lazy):
        raise SourceError("TypeError", f"'{type_name(value)}' object is not iterable")
    if isinstance(value, Layers):
        from .values import Layer

        for index in value.indices:
            run.step()
            yield Layer(index, value.cls)
        return
    for item in value:
        run.step()
        yield item


@dataclass(eq=False)
class _Lazy:
    """An iterable of the interpreter's own making (`enumerate`, `zip`, `reversed`), consumed once."""

    items: Iterator[object]

    def __iter__(self) -> Iterator[object]:
        return self.items


def lazy(items: Iterator[object]) -> object:
    """Wrap a Python iterator that the interpreter made."""
    return _Lazy(items)


def bounded(run: Run, value: object) -> object:
    """Refuse a concrete value that grows beyond any honest use: a hostile file must not exhaust memory."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise Unfollowed(f"a number of more than {MAX_BITS} bits, at {run.where}")
    if isinstance(value, str | list | tuple | dict | set | frozenset) and len(value) > MAX_SIZE:
        raise Unfollowed(f"a value of more than {MAX_SIZE} elements, at {run.where}")
    return value


def affordable(run: Run, *values: object) -> None:
    """Refuse what Python itself would compare or hash for long: nested collections, each time counted."""
    left = MAX_SIZE
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, list | tuple | set | frozenset | dict):
            left -= len(value)
            if left < 0:
                raise Unfollowed(f"a nested value of more than {MAX_SIZE} elements, at {run.where}")
            pending.extend(value.items() if isinstance(value, dict) else value)


def type_name(value: object) -> str:
    """The name that Python's own messages would give to `value`'s type."""
    from .values import Instance

    if isinstance(value, Instance):
        return value.cls.name
    if value is None:
        return "NoneType"
    return type(value).__name__
