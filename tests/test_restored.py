"""After a rollback each file is held against its original: as observed, else as the restore read it back."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from remote.checks import Check
from remote.picture import Picture
from remote.proofs import prove
from remote.proofs.restored import restored
from tests.pictures import DEEPSEEK, DRAFT, ROOT, config, healthy, picture, pristine

OLD_CONFIG = config([2, 30, 58])
# Of no bundle but the one that replaced it: an observation with another bundle does not read it.
UNSEEN = f"{ROOT}/sglang/srt/layers/sampler.py"


def digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def replaced(named: str, before: str | None, **more: Any) -> dict[str, Any]:
    """A file in the record of a deploy."""
    kind = "absent" if before is None else "file"
    return {"named": named, "path": named, "original": {"kind": kind, "sha256": before}, **more}


def back(named: str, sha256: str | None, symlink: str | None = None) -> dict[str, Any]:
    """A file in the reply of a restore."""
    return {"path": named, "sha256": sha256, "symlink": symlink, "changed": True}


def rolled_back(**facts: Any) -> Picture:
    """A node with the wheel's files and the old configuration."""
    found = healthy()
    found["configs"][DRAFT].update(text=OLD_CONFIG, sha256=digest(OLD_CONFIG.encode()))
    found.update(facts)
    return picture(found, pristine())


def judged(
    found: Picture, files: list[dict[str, Any]], read_back: list[dict[str, Any]] | None = None
) -> dict[str, Check]:
    checks = restored(prove(found), found, {"id": "d1", "files": files}, read_back or [])
    return {check.id: check for check in checks}


SOURCE = replaced(f"{ROOT}/{DEEPSEEK}", digest(pristine()[DEEPSEEK]))
CONFIG = replaced(DRAFT, digest(OLD_CONFIG.encode()))


def test_what_was_observed_is_held_against_the_original() -> None:
    found = judged(rolled_back(), [SOURCE, CONFIG])
    assert (found["source.state"].verdict, found["config.values"].verdict) == ("pass", "pass")
    still_fixed = judged(picture(), [SOURCE, CONFIG])
    assert (still_fixed["source.state"].verdict, still_fixed["config.values"].verdict) == ("fail", "fail")
    assert "inv rollback --to d1" in still_fixed["source.state"].remedy


@pytest.mark.parametrize("before", ["a" * 64, None])
def test_a_file_that_is_not_observed_is_judged_by_what_the_restore_read_back(before: str | None) -> None:
    """The deploy was of another bundle, which edits or creates a file that this one does not know."""
    files = [SOURCE, replaced(UNSEEN, before)]
    put_back = judged(rolled_back(), files, [back(UNSEEN, before)])["source.state"]
    assert put_back.verdict == "pass", put_back
    other = judged(rolled_back(), files, [back(UNSEEN, "b" * 64)])["source.state"]
    assert (other.verdict, other.observed) == ("fail", f"differs: {UNSEEN}")
    linked = judged(rolled_back(), files, [back(UNSEEN, before, "elsewhere.py")])["source.state"]
    assert linked.verdict == "fail"


@pytest.mark.parametrize("before", ["a" * 64, None])
def test_a_file_that_nobody_read_is_unknown(before: str | None) -> None:
    """Neither a difference nor, where the deploy created it, its absence."""
    found = judged(rolled_back(), [SOURCE, replaced(UNSEEN, before)])["source.state"]
    assert found.verdict == "unknown"
    assert UNSEEN in found.observed
    denied = {DRAFT: {"error": {"kind": "permission", "message": "not allowed"}}}
    found = judged(rolled_back(configs=denied), [replaced(DRAFT, before)], [back(DRAFT, before)])[
        "config.values"
    ]
    assert found.verdict == "unknown"


@pytest.mark.parametrize("section", ["files", "configs"])
def test_a_section_that_could_not_be_read_is_unknown(section: str) -> None:
    """It must not end the command either: the node was changed, and that is told."""
    broken = rolled_back(**{section: {"error": {"kind": "internal", "message": "no room"}}})
    found = judged(broken, [SOURCE, CONFIG])
    assert (found["source.state"].verdict, found["config.values"].verdict) == ("unknown", "unknown")


def test_the_link_counts_only_where_the_deploy_replaced_it() -> None:
    """uv links a package's files into its cache; a deploy then replaces the file behind the link."""
    found = rolled_back()
    for facts in (found.facts["files"][DEEPSEEK], found.facts["configs"][DRAFT]):
        facts["symlink"] = "../cache/file"
    files = [{**SOURCE, "path": "/cache/file"}, CONFIG]
    checks = judged(found, files)
    assert checks["source.state"].verdict == "pass"
    assert checks["config.values"].verdict == "fail"
