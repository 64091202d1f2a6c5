"""Compiled files: which of them the server's interpreter would believe, which are stale, their removal.

How an interpreter decides: Lib/importlib/_bootstrap_external.py (SourceLoader.get_code), PEP 552. Flags 0:
believed if the source's time in whole seconds and its size are those in the header; 3: if its hash is;
1: always, whatever the source holds.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH108, PTH113, PTH116, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import binascii
import os
import sys

from . import procfs
from .base import OpError, changes
from .fsio import absolute, op_error, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from .base import Context


def unpack(z: str) -> bytes:
    """base64(zlib(content)) -> content."""
    import zlib

    return zlib.decompress(binascii.a2b_base64(z))


def compile_source(source: bytes, label: str) -> dict[str, Any] | None:
    """{line, message} of what keeps `source` from being compiled here, None if it compiles."""
    try:
        _compile(source, label, -1)
    except SyntaxError as error:
        return {"line": error.lineno, "message": error.msg}
    except (ValueError, RecursionError, MemoryError) as error:
        return {"line": None, "message": f"{type(error).__name__}: {error}"}
    return None


def _compile(source: bytes, label: str, optimize: int) -> CodeType:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about an escape is not the import's failure
        code: CodeType = compile(source, label, "exec", dont_inherit=True, optimize=optimize)
    return code


def prefixes(env: dict[str, str | None]) -> tuple[str | None, list[str | None]]:
    """(the prefix that the server's interpreter uses, all places to look in: None is __pycache__ beside)."""
    wanted: dict[str, str | None] = {**os.environ, **env}
    used = wanted.get("PYTHONPYCACHEPREFIX") or None
    return used, list(dict.fromkeys([used, None, sys.pycache_prefix or None]))


def folder_of(source: str, prefix: str | None) -> str:
    """The directory that holds a source's compiled files (importlib.util.cache_from_source)."""
    directory = os.path.dirname(source)
    return os.path.join(directory, "__pycache__") if prefix is None else prefix.rstrip("/") + directory


def compiled_files(source: str, env: dict[str, str | None]) -> list[tuple[str, bool]]:
    """[(path, would the server's interpreter look there)]: all tags, all optimization levels. OpError."""
    used, places = prefixes(env)
    stem = os.path.basename(source)[: -len(".py")] + "."
    found: list[tuple[str, bool]] = []
    for prefix in places:
        folder = folder_of(source, prefix)
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise op_error(error, folder) from None
        for name in sorted(names):
            if name.startswith(stem) and name.endswith(".pyc"):
                found.append((os.path.join(folder, name), prefix == used))
    return found


def judge(path: str, looked_at: bool, text: bytes, info: os.stat_result) -> dict[str, Any]:
    """The facts of one compiled file against its source's content and times."""
    import importlib.util

    tag, _, level = os.path.basename(path)[: -len(".pyc")].partition(".")[2].partition(".opt-")
    facts: dict[str, Any] = {"path": path, "tag": tag, "optimization": level or "0", "kind": None}
    facts.update(magic_ours=False, believed=False, stale=None, mtime_ns=None, owner=None)
    try:
        status = os.lstat(path)
        facts.update(mtime_ns=status.st_mtime_ns, owner=procfs.user_of(status.st_uid))
        data = read_bytes(path)
    except OSError as error:
        return {**facts, "believed": None, "why": op_error(error, path).message}
    flags = int.from_bytes(data[4:8], "little")
    facts["kind"] = {0: "timestamp", 1: "unchecked-hash", 3: "checked-hash"}.get(flags)
    facts["magic_ours"] = data[:4] == importlib.util.MAGIC_NUMBER
    if not facts["magic_ours"] or tag != sys.implementation.cache_tag:
        return {**facts, "why": "of another interpreter"}
    if not looked_at:
        return {**facts, "stale": False, "why": "not where the server's interpreter looks"}
    if len(data) < 16 or facts["kind"] is None:
        return {**facts, "stale": False, "why": "its header is damaged: it is compiled anew"}
    if flags == 0:
        stamp = int(info.st_mtime) & 0xFFFFFFFF, info.st_size & 0xFFFFFFFF
        believed = (int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")) == stamp
        why = "time and size are the source's" if believed else "time or size differ from the source's"
    elif flags == 3:
        believed = data[8:16] == importlib.util.source_hash(text)
        why = "its hash is the source's" if believed else "its hash is not the source's"
    else:
        believed, why = True, "unchecked: the source is never looked at"
    if level:
        why += f"; loaded with optimization {level} only"
    stale = believed and _differs(data[16:], text, level)
    return {**facts, "believed": believed, "stale": stale, "why": why}


def _differs(body: bytes, text: bytes, level: str) -> bool | None:
    """Is the compiled code another than the source's? None when the source cannot be compiled here."""
    import marshal

    try:
        code: Any = marshal.loads(body)
        label = code.co_filename
    except (EOFError, ValueError, TypeError, AttributeError):
        return True  # it would be believed, and fail
    try:
        return bool(code != _compile(text, label, int(level or 0)))
    except (SyntaxError, ValueError, RecursionError):
        return True  # the source does not compile: this cannot have come from it


def shadow(source: str) -> str | None:
    """What an import would take before this source: a package directory or an extension module beside it."""
    from importlib.machinery import EXTENSION_SUFFIXES

    stem = source[: -len(".py")]
    others = [os.path.join(stem, "__init__.py"), *(stem + suffix for suffix in EXTENSION_SUFFIXES)]
    return next((path for path in others if os.path.isfile(path)), None)


def _source(path: str) -> str:
    if not absolute(path).endswith(".py"):
        raise OpError("precondition", f"not a Python source: {path}")
    return path


def bytecode(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{files: [absolute .py], env} -> {file: {pycs: [...], shadow} | {error}}.

    A pyc: {path, tag, optimization, kind: "timestamp|checked-hash|unchecked-hash"|null, magic_ours, believed,
    stale: bool|null, why, mtime_ns, owner}. believed: this interpreter would load it in place of compiling
    the source (null: it could not be read); stale: it is believed, and its code is not the source's.
    """
    env = params.get("env") or {}
    found: dict[str, Any] = {}
    for file in params["files"]:
        try:
            candidates = compiled_files(_source(file), env)
            try:
                text, info = read_bytes(file), os.stat(file)
            except OSError as error:
                raise op_error(error, file) from None
            pycs = [judge(path, looked_at, text, info) for path, looked_at in candidates]
            found[file] = {"pycs": pycs, "shadow": shadow(file)}
        except OpError as error:
            found[file] = {"error": {"kind": error.kind, "message": error.message}}
    return found


@changes
def purge(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{files: [absolute .py], env} -> {removed: [path], remaining: [{path, why, owner}]}, read back.

    Only compiled files of these sources, in every place where an interpreter would look for them.
    """
    env = params.get("env") or {}
    removed: list[str] = []
    problems: dict[str, str] = {}
    remaining: list[dict[str, Any]] = []
    for file in params["files"]:
        try:
            candidates = compiled_files(_source(file), env)
        except OpError as error:
            remaining.append({"path": error.data.get("path"), "why": error.message, "owner": None})
            continue
        for path, _ in candidates:
            try:
                os.unlink(path)
                removed.append(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems[path] = error.strerror or type(error).__name__
        for path, _ in compiled_files(file, env):
            why = problems.get(path, "it was written again meanwhile")
            remaining.append({"path": path, "why": why, "owner": _owner(path)})
    left = {entry["path"] for entry in remaining}
    return {"removed": [path for path in removed if path not in left], "remaining": remaining}


def _owner(path: str) -> str | None:
    try:
        return procfs.user_of(os.lstat(path).st_uid)
    except OSError:
        return None


OPS = {"facts.bytecode": bytecode, "purge": purge}
