"""After a rollback: the same checks, held against the state that was put back.

What the old state never claimed (the fix's wiring, its log line) is skipped, not failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..picture import Picture, Unreadable

_NEVER_CLAIMED = ("source.behaviour", "log.capture", "wiring.eager", "wiring.graph", "wiring.overlap")
Facts = Mapping[str, Any]


def restored(
    checks: Sequence[Check], picture: Picture, manifest: Facts, read_back: Sequence[Facts]
) -> list[Check]:
    """`checks` of the node, with those about the fix replaced by "is it as it was before?".

    `read_back`: what the restore found at each path once it was back (node/rollback.py). Another bundle's
    deploy may have replaced files that an observation with this one does not read.
    """
    return [_one(check, picture, manifest, read_back) for check in checks]


def _one(check: Check, picture: Picture, manifest: Facts, read_back: Sequence[Facts]) -> Check:
    if check.id in _NEVER_CLAIMED:
        return skipped(check.id, check.expected, "the state before the deploy did not claim it")
    if check.id in ("source.state", "config.values"):
        return _as_before(check.id, picture, manifest, read_back)
    return check


def _as_before(id: str, picture: Picture, manifest: Facts, read_back: Sequence[Facts]) -> Check:
    """The files have the content, and the link, that the deploy found."""
    expected = f"as before deploy {manifest['id']}"
    files = [file for file in manifest["files"] if file["named"].endswith(".py") is (id == "source.state")]
    if not files:
        return skipped(id, expected, "that deploy replaced no such file")
    look = f"inv verify --node {picture.node.name}"
    try:
        now = _now(picture, read_back)
    except Unreadable as reason:
        return unknown(id, expected, reason.message, remedy=look)
    evidence, wrong, unread = [], [], []
    for file in files:
        named, before = file["named"], file["original"]
        fact = now.get(named, {"error": {"message": "it was not looked at"}})
        if "error" in fact:
            unread.append(Evidence(named, str(fact["error"]["message"])))
            continue
        evidence.append(Evidence(named, f"sha256 {fact.get('sha256')}, before {before['sha256']}"))
        # Where a file behind a link was replaced, the link itself was never touched.
        link_as_before = file["path"] != named or fact.get("symlink") == before.get("target")
        if fact.get("sha256") != before["sha256"] or not link_as_before:
            wrong.append(named)
    if wrong:
        remedy = f"inv rollback --to {manifest['id']} --node {picture.node.name}"
        return failed(id, expected, f"differs: {', '.join(wrong)}", *evidence, remedy=remedy)
    if unread:
        why = f"{unread[0].source}: {unread[0].text}"
        return unknown(id, expected, why, *unread, *evidence, remedy=look)
    return passed(id, expected, f"{len(files)} files as before", *evidence)


def _now(picture: Picture, read_back: Sequence[Facts]) -> dict[str, Facts]:
    """The facts of each path: as observed after the restart, else as the restore read it back. Unreadable."""
    now: dict[str, Facts] = {each["path"]: each for each in read_back}
    now.update({picture.path_of(path): fact for path, fact in picture.section("files").items()})
    now.update(picture.section("configs"))
    return now
