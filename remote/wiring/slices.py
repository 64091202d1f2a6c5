"""Which statements of the model executor are about the wiring.

ModelRunner's start-up is thousands of statements about memory, kernels and ranks. Executed are those that
mention the capture of auxiliary states, call something that does, construct the graph runner, return, or
assign a local name that such a statement uses; the rest is skipped and what it would have set is unknown.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import lru_cache

from .modules import Parsed
from .values import words as word_set

_SEED = re.compile(
    r"layers_to_capture|eagle_(aux|use_aux|config)|eagle3_|spec_aux|aux_hidden_state|capture_embedding"
    r"|^(Decode)?CudaGraphRunner$"
)
_TOO_GENERAL = word_set("forward capture replay run get update load create start load_model")
_EVERYWHERE = frozenset(("self", "model", "model_runner", *dir(builtins)))
_HOOK = "set_eagle3_layers_to_capture"
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.keyword) and part.arg:
            yield part.arg
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) < 60:
            yield part.value


@lru_cache(maxsize=4)
def seeds(trees: tuple[Parsed, ...]) -> frozenset[str]:
    """Names about the wiring: those of the hook's arguments, and those that look like it."""
    found: set[str] = set()
    for parsed in trees:
        for node in ast.walk(parsed.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == _HOOK
            ):
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    found.update(word for word in _words(argument) if word not in _EVERYWHERE)
    return frozenset(found)


@lru_cache(maxsize=4)
def relevant_functions(trees: tuple[Parsed, ...]) -> frozenset[str]:
    """Names of the functions that mention the wiring or call one that does."""
    wanted = seeds(trees)
    direct: set[str] = set()
    callers: dict[str, set[str]] = {}
    for parsed in trees:
        for node in ast.walk(parsed.tree):
            if not isinstance(node, _FunctionNode):
                continue
            if any(word in wanted or _SEED.search(word) for word in _words(node)):
                direct.add(node.name)
            for called in _called(node):
                callers.setdefault(called, set()).add(node.name)
    reached: set[str] = set()
    pending = [name for name in direct if _is_specific(name)]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(caller for caller in callers.get(name, ()) if _is_specific(caller))
    return frozenset(reached)


def _called(function: ast.AST) -> Iterator[str]:
    """Names, and attributes of plain names (`self.x`): those of parts (`self.x.y`) are others' methods."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.attr


def _is_specific(name: str) -> bool:
    return not name.startswith("__") and name not in _TOO_GENERAL


@lru_cache(maxsize=256)
def slice_of(trees: tuple[Parsed, ...], function: ast.FunctionDef, owner: str) -> frozenset[int]:
    """The `id`s of the statements of `function` to execute, none when it is not about the wiring."""
    words = seeds(trees) | relevant_functions(trees)
    if owner.endswith("CudaGraphRunner") and function.name == "__init__":
        words |= {"capture"}
    chosen: set[int] = set()
    _choose(function.body, words, chosen)
    if not chosen:
        return frozenset()
    _choose(function.body, words | _names_set(function, chosen), chosen)
    _add_returns(function.body, chosen)
    _add_sources(function, chosen, _used_by_calls(trees, owner) if function.name == "__init__" else set())
    return frozenset(chosen)


def _used_by_calls(trees: tuple[Parsed, ...], owner: str) -> set[str]:
    """Attributes of `self` in the class's statements that call the hook."""
    return {
        name
        for parsed in trees
        for cls in parsed.bindings.get(owner, ())
        for statement in ast.walk(cls)
        if isinstance(statement, ast.Expr | ast.Assign) and calls_hook(statement)
        for name in _place_names(statement, ast.Load)
        if name.startswith("self.")
    }


@lru_cache(maxsize=256)
def calls_hook(node: ast.AST) -> bool:
    """Whether a function or a statement itself calls the hook."""
    return any(isinstance(part, ast.Attribute) and part.attr == _HOOK for part in ast.walk(node))


def _used(function: ast.FunctionDef, chosen: set[int] | frozenset[int]) -> set[str]:
    return {
        name
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and statement is not function and id(statement) in chosen
        for part in _own_expressions(statement)
        for name in _place_names(part, ast.Load)
    }


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block:
            yield block
    for handler in getattr(statement, "handlers", []):
        yield handler.body


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield from statement.body
    elif any(True for _ in _blocks(statement)):
        for name in ("test", "iter", "items"):
            part = getattr(statement, name, None)
            if isinstance(part, list):
                yield from part
            elif part is not None:
                yield part
    else:
        yield statement


def _mentions(statement: ast.stmt, words: frozenset[str]) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return False
    return any(
        word in words or _SEED.search(word) for part in _own_expressions(statement) for word in _words(part)
    )


def _choose(body: list[ast.stmt], words: frozenset[str], chosen: set[int]) -> bool:
    any_chosen = False
    for statement in body:
        inner = (
            []
            if isinstance(statement, ast.FunctionDef)
            else [_choose(b, words, chosen) for b in _blocks(statement)]
        )
        if any(inner) or _mentions(statement, words):
            chosen.add(id(statement))
            chosen.update(
                id(inside) for inside in getattr(statement, "body", []) if isinstance(inside, ast.Raise)
            )
            any_chosen = True
    return any_chosen


def _add_returns(body: list[ast.stmt], chosen: set[int]) -> bool:
    """Add `return`, the conditions that guard one, and `break` and `continue` of chosen loops."""
    found = False
    for statement in body:
        if isinstance(statement, ast.Return):
            chosen.add(id(statement))
            found = True
        elif isinstance(statement, ast.Break | ast.Continue):
            chosen.add(id(statement))
        elif isinstance(statement, ast.If | ast.Try | ast.With) or id(statement) in chosen:
            if isinstance(statement, ast.FunctionDef):
                continue
            inner = [_add_returns(block, chosen) for block in _blocks(statement)]
            if any(inner):
                chosen.add(id(statement))
                found = True
    return found


def _names_set(function: ast.FunctionDef, chosen: set[int]) -> frozenset[str]:
    """Local names that chosen statements assign: what uses them is about the wiring too."""
    return frozenset(
        name
        for statement in ast.walk(function)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and id(statement) in chosen
        for name in _assigned(statement)
        if "." not in name
    )


def _add_sources(function: ast.FunctionDef, chosen: set[int], others: set[str]) -> None:
    """Add what assigns the local names and attributes of `self` that chosen statements, or `others`, use."""
    while True:
        before = len(chosen)
        _add_assignments(function.body, _used(function, chosen) | others, chosen)
        if len(chosen) == before:
            return


def _place_names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, context):
            yield part.id
        elif (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, context)
            and isinstance(part.value, ast.Name)
        ):
            yield f"{part.value.id}.{part.attr}"


def _add_assignments(body: list[ast.stmt], used: set[str], chosen: set[int]) -> bool:
    found = False
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            hit = statement.name in used
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Import | ast.ImportFrom):
            hit = bool(_assigned(statement) & used)
        else:
            inside = [_add_assignments(block, used, chosen) for block in _blocks(statement)]
            hit = any(inside)
        if hit:
            chosen.add(id(statement))
            found = True
    return found


def _assigned(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    return set(_place_names(statement, ast.Store))
