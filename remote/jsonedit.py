"""JSON edited by key path: everything outside the changed value stays byte for byte.

Indentation, line ends, spelling of numbers and order of keys are kept. What two
readers could understand differently (a key twice, comments, trailing commas) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"[^\s,\]}:\[{\"]+")


class JsonProblem(Exception):
    """The text is not JSON that can be edited safely. `line` is 1-based."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True)
class Node:
    """A value and where it stands in the text. `members`: of an object, key -> (start of key, value)."""

    value: Any
    start: int
    end: int
    members: dict[str, tuple[int, Node]] | None = None
    items: tuple[Node, ...] | None = None


def parse(text: str) -> Node:
    """The tree of a JSON text. Raises JsonProblem."""
    if text.startswith("\ufeff"):
        # transformers reads it as plain UTF-8 (configuration_utils.py): a server would end at its start.
        raise _problem(text, 0, "it begins with a byte order mark, which SGLang does not read")
    try:
        node = _value(text, _skip(text, 0))
    except RecursionError:
        raise JsonProblem("nested too deeply", 1) from None
    end = _skip(text, node.end)
    if end != len(text):
        raise _problem(text, end, "text after the end of the JSON value")
    return node


def _problem(text: str, at: int, message: str) -> JsonProblem:
    return JsonProblem(message, text.count("\n", 0, at) + 1)


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int) -> Node:
    opening = text[at : at + 1]
    if opening == "{":
        return _object(text, at)
    if opening == "[":
        return _array(text, at)
    match = _STRING.match(text, at) if opening == '"' else _SCALAR.match(text, at)
    if match is None:
        raise _problem(text, at, "a value is missing")
    return Node(_decoded(text, match, "value"), at, match.end())


def _decoded(text: str, match: re.Match[str], what: str) -> Any:
    try:
        return json.loads(match.group())
    except ValueError:
        raise _problem(text, match.start(), f"not a JSON {what}: {match.group()[:40]}") from None


def _object(text: str, start: int) -> Node:
    members: dict[str, tuple[int, Node]] = {}
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}" or members:
        match = _STRING.match(text, at)
        if match is None:
            raise _problem(text, at, "a key in double quotes is missing")
        key = _decoded(text, match, "string")
        if key in members:
            raise _problem(text, at, f"the key {match.group()} is there twice")
        colon = _skip(text, match.end())
        if text[colon : colon + 1] != ":":
            raise _problem(text, colon, "a colon is missing")
        value = _value(text, _skip(text, colon + 1))
        members[key] = (at, value)
        at = _skip(text, value.end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    if text[at : at + 1] != "}":
        raise _problem(text, at, "a comma or a closing brace is missing")
    return Node({k: v.value for k, (_, v) in members.items()}, start, at + 1, members)


def _array(text: str, start: int) -> Node:
    items: list[Node] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]" or items:
        item = _value(text, at)
        items.append(item)
        at = _skip(text, item.end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    if text[at : at + 1] != "]":
        raise _problem(text, at, "a comma or a closing bracket is missing")
    return Node([i.value for i in items], start, at + 1, None, tuple(items))


def same_value(a: Any, b: Any) -> bool:
    """Equality as JSON has it: true is not 1, and 2.0 is not 2."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_value(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def get_value(node: Node, path: Sequence[str]) -> tuple[bool, Any]:
    """(found, value) of the key `path`. Raises JsonProblem if a key on the way holds no object."""
    for depth, key in enumerate(path):
        if node.members is None:
            raise JsonProblem(f"{'.'.join(path[:depth]) or 'the file'} is no object", 1)
        if key not in node.members:
            return False, None
        node = node.members[key][1]
    return True, node.value


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """`text` with `value` at the key `path`; missing objects on the way are made. Raises JsonProblem."""
    if not path:
        raise ValueError("a key path has at least one key")
    node = parse(text)
    for depth, key in enumerate(path):
        if node.members is None:
            line = text.count("\n", 0, node.start) + 1
            raise JsonProblem(f"{'.'.join(path[:depth]) or 'the file'} is no object", line)
        if key not in node.members:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _add(text, node, key, value)
        node = node.members[key][1]
    if same_value(node.value, value):
        return text
    return text[: node.start] + _like(text, node, value) + text[node.end :]


def _like(text: str, old: Node, value: Any) -> str:
    """`value` spelled in the way of the value it replaces: over several lines only if that one was."""
    was = text[old.start : old.end]
    if "\n" not in was or not isinstance(value, list | dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    starts = [item.start for item in old.items or ()] + [start for start, _ in (old.members or {}).values()]
    outer = _indent_of(text, old.start)
    deeper = text[text.rfind("\n", 0, starts[0]) + 1 : starts[0]] if starts else outer + "  "
    if deeper.strip() or not deeper.startswith(outer) or deeper == outer:
        return json.dumps(value, ensure_ascii=False)
    return _spread(value, outer, deeper[len(outer) :], _newline(text))


def _spread(value: Any, outer: str, step: str, newline: str) -> str:
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return newline.join([lines[0], *(outer + line for line in lines[1:])])


def _indent_of(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    match = re.compile(r"[ \t]*").match(text, start)
    assert match is not None
    return match.group()


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _add(text: str, node: Node, key: str, value: Any) -> str:
    """A new last member, laid out like the ones before it."""
    name = json.dumps(key, ensure_ascii=False)
    assert node.members is not None
    if not node.members:
        return (
            text[: node.start]
            + "{"
            + f"{name}: {json.dumps(value, ensure_ascii=False)}"
            + "}"
            + text[node.end :]
        )
    starts = [start for start, _ in node.members.values()]
    last = list(node.members.values())[-1][1]
    line_start = text.rfind("\n", 0, starts[-1]) + 1
    lead = text[line_start : starts[-1]]
    colon = re.compile(r"[ \t]*:[ \t]*").search(text, starts[-1])
    assert colon is not None
    between = colon.group() if '"' not in colon.group() else ": "
    if "\n" in text[node.start : starts[-1]] and not lead.strip():
        outer = _indent_of(text, node.start)
        step = lead[len(outer) :] if lead.startswith(outer) and len(lead) > len(outer) else "  "
        spelled = _spread(value, lead, step, _newline(text)) if isinstance(value, dict) else _flat(value)
        return text[: last.end] + "," + _newline(text) + lead + name + between + spelled + text[last.end :]
    separator = ", " if len(starts) < 2 else _separator(text, node)
    return text[: last.end] + separator + name + between + _flat(value) + text[last.end :]


def _flat(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _separator(text: str, node: Node) -> str:
    assert node.members is not None
    (_, first), (second, _) = list(node.members.values())[:2]
    return text[first.end : second]
