"""YAML files that people write: parsed with places, so that an error can say file and line."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .errors import FixopsError

Where = Sequence[str | int]


class _Loader(yaml.SafeLoader):
    """The safe loader, which names the line of a value that it cannot make either, such as 2024-13-45."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError) as problem:
            raise yaml.MarkedYAMLError(problem=str(problem), problem_mark=node.start_mark) from None


@dataclass(frozen=True)
class Document:
    """A parsed file: its data, and the line on which each key stands."""

    path: Path
    data: Any
    lines: dict[tuple[str | int, ...], int]

    def place(self, where: Where) -> str:
        """`file:line` of the deepest part of `where` that the file has."""
        parts = tuple(where)
        while parts and parts not in self.lines:
            parts = parts[:-1]
        return f"{self.path}:{self.lines.get(parts, 1)}"

    @staticmethod
    def nearest(name: str, known: Iterable[str]) -> str:
        close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
        return f" (did you mean '{close[0]}'?)" if close else ""

    def describe(self, error: ValidationError, model: type[BaseModel]) -> str:
        """The first thing that is wrong, with file, line and the nearest valid key."""
        # A misspelled key that is required is an unknown one and a missing one: the first says more.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        where = [part for part in first["loc"] if part in self._parts(first["loc"])]
        place = self.place(where)
        path = ".".join(str(part) for part in where) or "the file"
        if first["type"] == "extra_forbidden":
            known = _keys_at(model, where[:-1])
            hint = self.nearest(str(where[-1]), known)
            return f"{place}: unknown key '{path}'{hint}; valid here: {', '.join(known)}"
        if first["type"] == "missing":
            return f"{place}: {path} is missing"
        return f"{place}: {what_is_wrong(path, first)}"

    def _parts(self, loc: tuple[str | int, ...]) -> set[str | int]:
        """Of pydantic's location only what is in the file: it also names union members there."""
        known = {part for parts in self.lines for part in parts}
        last: set[str | int] = {loc[-1]} if loc and not isinstance(loc[-1], str) else set()
        missing = {loc[-1]} if loc else set()
        return known | last | (missing if loc[:-1] in self.lines or len(loc) == 1 else set())


def what_is_wrong(where: str, problem: ErrorDetails) -> str:
    """`nodes.a.port is 'x': input should be a valid integer`: a pydantic error without its class."""
    text = re.sub(r" or instance of \w+$", "", problem["msg"].removeprefix("Value error, "))
    return f"{where} is {_short(problem.get('input'))}: {_lowered(text)}"


def load_document(path: Path, error: type[FixopsError]) -> Document:
    """Read and parse `path`; every problem is an `error` that names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error(
            f"{path} does not exist", hint="give --inventory PATH, or run from the project's root"
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise error(f"{path} cannot be read: {problem}", hint="check its permissions and encoding") from None
    lines: dict[tuple[str | int, ...], int] = {}
    try:
        loader = _Loader(text)
        tree = loader.get_single_node()
        if tree is not None:
            _walk(tree, (), lines, path, error)
        data = loader.construct_document(tree) if tree is not None else None
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise error(f"{path}:{line}: not valid YAML: {problem.reason}", hint="mend the file") from None
    except yaml.MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else 1
        raise error(f"{path}:{line}: not valid YAML: {problem.problem}", hint="mend the file") from None
    except RecursionError:
        raise error(f"{path}:1: nested too deeply to be read", hint="mend the file") from None
    if not isinstance(data, dict):
        raise error(f"{path}:1: the file holds no mapping", hint="see README.md, section Inventory")
    return Document(path, data, lines)


def _walk(
    node: yaml.Node,
    where: tuple[str | int, ...],
    lines: dict[tuple[str | int, ...], int],
    path: Path,
    error: type[FixopsError],
    within: tuple[yaml.Node, ...] = (),
) -> None:
    """Note the line of everything at and below `node`, which lies `within` these."""
    if any(node is outer for outer in within):
        raise error(f"{path}:{node.start_mark.line + 1}: an anchor that holds itself", hint="write it out")
    within = (*within, node)
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise error(f"{path}:{key.start_mark.line + 1}: a key that is no word", hint="mend the file")
            child = (*where, key.value)
            line = key.start_mark.line + 1
            if child in lines:
                raise error(
                    f"{path}:{line}: '{key.value}' is given twice (first on line {lines[child]})",
                    hint="remove one",
                )
            lines[child] = line
            _walk(value, child, lines, path, error, within)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*where, index), lines, path, error, within)


def _keys_at(model: type[BaseModel], where: Where) -> list[str]:
    """The valid keys at a place of the model: follows mappings of models by any key."""
    current: Any = model
    for part in where:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = field.annotation if field else None
        else:
            current = next((arg for arg in typing.get_args(current)[::-1] if arg is not type(None)), None)
        if typing.get_origin(current) in (types.UnionType, typing.Union):
            current = next((a for a in typing.get_args(current) if a is not type(None)), None)
    if isinstance(current, type) and issubclass(current, BaseModel):
        return list(current.model_fields)
    return []


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
