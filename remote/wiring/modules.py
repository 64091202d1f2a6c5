"""Installed source text as modules whose names are evaluated when they are first used."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from .machine import Frame, Run, evaluate
from .values import Class, Function, SourceError, Stub, Unfollowed

MISSING = object()
# Replaced by stand-ins whatever the sources hold: see stand_ins.py.
OPAQUE_IMPORTS = frozenset(
    {"LogitsProcessor", "RMSNorm", "VocabParallelEmbedding", "make_layers", "make_pp_layers"}
)


@dataclass(frozen=True, eq=False)
class Parsed:
    """One parsed file: its tree and, by name, the nodes that bind each top-level name. `changed_at`: a line
    where the file changes one of its classes after the definition."""

    tree: ast.Module
    bindings: Mapping[str, tuple[ast.AST, ...]]
    changed_at: int | None


# A parsed file takes megabytes: as many as one version needs, and some that a fix changed.
@lru_cache(maxsize=24)
def parse(text: str) -> Parsed | str:
    """The parsed text, or why it does not parse."""
    try:
        with warnings.catch_warnings():
            # An unknown escape in a string is not this engine's business, nor a line on the user's screen.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    found: dict[str, list[ast.AST]] = {}
    for name, node in _bindings(tree.body):
        found.setdefault(name, []).append(node)
    classes = {name for name, nodes in found.items() if any(isinstance(node, ast.ClassDef) for node in nodes)}
    return Parsed(
        tree, {name: tuple(nodes) for name, nodes in found.items()}, _changed_at(tree.body, classes)
    )


def _changed_at(body: list[ast.stmt], classes: set[str]) -> int | None:
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            root = target
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if root is not target and isinstance(root, ast.Name) and root.id in classes:
                return node.lineno
        called = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if called is not None and any(isinstance(arg, ast.Name) and arg.id in classes for arg in called.args):
            return node.lineno
        for block in ("body", "orelse", "finalbody"):
            inner = None if isinstance(node, ast.FunctionDef | ast.ClassDef) else getattr(node, block, None)
            found = _changed_at(inner, classes) if inner else None
            if found is not None:
                return found
    return None


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        yield name.id, node if isinstance(target, ast.Name) else target
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        else:
            for field_name in ("body", "orelse", "finalbody"):
                yield from _bindings(getattr(node, field_name, []))
            for handler in getattr(node, "handlers", []):
                yield from _bindings(handler.body)


@dataclass(eq=False)
class Module:
    """One file within one run. `sliced`: only its statements about the wiring are executed."""

    path: str
    parsed: Parsed
    sliced: bool = False
    values: dict[str, object] = field(default_factory=dict)

    def lookup(self, run: Run, name: str) -> object:
        """Value of a top-level name, or MISSING."""
        if name in self.values:
            return self.values[name]
        nodes = self.parsed.bindings.get(name)
        if nodes is None:
            return Stub(name) if "*" in self.parsed.bindings else MISSING
        self.values[name] = Stub(name)
        if len(nodes) == 1:
            self.values[name] = self._bind(run, name, nodes[0])
        return self.values[name]

    def _bind(self, run: Run, name: str, node: ast.AST) -> object:
        if isinstance(node, ast.ClassDef):
            return Class(name, node, self)
        if isinstance(node, ast.FunctionDef):
            return Function(name, node, self, None, None)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return run.modules.imported(run, node, name)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is None:
            return Stub(name)
        lasting, run.lasting = run.lasting, True
        try:
            return evaluate(run, Frame(self), value)
        except (SourceError, Unfollowed):
            return Stub(name)
        finally:
            run.lasting = lasting


class Modules:
    """The sources of one run."""

    def __init__(self, sources: Mapping[str, str], sliced: frozenset[str] = frozenset()) -> None:
        self._sources = sources
        self._sliced = sliced
        self._loaded: dict[str, Module] = {}

    def paths(self) -> tuple[str, ...]:
        """The paths of the sources."""
        return tuple(self._sources)

    def sliced_trees(self) -> tuple[Parsed, ...]:
        """The parsed files of which only slices are executed."""
        found = [self.get(path) for path in sorted(self._sliced) if path in self._sources]
        return tuple(module.parsed for module in found if module is not None)

    def get(self, path: str) -> Module | None:
        """The module at `path`, None when it was not given. Unfollowed when it does not parse."""
        if path not in self._loaded:
            text = self._sources.get(path)
            if text is None:
                return None
            parsed = parse(text)
            if isinstance(parsed, str):
                raise Unfollowed(f"{path} does not parse: {parsed}")
            if parsed.changed_at is not None:
                raise Unfollowed(f"{path}:{parsed.changed_at} changes a class after its definition")
            self._loaded[path] = Module(path, parsed, path in self._sliced)
        return self._loaded[path]

    def imported(self, run: Run, node: ast.Import | ast.ImportFrom, name: str) -> object:
        """What an import statement binds to `name`."""
        alias = next(a for a in node.names if (a.asname or a.name.partition(".")[0]) == name)
        if isinstance(node, ast.Import):
            return Stub(alias.name if alias.asname else name)
        dotted = node.module or ""
        base = dotted.replace(".", "/")
        if not dotted.startswith("sglang") or node.level:
            return Stub(f"{dotted}.{alias.name}" if dotted.startswith("torch") else alias.name)
        if alias.name not in OPAQUE_IMPORTS:
            for path in (f"{base}.py", f"{base}/__init__.py"):
                module = self.get(path)
                value = MISSING if module is None else module.lookup(run, alias.name)
                if value is not MISSING:
                    return value
        return Stub(alias.name)
