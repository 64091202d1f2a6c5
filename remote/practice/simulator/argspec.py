"""The command line of the installed SGLang, read from its server_args.py without importing it.

The class ServerArgs is a dataclass whose method add_cli_args makes the parser (0.5.5 to 0.5.12). Both are
read as syntax trees: names that the module defines as literals are resolved, everything else (classes of
other modules) is unknown.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class _Unknown(Exception):
    """An expression that cannot be evaluated from the module's own literals."""


@dataclass(frozen=True)
class ArgSpec:
    """`fields`: name -> default of the dataclass, in order (absent default: None); `flags`: add_argument
    calls in order.
    """

    fields: dict[str, Any]
    flags: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]


def _evaluate(node: ast.expr, names: dict[str, Any], defaults: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Attribute(value=ast.Name(id="ServerArgs"), attr=name) if name in defaults:
            return defaults[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_evaluate(item, names, defaults) for item in items]
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {
                _evaluate(key, names, defaults): _evaluate(value, names, defaults)
                for key, value in zip(keys, values, strict=True)
                if key is not None
            }
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, names, defaults)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluate(left, names, defaults) + _evaluate(right, names, defaults)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _evaluate(left, names, defaults) * _evaluate(right, names, defaults)
        case ast.Subscript(value=value, slice=index):
            return _evaluate(value, names, defaults)[_evaluate(index, names, defaults)]
        case ast.Call(func=ast.Name(id="list"), args=[inner]):
            return list(_evaluate(inner, names, defaults))
    raise _Unknown(ast.unparse(node))


def _default(node: ast.expr | None, names: dict[str, Any]) -> Any:
    """The default of a dataclass field; None where it cannot be told."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("field", "dataclasses.field"):
        for keyword in node.keywords:
            if keyword.arg == "default":
                return _default(keyword.value, names)
            if keyword.arg == "default_factory":
                factory = keyword.value
                if isinstance(factory, ast.Lambda):
                    return False if ast.unparse(factory.body) == "is_hip()" else _default(factory.body, names)
                return {"list": [], "dict": {}}.get(ast.unparse(factory))
        return None
    try:
        return None if node is None else _evaluate(node, names, {})
    except _Unknown:
        return None


def _human_readable_int(text: str) -> int:
    """ "8k" is 8000, "8K" is 8192 (server_args.py: human_readable_int, 0.5.10)."""
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    return int(float(text[:-1]) * scale[text[-1]]) if text[-1:] in scale else int(text)


def _json_list(text: str) -> Any:
    return json.loads(text)


def _nullable(text: str) -> str | None:
    return None if text in ("", "None") else text


_TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "json.loads": json.loads,
    "json_list_type": _json_list,
    "nullable_str": _nullable,
    "human_readable_int": _human_readable_int,
}
_STORE_TRUE = ("DeprecatedStoreTrueAction",)


def _keywords(call: ast.Call, names: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        text = ast.unparse(keyword.value)
        if keyword.arg == "type":
            found["type"] = _TYPES.get(text, str)
        elif keyword.arg == "action" and not isinstance(keyword.value, ast.Constant):
            if text == "argparse.BooleanOptionalAction":
                found["action"] = argparse.BooleanOptionalAction
            elif text in _STORE_TRUE:
                found["action"] = "store_true"
        elif keyword.arg in ("action", "nargs", "dest", "required", "const", "default", "choices"):
            try:
                found[keyword.arg] = _evaluate(keyword.value, names, defaults)
            except _Unknown:
                continue
    return found


def read_spec(source: str) -> ArgSpec:
    """Fields and flags of the class ServerArgs in the text of server_args.py.

    Raises SyntaxError for a damaged file, LookupError if the class or its method is not there.
    """
    tree = ast.parse(source)
    names: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                names[node.targets[0].id] = _evaluate(node.value, names, {})
            except (_Unknown, TypeError):
                continue
    wanted = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ServerArgs"]
    if not wanted:
        raise LookupError("class ServerArgs")
    fields: dict[str, Any] = {}
    method = None
    for item in wanted[0].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            fields[item.target.id] = _default(item.value, names)
        elif isinstance(item, ast.FunctionDef) and item.name == "add_cli_args":
            method = item
    if method is None:
        raise LookupError("ServerArgs.add_cli_args")
    flags = []
    for call in ast.walk(method):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr == "add_argument":
            options = tuple(str(arg.value) for arg in call.args if isinstance(arg, ast.Constant))
            flags.append((call.lineno, options, _keywords(call, names, fields)))
    flags.sort(key=lambda flag: flag[0])
    return ArgSpec(fields, tuple((options, keywords) for _, options, keywords in flags))


def _field_of(options: Sequence[str], keywords: dict[str, Any], fields: dict[str, Any]) -> str | None:
    """Which ServerArgs field a flag sets: from_cli_args maps --tensor-parallel-size to tp_size and so on."""
    candidates = [keywords.get("dest"), *(option.lstrip("-").replace("-", "_") for option in options)]
    return next((str(name) for name in candidates if name in fields), None)


def make_parser(spec: ArgSpec, prog: str, description: str) -> argparse.ArgumentParser:
    """The parser that ServerArgs.add_cli_args would make; each flag's dest is the field that it sets."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    for options, keywords in spec.flags:
        field = _field_of(options, keywords, spec.fields)
        kept = {key: value for key, value in keywords.items() if key != "dest"}
        if field is None:
            kept["dest"] = argparse.SUPPRESS if not options else options[0].lstrip("-").replace("-", "_")
        else:
            kept["dest"] = field
            kept.setdefault("default", spec.fields[field])
        if kept.get("action") in ("store_true", "store_false"):
            for name in ("type", "nargs", "choices", "const"):
                kept.pop(name, None)
        parser.add_argument(*options, **kept)
    return parser


def parse(spec: ArgSpec, parser: argparse.ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """Field values after parsing `argv`, in the dataclass's order. Exits with 2 on a usage error."""
    values = vars(parser.parse_args(list(argv)))
    return {name: values.get(name, default) for name, default in spec.fields.items()}
