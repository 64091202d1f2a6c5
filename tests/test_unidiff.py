"""Unified diffs, strictly: exactly one place, never twice, never backwards."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.unidiff import PatchProblem, inspect_patch, parse_patch

OLD = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"
NEW = b"one\nTWO\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"


def diff(old: bytes, new: bytes, context: int = 2) -> bytes:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    lines = difflib.diff_bytes(difflib.unified_diff, before, after, b"a/f.py", b"b/f.py", n=context)
    out = [line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines]
    return b"".join(out)


def states(content: bytes, patch: bytes) -> list[str]:
    return [hunk.state for hunk in inspect_patch(content, parse_patch(patch)).hunks]


def test_it_applies_and_a_second_run_changes_nothing() -> None:
    """Case 079: GNU patch --batch takes the patch out again on the second run, and returns 0."""
    patch = parse_patch(diff(OLD, NEW))
    first = inspect_patch(OLD, patch)
    assert [h.state for h in first.hunks] == ["todo", "todo"]
    assert (first.new, first.bare) == (NEW, OLD)
    second = inspect_patch(NEW, patch)
    assert [h.state for h in second.hunks] == ["done", "done"]
    assert (second.new, second.bare) == (NEW, OLD)


def test_a_half_applied_patch_is_completed() -> None:
    half = OLD.replace(b"two", b"TWO")
    result = inspect_patch(half, parse_patch(diff(OLD, NEW)))
    assert [h.state for h in result.hunks] == ["done", "todo"]
    assert (result.new, result.bare) == (NEW, OLD)


def test_line_numbers_do_not_matter_and_other_lines_stay() -> None:
    moved = b"zero\n" * 40 + OLD + b"tail"
    patch = diff(OLD, NEW.replace(b"ten\n", b""))
    assert inspect_patch(moved, parse_patch(patch)).new == moved.replace(b"two", b"TWO")


def test_there_is_no_fuzz() -> None:
    other = OLD.replace(b"three", b"three ")
    result = inspect_patch(other, parse_patch(diff(OLD, NEW)))
    assert [h.state for h in result.hunks] == ["misfit", "todo"]
    assert "neither" in result.hunks[0].found
    assert result.new is None


def test_two_places_are_refused() -> None:
    """Case 076: a similar block in another class."""
    result = inspect_patch(OLD + OLD, parse_patch(diff(OLD, OLD.replace(b"five", b"FIVE"))))
    assert result.hunks[0].state == "misfit"
    assert "more than one place: 3, 12" in result.hunks[0].found
    both = OLD.replace(b"five", b"FIVE") + OLD
    assert states(both, diff(OLD, OLD.replace(b"five", b"FIVE"))) == ["misfit"]


def test_hunks_that_stand_in_another_order_are_refused() -> None:
    left, right = b"a\nb\nc\nd\n", b"p\nq\nr\ns\n"
    middle = b"".join(b"m%d\n" % n for n in range(9))
    old = left + middle + right
    new = old.replace(b"b\n", b"B\n").replace(b"q\n", b"Q\n")
    swapped = right + middle + left
    assert states(swapped, diff(old, new, 1)) == ["todo", "misfit"]


def test_an_insertion_with_context_on_one_side_only() -> None:
    old, new = b"a\nb\n", b"a\nb\nc\n"
    assert inspect_patch(old, parse_patch(diff(old, new))).new == new
    assert states(new, diff(old, new)) == ["done"]
    assert states(old, diff(new, old)) == ["done"]
    assert inspect_patch(new, parse_patch(diff(new, old))).new == old


def test_the_missing_last_line_end_is_kept() -> None:
    for old, new in ((b"a\nb\nc", b"a\nB\nc"), (b"a\nb\nc", b"a\nb\nc\n"), (b"a\nb\nc\n", b"a\nb\nC")):
        patch = parse_patch(diff(old, new))
        assert inspect_patch(old, patch).new == new
        assert inspect_patch(new, patch).bare == old


def test_windows_line_ends_are_bytes_like_others() -> None:
    old, new = OLD.replace(b"\n", b"\r\n"), NEW.replace(b"\n", b"\r\n")
    assert inspect_patch(old, parse_patch(diff(old, new))).new == new
    assert states(OLD, diff(old, new)) == ["misfit", "misfit"]


def test_the_path_and_a_preamble_are_read() -> None:
    assert parse_patch(b"From: somebody\n\ndiff --git a/f.py b/f.py\n" + diff(OLD, NEW)).path == "f.py"


@pytest.mark.parametrize(
    ("patch", "line", "message"),
    [
        (b"", 1, "no hunk"),
        (b"just text\n", 1, "no hunk"),
        (b"--- /dev/null\n+++ b/f.py\n@@ -0,0 +1 @@\n+x\n", 1, "creates or deletes"),
        (b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n+d\n", 5, "belongs to no hunk"),
        (b"@@ -1,3 +1,2 @@\n a\n-b\n", 1, "not as many lines"),
        (b"@@ -1,2 +1,2 @@\n a\nb\n", 3, "starts with none"),
        (b"@@ one @@\n a\n", 1, "not a hunk header"),
        (b"@@ -0,0 +1 @@\n+x\n", 1, "without context"),
        (b"@@ -1 +1 @@\n x\n", 1, "changes nothing"),
        (diff(OLD, NEW) + diff(OLD, NEW), 13, "more than one file"),
    ],
)
def test_a_patch_that_is_wrong_is_refused_with_its_line(patch: bytes, line: int, message: str) -> None:
    with pytest.raises(PatchProblem) as caught:
        parse_patch(patch)
    assert message in caught.value.message
    assert caught.value.line == line


TEXT = st.lists(st.integers(0, 999), max_size=25, unique=True).map(lambda ns: [b"line %d\n" % n for n in ns])


@settings(max_examples=200, deadline=None)
@given(TEXT, st.data(), st.integers(1, 3))
def test_whatever_the_change_it_is_done_once_and_undone_exactly(
    old: list[bytes], data: st.DataObject, context: int
) -> None:
    new: list[Any] = list(old)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(new)))
        keep = data.draw(st.integers(0, 2))
        new[at : at + keep] = [
            b"new %d\n" % n for n in data.draw(st.lists(st.integers(1000, 9999), max_size=2))
        ]
    before, after = b"".join(old), b"".join(new)
    patch_text = diff(before, after, context)
    if before == after or not before or not after:
        return
    patch = parse_patch(patch_text)
    first = inspect_patch(before, patch)
    if first.new is None:  # lines that the change put in twice make a place ambiguous: refused, not guessed
        assert len(set(new)) < len(new)
        return
    assert (first.new, first.bare) == (after, before)
    second = inspect_patch(after, patch)
    if len(set(new)) == len(new):
        assert {h.state for h in second.hunks} == {"done"}
        assert (second.new, second.bare) == (after, before)
