"""Edits of Python source, anchored to statements inside a named class and function.

An edit names its place by a statement, compared as a syntax tree, that occurs exactly once in the
scope: no line numbers, no patterns, no nearest match. `inspect` tells of each edit whether it is
done, still to do, or fits neither way (a misfit, which is never written), and gives both the file
with all edits and the file without any. Everything outside the edits is kept byte for byte.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import trees
from .places import Edit, EditState, Found, Kind, Misfit, Run, alike, find_scope, runs, short
from .splices import Located, as_done, as_todo, write
from .trees import Source, SourceProblem

__all__ = ["Edit", "EditState", "Inspection", "Kind", "inspect", "why_not_python"]


@dataclass(frozen=True)
class Inspection:
    """`new` and `bare` are None while an edit is a misfit, and `bare` if the file cannot be read."""

    edits: tuple[EditState, ...]
    new: bytes | None
    bare: bytes | None
    problem: str | None = None


def inspect(content: bytes, edits: Sequence[Edit], introduces: Sequence[str] = ()) -> Inspection:
    """Look at `content` with all `edits` of the file.

    `introduces`: names that only the edits bring in. One that stands anywhere else is somebody's own
    version of an edit, which makes it a misfit.
    """
    try:
        source = trees.read_source(content)
    except SourceProblem as problem:
        states = tuple(EditState(e.id, "misfit", problem.message, problem.line) for e in edits)
        return Inspection(states, None, None, problem.message)
    located = [_locate(source, edit) for edit in edits]
    if all(item.state.state != "misfit" for item in located):
        located = _lookalikes(_strays(located, source, edits, introduces), source, edits)
    states = tuple(item.state for item in located)
    if any(state.state == "misfit" for state in states):
        return Inspection(states, None, None)
    try:
        bare = write(source, [item.backward for item in located])
        new = write(source, [item.forward for item in located])
        problem_text = _proof(new, edits) if new != content else None
    except SourceProblem as problem:
        problem_text = problem.message
    if problem_text is not None:
        refused = tuple(
            replace(s, state="misfit", found=f"cannot be written: {problem_text}") if s.state == "todo" else s
            for s in states
        )
        return Inspection(refused, None, None, problem_text)
    return Inspection(states, new, bare)


def why_not_python(content: bytes) -> str | None:
    """Why `content` does not parse, None if it does."""
    try:
        trees.read_source(content)
    except SourceProblem as problem:
        return f"{problem.message} (line {problem.line})" if problem.line else problem.message
    return None


def _proof(new: bytes, edits: Sequence[Edit]) -> str | None:
    """The result must parse, and every edit must be found done in it."""
    source = trees.read_source(new)
    for edit in edits:
        state = _locate(source, edit).state
        if state.state != "done":
            return f"edit {edit.id} is not found done in the result: {state.found}"
    return None


def _locate(source: Source, edit: Edit) -> Located:
    try:
        scope = find_scope(source.tree, edit.scope)
        if edit.kind in ("start", "end"):
            found = _at_border(scope, edit)
        elif edit.kind == "replace":
            found = _in_place(scope, edit)
        else:
            found = _beside(scope, edit)
        _nowhere_else(source, scope, edit, found)
        return as_done(source, scope, edit, found) if found.new else as_todo(source, scope, edit, found)
    except RecursionError:
        return Located(EditState(edit.id, "misfit", "the code is nested too deeply to be compared", None))
    except Misfit as misfit:
        return Located(EditState(edit.id, "misfit", misfit.found, misfit.line, misfit.diff(source, edit)))


def _beside(scope: trees.Scope, edit: Edit) -> Found:
    news = runs(scope, edit.new_statements)
    anchors = [a for a in runs(scope, edit.anchor_statements) if not any(n.holds(a) for n in news)]
    anchor = _only(scope, edit, anchors)
    for new in news:
        if new.block is anchor.block and new.start == (
            anchor.end if edit.kind == "after" else anchor.start - len(edit.new_statements)
        ):
            return Found(anchor, new)
    return Found(anchor, None)


def _in_place(scope: trees.Scope, edit: Edit) -> Found:
    news = runs(scope, edit.new_statements)
    anchors = [a for a in runs(scope, edit.anchor_statements) if not any(n.holds(a) for n in news)]
    if news and anchors:
        raise Misfit(
            f"the new code, line {news[0].line} and what it replaces, line {anchors[0].line}: both are there",
            anchors[0].line,
        )
    if news:
        if len(news) > 1:
            raise Misfit(
                f"the new code stands there {len(news)} times, on lines {_lines(news)}", news[1].line
            )
        return Found(None, news[0])
    return Found(_only(scope, edit, anchors), None)


def _at_border(scope: trees.Scope, edit: Edit) -> Found:
    body, size = scope.body, len(edit.new_statements)
    skip = 1 if ast.get_docstring(scope, clean=False) is not None else 0
    start = skip if edit.kind == "start" else len(body) - size
    whole = Run(body, skip, len(body)) if len(body) > skip else None
    if start >= skip and trees.same(body[start : start + size], edit.new_statements):
        return Found(whole, Run(body, start, start + size))
    return Found(whole, None)


def _only(scope: trees.Scope, edit: Edit, anchors: list[Run]) -> Run:
    if len(anchors) == 1:
        return anchors[0]
    if anchors:
        raise Misfit(
            f"anchor found {len(anchors)} times in {edit.scope or 'the module'}: lines {_lines(anchors)}",
            anchors[1].line,
        )
    raise Misfit.nothing_like(scope, edit.anchor_statements, edit.scope)


def _lines(found: Sequence[Run]) -> str:
    return ", ".join(str(run.line) for run in found)


def _nowhere_else(source: Source, scope: trees.Scope, edit: Edit, found: Found) -> None:
    """Refuse if a statement of the new code also stands at another place, or a method has its name."""
    own = found.new.statements if found.new else []
    taken = found.anchor.statements if found.anchor and edit.kind not in ("start", "end") else []
    known = {id(statement) for statement in [*own, *taken]}
    parts = [part for statement in [*own, *taken] for part in trees.blocks(statement, into_scopes=True)]
    known_inside = known | {id(statement) for part in parts for statement in part}
    in_scope = (s for block in trees.blocks(scope, into_scopes=True) for s in block)
    candidates = list(in_scope) if edit.elsewhere else source.statements
    for new in edit.new_statements:
        if isinstance(new, ast.Pass | ast.Return | ast.Continue | ast.Break):
            continue
        name = getattr(new, "name", None) if isinstance(new, ast.ClassDef | trees.Function) else None
        for statement in candidates:
            if (
                type(statement) is type(new)
                and id(statement) not in known_inside
                and trees.same(statement, new)
            ):
                where = "also" if found.new else "already, at another place,"
                raise Misfit(
                    f"a statement of the new code is {where} on line {statement.lineno}", statement.lineno
                )
        for other in trees.bindings(scope, name) if name else []:
            if id(other) not in known:
                raise Misfit(f"{name} is defined there differently, on line {other.lineno}", other.lineno)


def _strays(
    located: list[Located], source: Source, edits: Sequence[Edit], introduces: Sequence[str]
) -> list[Located]:
    """Turn an edit into a misfit if a name that it introduces stands where no edit has put it."""
    if not introduces:
        return located
    word = re.compile(r"\b(?:" + "|".join(map(re.escape, introduces)) + r")\b")
    own = {n for item in located if item.own for n in range(item.own[0], item.own[1])}
    suspects = [n for n, line in enumerate(source.lines) if n not in own and word.search(line)]
    naming = _lines_naming(source.tree, set(introduces)) if suspects else set()
    used = [n for n in suspects if n + 1 in naming]
    if not used:
        return located
    name = word.search(source.lines[used[0]])
    assert name is not None
    code = source.lines[used[0]].strip()
    stray = Misfit(
        f"line {used[0] + 1} uses {name.group()} in a way that is not this fix's: {code}", used[0] + 1
    )
    owners = [n for n, e in enumerate(edits) if located[n].state.state == "todo" and name.group() in e.new]
    return _as_misfit(located, (owners or [0])[0], stray, source, edits)


def _lookalikes(located: list[Located], source: Source, edits: Sequence[Edit]) -> list[Located]:
    """Turn an edit to do into a misfit if what stands beside its place is nearly its code.

    Somebody has made or changed it by hand, with an attribute misspelled perhaps: to add the right
    code would leave the wrong one in place.
    """
    own = {n + 1 for item in located if item.own for n in range(item.own[0], item.own[1])}
    for at, (item, edit) in enumerate(zip(located, edits, strict=True)):
        texts = [(type(new), ast.unparse(new)) for new in edit.new_statements]
        for statement in item.around:
            if statement.lineno in own:
                continue
            for kind, text in texts:
                if type(statement) is kind and alike(text, ast.unparse(statement)):
                    found = f"line {statement.lineno} is nearly the new code: {short(ast.unparse(statement))}"
                    return _as_misfit(located, at, Misfit(found, statement.lineno), source, edits)
    return located


def _as_misfit(
    located: list[Located], at: int, misfit: Misfit, source: Source, edits: Sequence[Edit]
) -> list[Located]:
    state = EditState(edits[at].id, "misfit", misfit.found, misfit.line, misfit.diff(source, edits[at]))
    return [*located[:at], Located(state), *located[at + 1 :]]


def _lines_naming(tree: ast.Module, names: set[str]) -> set[int]:
    """Lines whose code (not their comments) has one of `names`."""
    found = set()
    for node in ast.walk(tree):
        texts = (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "value"))
        if any(isinstance(text, str) and text in names for text in texts):
            found.add(getattr(node, "lineno", 0))
            found.add(getattr(node, "end_lineno", 0))
    return found
