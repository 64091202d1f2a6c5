"""Where in a syntax tree an edit belongs: scopes, runs of statements, and what would undo an edit."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from . import trees

Kind = Literal["after", "before", "replace", "start", "end"]
State = Literal["done", "todo", "misfit"]


@dataclass(frozen=True)
class Edit:
    """One edit. `scope` is a path like `Class.method` ("" is the module), `anchor` and `new` are code.

    `after`, `before`: put `new` beside the anchor. `replace`: put it in the anchor's place. `start`,
    `end`: put it at the start (after the docstring) or end of the scope's body, without an anchor.
    `elsewhere`: statements equal to those of `new` may stand in other functions of the file.
    """

    id: str
    scope: str
    kind: Kind
    anchor: str
    new: str
    elsewhere: bool = False

    @cached_property
    def anchor_statements(self) -> list[ast.stmt]:
        return trees.parse_snippet(self.anchor)

    @cached_property
    def new_statements(self) -> list[ast.stmt]:
        return trees.parse_snippet(self.new)


@dataclass(frozen=True)
class EditState:
    """What an edit found. `found` says it in words, `line` is 1-based in the file, if there is one."""

    id: str
    state: State
    found: str
    line: int | None
    diff: str = ""


@dataclass(frozen=True)
class Run:
    """Consecutive statements `start` up to but not including `end` of a block."""

    block: list[ast.stmt]
    start: int
    end: int

    @property
    def statements(self) -> list[ast.stmt]:
        return self.block[self.start : self.end]

    @property
    def line(self) -> int:
        return trees.first_line(self.block[self.start])

    @property
    def last_line(self) -> int:
        return trees.last_line(self.block[self.end - 1])

    def holds(self, other: Run) -> bool:
        return self.line <= other.line and other.last_line <= self.last_line


@dataclass(frozen=True)
class Found:
    """The anchor (for a border: the whole body) and the new code, as far as they are there."""

    anchor: Run | None
    new: Run | None


class Misfit(Exception):
    """The edit fits neither as done nor as to do. `line` is 1-based, where that shows."""

    def __init__(self, found: str, line: int | None = None) -> None:
        super().__init__(found)
        self.found = found
        self.line = line

    @classmethod
    def nothing_like(cls, scope: trees.Scope, wanted: Sequence[ast.stmt], name: str) -> Misfit:
        """The anchor is not there: name the statement of the scope that resembles it most."""
        text = ast.unparse(wanted[0])
        near: ast.stmt | None = None
        best = 0.6
        for block in trees.blocks(scope, into_scopes=False):
            for statement in block:
                if type(statement) is type(wanted[0]):
                    ratio = difflib.SequenceMatcher(None, text, ast.unparse(statement)).ratio()
                    near, best = (statement, ratio) if ratio > best else (near, best)
        place = name or "the module"
        if near is None:
            return cls(f"the anchor does not occur in {place}: {short(text)}", getattr(scope, "lineno", None))
        return cls(
            f"the anchor does not occur in {place}; nearest, line {near.lineno}: {short(ast.unparse(near))}",
            near.lineno,
        )

    def diff(self, source: trees.Source, edit: Edit) -> str:
        """The file's lines around the place against what the edit would have there."""
        if self.line is None:
            return ""
        size = len(edit.anchor.splitlines()) or 1
        first = max(0, self.line - 1)
        there = [line.rstrip("\r\n") for line in source.lines[first : first + size]]
        indent = there[0][: len(there[0]) - len(there[0].lstrip())] if there else ""
        parts = {
            "after": [edit.anchor, edit.new],
            "before": [edit.new, edit.anchor],
        }.get(edit.kind, [edit.new])
        wanted = [indent + line for part in parts for line in part.rstrip("\n").split("\n")]
        lines = difflib.unified_diff(
            there, wanted, f"line {self.line} of the file", f"what edit {edit.id} would have", lineterm=""
        )
        return "\n".join(lines)


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."


def alike(a: str, b: str) -> bool:
    """Whether two pieces of code are so similar that one looks like a variant of the other."""
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return matcher.real_quick_ratio() > 0.85 and matcher.quick_ratio() > 0.85 and matcher.ratio() > 0.85


def find_scope(tree: ast.Module, path: str) -> trees.Scope:
    """The class or function that `path` names, bound exactly once on every level. Raises Misfit."""
    scope: trees.Scope = tree
    where = ""
    for name in path.split(".") if path else []:
        found = trees.bindings(scope, name)
        inside = f" in {where}" if where else ""
        if not found:
            raise Misfit(f"there is no {name}{inside}", getattr(scope, "lineno", None))
        if len(found) > 1:
            lines = ", ".join(str(statement.lineno) for statement in found)
            raise Misfit(
                f"{name}{inside} is defined {len(found)} times, on lines {lines}: the last one wins",
                found[1].lineno,
            )
        only = found[0]
        if not isinstance(only, ast.ClassDef | trees.Function):
            raise Misfit(f"{name}{inside} is no class or function", only.lineno)
        scope, where = only, f"{where}.{name}" if where else name
    _not_replaced(tree, path)
    return scope


def _not_replaced(tree: ast.Module, path: str) -> None:
    """Refuse if the module assigns to `Class.method` after defining it."""
    if "." not in path:
        return
    for block in trees.blocks(tree, into_scopes=False):
        for statement in block:
            for target in trees.targets_of(statement):
                if isinstance(target, ast.Attribute) and ast.unparse(target) == path:
                    raise Misfit(f"line {statement.lineno} replaces {path}", statement.lineno)


def runs(scope: trees.Scope, wanted: Sequence[ast.stmt]) -> list[Run]:
    """Every place in `scope` (not in nested functions or classes) where the statements `wanted` stand."""
    size = len(wanted)
    found = []
    for block in trees.blocks(scope, into_scopes=False):
        for start in range(len(block) - size + 1):
            if trees.same(block[start : start + size], list(wanted)):
                found.append(Run(block, start, start + size))
    return sorted(found, key=lambda run: run.line)


def _way_to(scope: ast.AST, block: list[ast.stmt]) -> list[tuple[list[ast.stmt], int]] | None:
    """The blocks from `scope` down to `block`, each with the index of the statement that leads on."""
    for outer in trees.inner_blocks(scope):
        if outer is block:
            return []
        for index, statement in enumerate(outer):
            if isinstance(statement, ast.ClassDef | trees.Function):
                continue
            below = _way_to(statement, block)
            if below is not None:
                return [(outer, index), *below]
    return None


def unreachable_after(scope: trees.Scope, place: Run) -> int | None:
    """The line of a `return` or the like that comes before `place` in its block or around it."""
    way = [*(_way_to(scope, place.block) or []), (place.block, place.start)]
    for block, index in way:
        for statement in block[:index]:
            if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
                return statement.lineno
    return None


def override_of(scope: trees.Scope, new: Run) -> tuple[str, int] | None:
    """The first later statement on the same path that assigns again what `new` assigns."""
    targets = [t for statement in new.statements for t in trees.targets_of(statement)]
    if not targets:
        return None
    later = new.block[new.end :]
    for block, index in _way_to(scope, new.block) or []:
        later = [*later, *block[index + 1 :]]
    for outer in later:
        inside = [s for block in trees.blocks(outer, into_scopes=False) for s in block]
        for statement in [outer, *inside]:
            for target in trees.targets_of(statement):
                if any(ast.unparse(target) == ast.unparse(own) for own in targets):
                    return ast.unparse(target), statement.lineno
    return None
