"""Python source as lines and syntax trees: what `edits.py` needs to find its places.

Statements are compared as syntax trees without positions, so that comments, quotes, line breaks and
indentation do not matter. Lines are kept with their own line ends, so that nothing else changes.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | Function

# What Python's tokenizer takes for a line end. str.splitlines() would also split at a form feed.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BLANK_OR_COMMENT = re.compile(r"\s*(#.*)?\Z")


class SourceProblem(Exception):
    """The source cannot be worked on: it does not parse, or its encoding does not allow it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True)
class Source:
    """A Python file: its lines with their ends, its syntax tree, its encoding."""

    lines: tuple[str, ...]
    tree: ast.Module
    encoding: str

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """All statements of the file, at whatever depth."""
        return [statement for block in blocks(self.tree, into_scopes=True) for statement in block]


def read_source(content: bytes) -> Source:
    """Parse `content`. Raises SourceProblem if that fails or if writing it back would change it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceProblem(f"the file's encoding is not readable: {error}") from None
    if text.encode(encoding) != content:
        raise SourceProblem(f"the file does not survive a round trip through its encoding {encoding}")
    try:
        with warnings.catch_warnings():
            # Somebody else's file: odd escapes in its strings are no concern of ours.
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except SyntaxError as error:
        raise SourceProblem(f"the file does not parse: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceProblem(f"the file does not parse: {error}") from None
    return Source(tuple(split_lines(text)), tree, encoding)


def write_source(lines: Sequence[str], encoding: str) -> bytes:
    """The bytes of `lines` in the file's own encoding. Raises SourceProblem."""
    try:
        return "".join(lines).encode(encoding)
    except UnicodeEncodeError as error:
        raise SourceProblem(f"the new text does not fit the file's encoding {encoding}: {error}") from None


def split_lines(text: str) -> list[str]:
    """Lines with their ends, split where Python's tokenizer splits."""
    return _LINE.findall(text)


def line_end(line: str) -> str:
    """The line end of a line, "" for the last one without."""
    return line[len(line.rstrip("\r\n")) :]


def is_blank_or_comment(line: str) -> bool:
    return _BLANK_OR_COMMENT.match(line.rstrip("\r\n")) is not None


def parse_snippet(code: str) -> list[ast.stmt]:
    """The statements of a piece of code. `return` and the like are allowed: only the syntax counts."""
    return ast.parse(code).body


def inside_strings(code: str) -> set[int]:
    """1-based numbers of the lines that begin inside a string: to indent them would change it."""
    inner: set[int] = set()
    starts: list[int] = []
    opening = getattr(tokenize, "FSTRING_START", None)  # Python 3.12 on; before, one STRING token
    closing = getattr(tokenize, "FSTRING_END", None)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.STRING:
            inner.update(range(token.start[0] + 1, token.end[0] + 1))
        elif opening is not None and token.type == opening:
            starts.append(token.start[0])
        elif closing is not None and token.type == closing:
            inner.update(range(starts.pop() + 1, token.end[0] + 1))
    return inner


def same(a: object, b: object) -> bool:
    """Whether two trees (or lists of trees, or constants) are equal apart from positions."""
    if type(a) is not type(b):
        return False
    if isinstance(a, ast.AST):
        return all(
            same(getattr(a, field, None), getattr(b, field, None))
            for field in a._fields
            if field not in ("type_comment", "kind")
        )
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return repr(a) == repr(b) if isinstance(a, float | complex) else a == b


def inner_blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists directly inside a compound statement (`if`, `try`, `match`, `def`...)."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if isinstance(block, list) and block:
            yield block
    for field in ("handlers", "cases"):
        for part in getattr(statement, field, ()):
            yield part.body


def blocks(scope: ast.AST, *, into_scopes: bool) -> Iterator[list[ast.stmt]]:
    """All statement lists in `scope`; those of nested functions and classes only if asked for."""
    pending = deque(inner_blocks(scope))
    while pending:
        block = pending.popleft()
        yield block
        for statement in block:
            if into_scopes or not isinstance(statement, ast.ClassDef | Function):
                pending.extend(inner_blocks(statement))


def first_line(statement: ast.stmt) -> int:
    """1-based line on which a statement begins, decorators included."""
    decorators = statement.decorator_list if isinstance(statement, ast.ClassDef | Function) else []
    return min([statement.lineno, *(d.lineno for d in decorators)])


def last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def bindings(scope: Scope, name: str) -> list[ast.stmt]:
    """The statements of a scope that bind `name`: definitions, assignments, imports."""
    return [
        statement
        for block in blocks(scope, into_scopes=False)
        for statement in block
        if name in _bound_names(statement)
    ]


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | Function):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    """What a statement itself assigns to or deletes (not what statements inside it do)."""
    found: list[ast.expr] = []
    if isinstance(statement, ast.Assign | ast.Delete):
        found = list(statement.targets)
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        found = [statement.target]
    elif isinstance(statement, ast.With | ast.AsyncWith):
        found = [item.optional_vars for item in statement.items if item.optional_vars]
    flat: list[ast.expr] = []
    while found:
        target = found.pop(0)
        if isinstance(target, ast.Tuple | ast.List):
            found = [*target.elts, *found]
        elif isinstance(target, ast.Starred):
            found = [target.value, *found]
        else:
            flat.append(target)
    return flat
