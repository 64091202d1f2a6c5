"""Unified diffs, applied strictly: every hunk's lines must stand at exactly one place.

No fuzz, no search for something similar, and never a reversal of what is already applied: a second
run is a no-op (GNU patch --batch would take the patch out again and return 0). Line numbers of hunk
headers are not used: the context decides, and if it decides nothing the hunk is a misfit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_HEADER = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class PatchProblem(Exception):
    """The patch is no unified diff of one file. `line` is 1-based in the patch."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True)
class Hunk:
    """Lines before and after, with their line ends. `line` is 1-based in the patch."""

    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    line: int


@dataclass(frozen=True)
class Patch:
    """`path`: the file as the patch names it, without `a/` or `b/`; None if it names none."""

    path: str | None
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True)
class HunkState:
    """`line` is 1-based in the patched file: where the hunk is, or is to be."""

    state: Literal["done", "todo", "misfit"]
    found: str
    line: int | None


@dataclass(frozen=True)
class PatchInspection:
    """`new` has every hunk, `bare` none; both None while a hunk is a misfit."""

    hunks: tuple[HunkState, ...]
    new: bytes | None
    bare: bytes | None


def parse_patch(content: bytes) -> Patch:
    """Read a unified diff of one file. Raises PatchProblem."""
    lines = _LINE.findall(content)
    path: str | None = None
    hunks: list[Hunk] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ "):
            if path is not None or hunks:
                raise PatchProblem("the patch changes more than one file: make one patch of each", at + 1)
            path = _path(lines[at], lines[at + 1], at + 1)
            at += 2
        elif line.startswith(b"@@"):
            hunk, at = _hunk(lines, at)
            hunks.append(hunk)
        elif line.startswith((b"+", b"-")) or (hunks and line.strip() and not line.startswith(b"diff ")):
            raise PatchProblem("a line that belongs to no hunk: its counts in the @@ line are wrong", at + 1)
        else:
            at += 1
    if not hunks:
        raise PatchProblem("the patch has no hunk (a line that starts with @@)", 1)
    return Patch(path, tuple(hunks))


def _path(old: bytes, new: bytes, line: int) -> str:
    names = [part[4:].split(b"\t")[0].strip().decode("utf-8", "replace") for part in (old, new)]
    if "/dev/null" in names:
        raise PatchProblem("the patch creates or deletes a file: only existing files are changed", line)
    return re.sub(r"^b/", "", names[1])


def _hunk(lines: Sequence[bytes], at: int) -> tuple[Hunk, int]:
    start = at + 1
    header = _HEADER.match(lines[at])
    if header is None:
        raise PatchProblem("not a hunk header like '@@ -1,3 +1,4 @@'", start)
    left = [int(header[2] or b"1"), int(header[4] or b"1")]
    old: list[bytes] = []
    new: list[bytes] = []
    at += 1
    while at < len(lines) and (left != [0, 0] or lines[at].startswith(b"\\")):
        mark, text = lines[at][:1], lines[at][1:]
        if mark in (b"\n", b"\r"):  # an empty context line that lost its blank
            mark, text = b" ", lines[at]
        if mark == b"\\":
            for side in _sides_of(lines[at - 1][:1], old, new):
                side[-1] = side[-1].removesuffix(b"\n")
        elif mark in b" -+" and mark:
            for side in _sides_of(mark, old, new):
                side.append(text)
            left = [left[0] - (mark != b"+"), left[1] - (mark != b"-")]
        else:
            raise PatchProblem("a line of a hunk that starts with none of ' ', '-', '+'", at + 1)
        at += 1
    if left != [0, 0]:
        raise PatchProblem("the hunk has not as many lines as its @@ line says", start)
    if not old or not new:
        raise PatchProblem("a hunk without context: make the patch with context lines (diff -u)", start)
    if old == new:
        raise PatchProblem("a hunk that changes nothing", start)
    return Hunk(tuple(old), tuple(new), start), at


def _sides_of(mark: bytes, old: list[bytes], new: list[bytes]) -> list[list[bytes]]:
    return [old] if mark == b"-" else [new] if mark == b"+" else [old, new]


def inspect_patch(content: bytes, patch: Patch) -> PatchInspection:
    """Look at `content` with all hunks of `patch`: done, to do, or misfit."""
    lines = _LINE.findall(content)
    located = [_locate(lines, hunk) for hunk in patch.hunks]
    states = _in_order([state for state, _ in located])
    if any(state.state == "misfit" for state in states):
        return PatchInspection(states, None, None)
    forward = [
        (at, h.old, h.new) for (s, at), h in zip(located, patch.hunks, strict=True) if s.state == "todo"
    ]
    backward = [
        (at, h.new, h.old) for (s, at), h in zip(located, patch.hunks, strict=True) if s.state == "done"
    ]
    return PatchInspection(states, _replace(lines, forward), _replace(lines, backward))


def _locate(lines: Sequence[bytes], hunk: Hunk) -> tuple[HunkState, int]:
    old, new = _places(lines, hunk.old), _places(lines, hunk.new)
    # The old lines of a hunk with context on one side only may still stand inside its new ones.
    old = [o for o in old if not any(n <= o and o + len(hunk.old) <= n + len(hunk.new) for n in new)]
    # And the new lines inside the old ones, when the hunk only takes away.
    new = [n for n in new if not any(o <= n and n + len(hunk.new) <= o + len(hunk.old) for o in old)]
    if len(new) == 1 and not old:
        return HunkState("done", f"its lines stand on line {new[0] + 1}", new[0] + 1), new[0]
    if len(old) == 1 and not new:
        return HunkState("todo", f"its context stands on line {old[0] + 1}", old[0] + 1), old[0]
    if not old and not new:
        return HunkState("misfit", "neither its lines before nor those after are in the file", None), 0
    where = ", ".join(str(n + 1) for n in sorted([*old, *new]))
    return HunkState("misfit", f"its lines fit at more than one place: {where}", min([*old, *new]) + 1), 0


def _places(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    size = len(wanted)
    first = wanted[0]
    return [
        at
        for at in range(len(lines) - size + 1)
        if lines[at] == first and list(lines[at : at + size]) == list(wanted)
    ]


def _in_order(states: list[HunkState]) -> tuple[HunkState, ...]:
    """Hunks that stand in another order than in the patch have met similar code: misfits."""
    out: list[HunkState] = []
    reached = 0
    for state in states:
        if state.line is not None and state.state != "misfit":
            if state.line <= reached:
                out.append(
                    HunkState("misfit", f"found on line {state.line}, before the hunk above it", state.line)
                )
                continue
            reached = state.line
        out.append(state)
    return tuple(out)


def _replace(
    lines: Sequence[bytes], changes: Sequence[tuple[int, tuple[bytes, ...], tuple[bytes, ...]]]
) -> bytes:
    out = list(lines)
    for at, before, after in reversed(changes):
        out[at : at + len(before)] = after
    return b"".join(out)
