"""A fix bundle held against the files of one node: what is there, and what the files should become.

Pure: bytes in, values out. What the states mean stands in docs/fixes.md.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from . import edits, jsonedit, unidiff
from .bundles import Bundle, find_bundle, list_bundles, load_bundle
from .edits import EditState
from .errors import BundleError

__all__ = [
    "Bundle",
    "ConfigState",
    "EditState",
    "FileState",
    "FixState",
    "config_values",
    "evaluate",
    "evaluate_config",
    "find_bundle",
    "list_bundles",
    "load_bundle",
    "targets",
]

State = Literal["pristine", "partial", "ours", "native", "foreign", "uncovered"]


@dataclass(frozen=True)
class FileState:
    """One file. `new_text` and `diff` are what to write, None and "" if nothing is to be written.

    `local_changes`: whether the file differs from the released one beyond the fix; None when that
    cannot be told (no RECORD, or a foreign file). A foreign file's `diff` shows what was expected.
    """

    path: str
    state: State
    local_changes: bool | None
    edits: tuple[EditState, ...]
    new_text: bytes | None
    diff: str
    problem: str | None = None


@dataclass(frozen=True)
class FixState:
    """The whole fix. `problem` says in one line why it is foreign or uncovered."""

    bundle: str
    version: str
    state: State
    files: tuple[FileState, ...]
    problem: str | None = None

    @property
    def local_changes(self) -> bool | None:
        """True if any file has some; else None if any cannot be told."""
        answers = [file.local_changes for file in self.files]
        return True if True in answers else None if None in answers else False


@dataclass(frozen=True)
class ConfigState:
    """A JSON file. `changes`: (key path, value before or None, value after) of what is to do."""

    state: Literal["done", "todo", "misfit"]
    changes: tuple[tuple[str, Any, Any], ...]
    new_text: bytes | None
    diff: str
    problem: str | None = None


def targets(bundle: Bundle, version: str) -> tuple[str, ...]:
    """The files that the fix edits in this version, relative to the directory of the package."""
    return tuple(dict.fromkeys(entry.path for entry in bundle.entries(version)))


def evaluate(
    bundle: Bundle,
    version: str,
    sources: Mapping[str, bytes | None],
    record: Mapping[str, str | None],
) -> FixState:
    """Hold the fix against the installed files.

    `sources`: every path of `targets`, None if the file is not there. `record`: the SHA-256 (hex) that
    the wheel's RECORD gives for the path, None if there is none (editable install, source checkout).
    On a native version the files that the fix edits elsewhere are given too, as far as `sources` has them.
    """
    if bundle.is_native(version):
        return FixState(bundle.name, version, "native", _native_files(bundle, sources, record))
    if not bundle.is_covered(version):
        native = f" (and {bundle.spec.native}, which needs no edit)" if bundle.spec.native else ""
        problem = f"{bundle.name} covers SGLang {bundle.sglang}{native}, not {version}"
        return FixState(bundle.name, version, "uncovered", (), problem)
    files = tuple(
        _evaluate_file(bundle, version, path, sources.get(path), record.get(path))
        for path in targets(bundle, version)
    )
    bad = next((file for file in files if file.state == "foreign"), None)
    why = f"{bad.path}: {bad.problem}" if bad else None
    return FixState(bundle.name, version, _together([file.state for file in files]), files, why)


def _native_files(
    bundle: Bundle, sources: Mapping[str, bytes | None], record: Mapping[str, str | None]
) -> tuple[FileState, ...]:
    """Nothing is to be written, but these files must compile, and a server must have loaded them."""
    found = []
    for path in dict.fromkeys(entry.path for entry in bundle.spec.files):
        content, recorded = sources.get(path), record.get(path)
        if content is not None:
            changed = None if recorded is None else hashlib.sha256(content).hexdigest() != recorded
            found.append(FileState(path, "native", changed, (), None, ""))
    return tuple(found)


def _together(states: Sequence[State]) -> State:
    if "foreign" in states:
        return "foreign"
    kinds = set(states)
    if not kinds or kinds == {"native"}:
        return "native"
    if kinds <= {"ours", "native"}:
        return "ours"
    return "pristine" if kinds <= {"pristine", "native"} else "partial"


def _evaluate_file(
    bundle: Bundle, version: str, path: str, content: bytes | None, recorded: str | None
) -> FileState:
    if content is None:
        return FileState(path, "foreign", None, (), None, "", "the file is not there")
    inspection = _inspect(_Key(bundle, version, path), content)
    states = {edit.state for edit in inspection.edits}
    released = recorded is not None and hashlib.sha256(content).hexdigest() == recorded
    if inspection.new is None or inspection.bare is None:
        bad = next((edit for edit in inspection.edits if edit.state == "misfit"), None)
        why = f"edit {bad.id}: {bad.found}" if bad else inspection.problem
        changed = None if recorded is None else not released
        shown = "\n".join(edit.diff for edit in inspection.edits if edit.diff)
        return FileState(path, "foreign", changed, inspection.edits, None, shown, why)
    changed = None
    if recorded is not None:
        changed = not released and hashlib.sha256(inspection.bare).hexdigest() != recorded
    if states == {"done"}:
        state: State = "native" if released else "ours"
        return FileState(path, state, changed, inspection.edits, None, "")
    state = "partial" if "done" in states else "pristine"
    return FileState(
        path, state, changed, inspection.edits, inspection.new, text_diff(path, content, inspection.new)
    )


@dataclass(frozen=True)
class _Key:
    """What an inspection depends on besides the content: equal for equal bundles."""

    bundle: Bundle
    version: str
    path: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[str, str, str]:
        return self.bundle.digest, self.version, self.path


@lru_cache(maxsize=64)
def _inspect(key: _Key, content: bytes) -> edits.Inspection:
    """Remembered, because on a group of nodes the same files come again and again."""
    entries = [entry for entry in key.bundle.entries(key.version) if entry.path == key.path]
    patch = next((entry.patch for entry in entries if entry.patch), None)
    if patch is None:
        wanted = [edit.as_edit() for entry in entries for edit in entry.edits]
        return edits.inspect(content, wanted, [name for entry in entries for name in entry.introduces])
    done = unidiff.inspect_patch(content, key.bundle.patches[patch])
    states = tuple(
        EditState(f"{patch}#{number}", hunk.state, hunk.found, hunk.line)
        for number, hunk in enumerate(done.hunks, start=1)
    )
    problem = edits.why_not_python(done.new) if done.new is not None and done.new != content else None
    if problem is not None:
        states = tuple(
            replace(s, state="misfit", found=f"cannot be written: {problem}") if s.state == "todo" else s
            for s in states
        )
        return edits.Inspection(states, None, None, problem)
    return edits.Inspection(states, done.new, done.bare)


def text_diff(path: str, before: bytes, after: bytes) -> str:
    """A unified diff of two contents, as a person reads it."""
    old, new = (content.decode("utf-8", "replace").splitlines() for content in (before, after))
    return "\n".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""))


def config_values(bundle: Bundle, version: str | None) -> dict[str, Any]:
    """The values that the draft's config.json must have in this version, by key path.

    Without a version the values of the only entry; BundleError if they depend on the version.
    """
    wanted: dict[str, Any] = {}
    for entry in bundle.config(version):
        for key, value in entry.set.items():
            if key in wanted and not jsonedit.same_value(wanted[key], value):
                raise BundleError(
                    f"{bundle.name}: two entries set {key} for SGLang {version or '(version not known)'}",
                    hint="give the entries `versions` that do not overlap",
                )
            wanted[key] = value
    _refuse_nested(bundle, sorted(wanted))
    return wanted


def _refuse_nested(bundle: Bundle, keys: Sequence[str]) -> None:
    """A value and one within it: each would undo the other, and the file would never be as wanted."""
    for key in keys:
        inner = next((other for other in keys if other.startswith(f"{key}.")), None)
        if inner is not None:
            raise BundleError(
                f"{bundle.name}: {inner} is set, and {key} as a whole", hint="set one of the two"
            )


def evaluate_config(bundle: Bundle, target_text: bytes, version: str | None = None) -> ConfigState:
    """Hold the draft's config.json (its bytes) against the values that the fix wants in this version."""
    wanted = config_values(bundle, version)
    try:
        new = text = target_text.decode("utf-8")
        tree = jsonedit.parse(text)
        changes = []
        for key, value in wanted.items():
            found, before = jsonedit.get_value(tree, key.split("."))
            if not found or not jsonedit.same_value(before, value):
                changes.append((key, before, value))
                new = jsonedit.set_value(new, key.split("."), value)
    except UnicodeDecodeError as error:
        return ConfigState("misfit", (), None, "", f"not UTF-8: {error}")
    except jsonedit.JsonProblem as problem:
        return ConfigState("misfit", (), None, "", f"line {problem.line}: {problem.message}")
    if not changes:
        return ConfigState("done", (), None, "")
    after = new.encode("utf-8")
    return ConfigState("todo", tuple(changes), after, text_diff("config.json", target_text, after))
