"""How an edit changes lines: what is taken out, what is put in, and what must stay as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import trees
from .places import Edit, EditState, Found, Misfit, Run, override_of, unreachable_after
from .trees import Source, SourceProblem


@dataclass(frozen=True)
class Splice:
    """Lines `start` up to but not including `end` (0-based) give way to `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]
    depth: int


@dataclass(frozen=True)
class Located:
    """An edit's state, the change that does it, the one that undoes it, and its own lines (0-based)."""

    state: EditState
    forward: Splice | None = None
    backward: Splice | None = None
    own: tuple[int, int] | None = None


def write(source: Source, splices: Sequence[Splice | None]) -> bytes:
    lines = list(source.lines)
    wanted = [splice for splice in splices if splice is not None]
    # From the end, so that line numbers stay right. At one place the deeper insertion comes first.
    ordered = sorted(wanted, key=lambda s: (s.start, s.end, -s.depth), reverse=True)
    for earlier, later in zip(ordered[1:], ordered, strict=False):
        if earlier.end > later.start or (earlier.start, earlier.end, earlier.depth) == (
            later.start,
            later.end,
            later.depth,
        ):
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
    rendered = _render(source, edit.new, start, end - 1)
    lead = len(rendered) - (end - start)
    tail = ""
    if edit.kind == "replace":
        tail = _tail(source, new)
    exact = lead >= 0 and start - lead >= 0 and _equal(source.lines[start - lead : end], rendered, tail)
    if exact:
        start -= lead
    depth = new.statements[0].col_offset
    if edit.kind == "replace":
        back = tuple(_with_tail(_render(source, edit.anchor, new.line - 1, end - 1), tail))
        splice = Splice(start, end, back, depth)
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
    if edit.kind in ("start", "end"):
        at = anchor.start if edit.kind == "start" else anchor.end - 1
        anchor = Run(anchor.block, at, at + 1)
    _alone_on_its_lines(source, anchor)
    first, last = anchor.line - 1, anchor.last_line - 1
    depth = anchor.statements[0].col_offset
    place = Run(anchor.block, anchor.end, anchor.end) if edit.kind in ("after", "end") else anchor
    if (cut := unreachable_after(scope, place)) is not None:
        raise Misfit(f"the new code would never be reached: line {cut} leaves before it", cut)
    rendered = _render(source, edit.new, first, last)
    if edit.kind == "replace":
        _no_comment_inside(source, anchor)
        splice = Splice(first, last + 1, tuple(_with_tail(rendered, _tail(source, anchor))), depth)
    elif edit.kind in ("after", "end"):
        splice = Splice(last + 1, last + 1, tuple(rendered), depth)
        if not trees.line_end(source.lines[last]):
            end = _line_end(source)
            joined = (source.lines[last] + end, *rendered[:-1], rendered[-1].rstrip("\r\n"))
            splice = Splice(last, last + 1, joined, depth)
    else:
        if edit.kind == "start":
            # Comments between the header and the first statement stay with the statement.
            while first > 0 and trees.is_blank_or_comment(source.lines[first - 1]):
                first -= 1
        splice = Splice(first, first, tuple(rendered), depth)
    state = EditState(edit.id, "todo", f"the anchor stands on line {anchor.line}", anchor.line)
    return Located(state, splice, None)


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


def _render(source: Source, code: str, first: int, last: int) -> list[str]:
    """`code` as lines with the indentation of line `first` and the line ends of the file there."""
    line = source.lines[first]
    indent = line[: len(line) - len(line.lstrip(" \t\f"))]
    end = trees.line_end(line) or _line_end(source)
    inner = trees.inside_strings(code)
    texts = code.rstrip("\n").split("\n")
    out = [(indent + t if t and n not in inner else t) + end for n, t in enumerate(texts, start=1)]
    if not trees.line_end(source.lines[last]):
        out[-1] = out[-1].rstrip("\r\n")
    return out
