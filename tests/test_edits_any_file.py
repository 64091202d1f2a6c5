"""Edits of generated Python files: done once, found done, undone byte for byte.

The files vary in indentation, line ends, encoding, comments, decorators, nesting, strings over several
lines, and in whether the last line ends. What the tree must become is made by changing the tree.
"""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from remote.edits import Edit, inspect

SIMPLE = [
    "x = 1",
    "call(a,  b)",
    "pass",
    "y = [\n{i}1,  # one\n{i}2,\n]",
    "z = '# no comment'",
    't = """\n  raw\n"""',
    "assert x, 'é'",
    "a = 1; b = 2",
]
COMPOUND = ["if x:", "for i in y:", "with z as w:", "while x:", "try:"]


@st.composite
def block(draw: st.DrawFn, depth: int, anchor: str | None) -> list[tuple[int, str]]:
    """Lines of a block as (depth, text), with the anchor at one place somewhere inside if given."""
    lines: list[tuple[int, str]] = []
    for _ in range(draw(st.integers(0, 2))):
        lines += draw(filler(depth))
    if anchor is None:
        return lines or [(depth, "pass")]
    if depth < 6 and draw(st.booleans()):
        head = draw(st.sampled_from(COMPOUND))
        lines += [(depth, head), *draw(block(depth + 1, anchor))]
        if head == "try:":
            lines += [(depth, "except E:"), (depth + 1, "pass")]
    else:
        lines.append((depth, anchor))
    for _ in range(draw(st.integers(0, 2))):
        lines += draw(filler(depth))
    return lines


@st.composite
def filler(draw: st.DrawFn, depth: int) -> list[tuple[int, str]]:
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return [(0, "")]
    if kind == 1:
        return [(draw(st.integers(0, depth)), "# remark: self.anchor = []")]
    if kind == 2 and depth < 5:
        return [(depth, "@deco(1)"), (depth, "def inner(q):"), (depth + 1, "self.anchor = []")]
    if kind == 3 and depth < 5:
        return [(depth, "class Inner:"), (depth + 1, "def m(self): pass")]
    return [(depth, draw(st.sampled_from(SIMPLE)))]


@st.composite
def module(draw: st.DrawFn, anchor: str) -> bytes:
    unit = draw(st.sampled_from(["    ", "  ", "\t"]))
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    anchor += draw(st.sampled_from(["", "  # kept", " "]))
    lines = [(0, "import os"), (0, "class C:"), (1, '"""Doc."""')]
    lines += draw(block(1, None))
    lines += [(1, "@deco"), (1, "def m(self):"), *draw(block(2, anchor))]
    if draw(st.booleans()):
        lines += [(1, "def later(self): return 1"), (0, "end = 1")]
    text = ""
    for depth, line in lines:
        indent = unit * depth
        text += indent + line.replace("\n}", "\n" + indent + "}").replace("{i}", indent + unit) + "\n"
    text = text.replace("\n]", "\n" + unit * 9 + "]")
    if draw(st.booleans()):
        text = text[:-1]
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]))
    if encoding == "latin-1" and newline != "\r":
        text = "# -*- coding: latin-1 -*-\n" + text
    else:
        encoding = "utf-8" if encoding == "latin-1" else encoding
    return text.replace("\n", newline).encode(encoding)


NEW_CODE = [
    "self.new = 1",
    "# why\nself.new = [\n    1,\n]\nself.more = 2\n",
    "if a:\n    # inside\n    b()\nelse:\n    c()\n",
    'self.new = """\n  text\n"""\nself.more = f"""{\n1}\n"""',
    "@deco\ndef new(q):\n\n    return q\n",
]


def oracle(content: bytes, edit: Edit) -> str:
    """The tree that the edited file must have, made by changing the tree and not the text."""
    tree = ast.parse(content)
    scope: ast.AST = next(n for n in tree.body if isinstance(n, ast.ClassDef))
    if edit.scope == "C.m":
        scope = next(n for n in scope.body if isinstance(n, ast.FunctionDef) and n.name == "m")  # type: ignore[attr-defined]
    new = ast.parse(edit.new).body
    if edit.kind in ("start", "end"):
        body = scope.body  # type: ignore[attr-defined]
        at = len(body) if edit.kind == "end" else int(edit.scope == "C")
        body[at:at] = new
        return ast.dump(tree)
    wanted = ast.dump(ast.parse(edit.anchor).body[0])
    pending = [scope]
    while pending:
        node = pending.pop()
        for field in ("body", "orelse", "finalbody", "handlers"):
            part = getattr(node, field, None) or []
            for index, statement in enumerate(part):
                if ast.dump(statement) == wanted:
                    low, high = {"after": (1, 1), "before": (0, 0), "replace": (0, 1)}[edit.kind]
                    part[index + low : index + high] = new
                    return ast.dump(tree)
                if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    pending.append(statement)
    raise AssertionError("the generated file has no anchor")


@settings(max_examples=200, deadline=None)
@given(
    module("self.anchor = []"),
    st.sampled_from(["after", "before", "replace", "start", "end"]),
    st.sampled_from(NEW_CODE),
    st.sampled_from(["C.m", "C"]),
)
def test_whatever_the_file_looks_like(content: bytes, kind: str, new: str, scope: str) -> None:
    border = kind in ("start", "end")
    edit = Edit("e", scope if border else "C.m", kind, "" if border else "self.anchor = []", new)  # type: ignore[arg-type]
    first = inspect(content, [edit])
    if first.edits[0].state == "misfit":
        # Only where a statement at the border shares its line with another one.
        assert border
        assert "more than the one statement" in first.edits[0].found
        return
    assert first.edits[0].state == "todo"
    assert first.bare == content
    assert first.new is not None
    assert ast.dump(ast.parse(first.new)) == oracle(content, edit)
    second = inspect(first.new, [edit])
    assert second.edits[0].state == "done"
    assert second.new == first.new
    assert second.bare == content
