"""The files that a deploy replaced: what stood there, what stands there now, and the difference."""

from __future__ import annotations

import base64
import difflib
import posixpath
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from ..cache import Contents
from ..picture import Picture
from ..session import Session
from .model import Now, Replaced

Entry = Mapping[str, Any]
Texts = Mapping[str, bytes]

MAX_BYTES = 4 << 20
# A longer difference is no longer read on a page: the files themselves are kept on the node.
MAX_DIFF_LINES = 1500


def replaced(session: Session, picture: Picture, manifest: Entry, cache: Contents) -> list[Replaced]:
    """Each file of the manifest. Contents that this machine knows by hash are not fetched again."""
    entries = list(manifest.get("files") or [])
    state_dir = str(picture.facts.get("state", {}).get("dir", ""))
    wanted = {path for entry in entries for path in _places(entry, state_dir, cache)}
    found = session.request("read_files", {"paths": sorted(wanted), "max_bytes": MAX_BYTES}) if wanted else {}
    hashes = {path: each["sha256"] for path, each in found.items() if "z" in each}
    texts = {
        each["sha256"]: zlib.decompress(base64.b64decode(each["z"])) for each in found.values() if "z" in each
    }
    for entry in entries:
        for sha256 in (entry["original"].get("sha256"), entry["after_sha256"]):
            content = cache.get(sha256) if sha256 and sha256 not in texts else None
            if content is not None:
                texts[sha256] = content
    return [
        one(entry, texts, hashes.get(entry["path"]), state_dir, picture.short(entry["named"]))
        for entry in entries
    ]


def _places(entry: Entry, state_dir: str, cache: Contents) -> Iterable[str]:
    """Where the two contents may be: the file itself always, to learn what stands there now."""
    yield entry["path"]
    original = entry["original"]
    sha256 = original.get("sha256")
    if sha256 is None or cache.get(sha256) is not None:
        return
    if original["kind"] == "file":
        yield kept_at(state_dir, sha256)
    elif original["kind"] == "symlink":
        yield posixpath.normpath(posixpath.join(posixpath.dirname(entry["path"]), original["target"]))


def kept_at(state_dir: str, sha256: str) -> str:
    """Where the node keeps the original of a replaced file (node/state.py)."""
    return posixpath.join(state_dir, "blobs", sha256)


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
    old, new = (text.decode("utf-8", "replace").splitlines() for text in (before, after))
    name = label.lstrip("/")
    lines = list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""))
    if len(lines) > MAX_DIFF_LINES:
        return None, f"{len(lines)} lines: too long for a page"
    return "\n".join(lines), None
