"""How an edit changes lines: what is taken out, what is put in, and what must stay as it is."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from . import trees
from .places import Edit, EditState, Found, Misfit, Run, override_of, unreachable_after
from .trees import Source, SourceProblem


@dataclass(frozen=True)
class Splice:
    """Lines `start` up to but not including `end` (0-based) give way to `lines`.

    Of insertions at one place the deeper comes first (it belongs to what ends there), and then the
    one `behind` a statement, before that in front of the next.
    """

    start: int
    end: int
    lines: tuple[str, ...]
    depth: int
    behind: bool = False

    @property
    def order(self) -> tuple[int, int, int, bool]:
        return (self.start, self.end, -self.depth, not self.behind)


@dataclass(frozen=True)
class Located:
    """An edit's state, the change that does it and the one that undoes it.

    `own`: the lines (0-based) of a done edit. `around`: the statements beside the place of one to do.
    """

    state: EditState
    forward: Splice | None = None
    backward: Splice | None = None
    own: tuple[int, int] | None = None
    around: tuple[ast.stmt, ...] = ()


def write(source: Source, splices: Sequence[Splice | None]) -> bytes:
    lines = list(source.lines)
    wanted = [splice for splice in splices if splice is not None]
    # From the end, so that line numbers stay right.
    ordered = sorted(wanted, key=lambda s: s.order, reverse=True)
    for earlier, later in zip(ordered[1:], ordered, strict=False):
        if earlier.end > later.start or earlier.order == later.order:
            raise SourceProblem(f"two edits write at the same place, line {later.start + 1}")
    for splice in ordered:
        lines[splice.start : splice.end] = splice.lines
    return trees.write_source(lines, source.encoding)


def as_done(source: Source, scope: trees.Scope, edit: Edit, found: Found) -> Located:
    assert found.new is not None
    new = found.new
    _alone_on_its_lines(source, new)
    if (cut := unreachable_after(scope, new)) is not None:
        raise Misfit(f"the new code on line {new.line} is never reached: line {cut} leaves before it", cut)
    if (override := override_of(scope, new)) is not None:
        what, line = override
        raise Misfit(f"line {line} sets {what} again, which undoes the new code on line {new.line}", line)
    start, end = new.line - 1, new.last_line
    rendered = _ended_like(source.lines[end - 1], _render(source, edit.new, start))
    lead = len(rendered) - (end - start)
    tail = ""
    if edit.kind == "replace":
        tail = _tail(source, new)
    exact = lead >= 0 and start - lead >= 0 and _equal(source.lines[start - lead : end], rendered, tail)
    if exact:
        start -= lead
    depth = new.statements[0].col_offset
    if edit.kind == "replace":
        back = _ended_like(source.lines[end - 1], _render(source, edit.anchor, new.line - 1))
        splice = Splice(start, end, tuple(_with_tail(back, tail)), depth)
    else:
        splice = _removal(source, start, end, depth)
    state = EditState(edit.id, "done", f"the new code stands on line {new.line}", new.line)
    return Located(state, None, splice, (start, end))


def _removal(source: Source, start: int, end: int, depth: int) -> Splice:
    """Take lines out; at the end of a file without a last line end, its predecessor loses its own."""
    if end == len(source.lines) and start > 0 and not trees.line_end(source.lines[-1]):
        return Splice(start - 1, end, (source.lines[start - 1].rstrip("\r\n"),), depth)
    return Splice(start, end, (), depth)


def as_todo(source: Source, scope: trees.Scope, edit: Edit, found: Found) -> Located:
    anchor = found.anchor
    if anchor is None:
        raise Misfit("the scope has no statement beside its docstring", getattr(scope, "lineno", None))
    at = anchor.end - 1 if edit.kind == "end" else anchor.start
    if edit.kind in ("start", "end"):
        anchor = Run(anchor.block, at, at + 1)
    _alone_on_its_lines(source, anchor)
    first, last = anchor.line - 1, anchor.last_line - 1
    depth = anchor.statements[0].col_offset
    place = Run(anchor.block, anchor.end, anchor.end) if edit.kind in ("after", "end") else anchor
    if (cut := unreachable_after(scope, place)) is not None:
        raise Misfit(f"the new code would never be reached: line {cut} leaves before it", cut)
    rendered = _render(source, edit.new, first)
    if edit.kind == "replace":
        _no_comment_inside(source, anchor)
        rendered = _with_tail(_ended_like(source.lines[last], rendered), _tail(source, anchor))
        splice = Splice(first, last + 1, tuple(rendered), depth)
    elif edit.kind in ("after", "end"):
        splice = Splice(last + 1, last + 1, tuple(rendered), depth, behind=True)
        if not trees.line_end(source.lines[last]):
            joined = [source.lines[last] + _line_end(source), *_ended_like(source.lines[last], rendered)]
            splice = Splice(last, last + 1, tuple(joined), depth)
    else:
        if edit.kind == "start":
            # Comments between the header (or docstring) and the first statement stay with the statement.
            top = trees.last_line(anchor.block[at - 1]) if at else 0
            while first > top and trees.is_blank_or_comment(source.lines[first - 1]):
                first -= 1
        splice = Splice(first, first, tuple(rendered), depth)
    state = EditState(edit.id, "todo", f"the anchor stands on line {anchor.line}", anchor.line)
    size = len(edit.new_statements)
    around = (*anchor.block[max(0, anchor.start - size) : anchor.start], *anchor.block[anchor.end :][:size])
    return Located(state, splice, around=around)


def _alone_on_its_lines(source: Source, run: Run) -> None:
    """Refuse a statement that shares its lines with others (`a; b`, `if x: a`, `a; \\`)."""
    for statement in run.statements:
        first, last = trees.first_line(statement), trees.last_line(statement)
        before = source.lines[first - 1].encode("utf-8")
        decorated = first != statement.lineno
        head = before[: len(before) - len(before.lstrip())] if decorated else before[: statement.col_offset]
        behind = source.lines[last - 1].encode("utf-8")[statement.end_col_offset :].decode("utf-8")
        continued = first > 1 and source.lines[first - 2].rstrip("\r\n").endswith("\\")
        if head.strip() or continued or not trees.is_blank_or_comment(behind):
            raise Misfit(f"line {first} holds more than the one statement", first)


def _no_comment_inside(source: Source, run: Run) -> None:
    inner = source.lines[run.line - 1 : run.last_line - 1]
    if any("#" in line for line in inner):
        raise Misfit(f"a comment inside lines {run.line} to {run.last_line} would be lost", run.line)


def _tail(source: Source, run: Run) -> str:
    """What follows the last statement on its last line: blanks and a comment, without the line end."""
    statement = run.statements[-1]
    line = source.lines[run.last_line - 1].rstrip("\r\n").encode("utf-8")
    return line[statement.end_col_offset :].decode("utf-8")


def _with_tail(rendered: list[str], tail: str) -> list[str]:
    last = rendered[-1]
    end = trees.line_end(last)
    return [*rendered[:-1], last[: len(last) - len(end)] + tail + end]


def _equal(lines: Sequence[str], rendered: Sequence[str], tail: str) -> bool:
    return list(lines) == _with_tail(list(rendered), tail)


def _line_end(source: Source) -> str:
    return next((end for line in source.lines if (end := trees.line_end(line))), "\n")


def _render(source: Source, code: str, first: int) -> list[str]:
    """`code` as lines with the indentation of line `first` and the line ends of the file there."""
    line = source.lines[first]
    indent = line[: len(line) - len(line.lstrip(" \t\f"))]
    end = trees.line_end(line) or _line_end(source)
    inner = trees.inside_strings(code)
    texts = code.rstrip("\n").split("\n")
    return [(indent + t if t and n not in inner else t) + end for n, t in enumerate(texts, start=1)]


def _ended_like(line: str, rendered: list[str]) -> list[str]:
    """At the end of a file without a last line end, `rendered` has none either."""
    return rendered if trees.line_end(line) else [*rendered[:-1], rendered[-1].rstrip("\r\n")]
