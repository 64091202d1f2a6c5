"""After a rollback: the same checks, held against the state that was put back.

What the old state never claimed (the fix's wiring, its log line) is skipped, not failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import Check, Evidence, failed, passed, skipped
from ..picture import Picture

_NEVER_CLAIMED = ("source.behaviour", "log.capture", "wiring.eager", "wiring.graph", "wiring.overlap")


def restored(checks: Sequence[Check], picture: Picture, manifest: Mapping[str, Any]) -> list[Check]:
    """`checks` of the node, with those about the fix replaced by "is it as it was before?"."""
    return [_one(check, picture, manifest) for check in checks]


def _one(check: Check, picture: Picture, manifest: Mapping[str, Any]) -> Check:
    if check.id in _NEVER_CLAIMED:
        return skipped(check.id, check.expected, "the state before the deploy did not claim it")
    if check.id == "source.state":
        return _as_before(check.id, picture, manifest, code=True)
    if check.id == "config.values":
        return _as_before(check.id, picture, manifest, code=False)
    return check


def _as_before(id: str, picture: Picture, manifest: Mapping[str, Any], *, code: bool) -> Check:
    """The files have the content, and the link, that the deploy found."""
    expected = f"as before deploy {manifest['id']}"
    now = {picture.path_of(path): fact for path, fact in picture.section("files").items()}
    now.update(picture.section("configs"))
    files = [file for file in manifest["files"] if file["named"].endswith(".py") is code]
    if not files:
        return skipped(id, expected, "that deploy replaced no such file")
    evidence, wrong = [], []
    for file in files:
        before = file["original"]
        fact = now.get(file["named"], {"sha256": None})
        evidence.append(Evidence(file["named"], f"sha256 {fact.get('sha256')}, before {before['sha256']}"))
        if fact.get("sha256") != before["sha256"] or fact.get("symlink") != before.get("target"):
            wrong.append(file["named"])
    if wrong:
        remedy = f"inv rollback --to {manifest['id']} --node {picture.node.name}"
        return failed(id, expected, f"differs: {', '.join(wrong)}", *evidence, remedy=remedy)
    return passed(id, expected, f"{len(files)} files as before", *evidence)
