"""The files that a deploy replaced: what stood there, what stands there now, and the difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..cache import Contents
from ..fixes import text_diff
from ..picture import Picture
from ..replaced import contents, kept_at
from ..session import Session
from .model import Now, Replaced

Entry = Mapping[str, Any]
Texts = Mapping[str, bytes]

# A longer difference is no longer read on a page: the files themselves are kept on the node.
MAX_DIFF_LINES = 1500


def replaced(session: Session, picture: Picture, manifest: Entry, cache: Contents) -> list[Replaced]:
    """Each file of the manifest. Contents that this machine knows by hash are not fetched again."""
    entries = list(manifest.get("files") or [])
    state_dir = str(picture.facts.get("state", {}).get("dir", ""))
    texts, hashes = contents(session, entries, state_dir, cache)
    return [
        one(entry, texts, hashes.get(entry["path"]), state_dir, picture.short(entry["named"]))
        for entry in entries
    ]


def one(entry: Entry, texts: Texts, now_sha256: str | None, state_dir: str, label: str) -> Replaced:
    """`texts`: contents by hash; `now_sha256`: of what stands there now, None where it could not be read."""
    original, after = entry["original"], str(entry["after_sha256"])
    before = original.get("sha256")
    diff, why = _diff(label, texts.get(before) if before else b"", texts.get(after))
    return Replaced(
        path=str(entry["named"]),
        label=label,
        kind=str(original["kind"]),
        before_sha256=before,
        after_sha256=after,
        now=_now(now_sha256, before, after),
        kept=kept_at(state_dir, before) if original["kind"] == "file" and before else None,
        diff=diff,
        why_no_diff=why,
    )


def _now(found: str | None, before: str | None, after: str) -> Now:
    if found is None:
        return "unknown"
    if found == after:
        return "as deployed"
    return "the original" if found == before else "changed since"


def _diff(label: str, before: bytes | None, after: bytes | None) -> tuple[str | None, str | None]:
    if before is None:
        return None, "the original could not be read"
    if after is None:
        return None, "what was deployed is no longer on the node, nor known on this machine"
    diff = text_diff(label.lstrip("/"), before, after)
    lines = diff.count("\n") + 1
    return (diff, None) if lines <= MAX_DIFF_LINES else (None, f"{lines} lines: too long for a page")
