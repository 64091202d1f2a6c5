"""The files that a deploy replaced: their contents before and after, by hash."""

from __future__ import annotations

import base64
import posixpath
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .cache import Contents
from .session import Session

Entry = Mapping[str, Any]

MAX_BYTES = 4 << 20


def contents(
    session: Session, entries: Sequence[Entry], state_dir: str, cache: Contents
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The contents by hash that could be had of a manifest's `entries`: what stands there now, the originals,
    and what was deployed; and the hash of what stands at each path now. What this machine knows by hash is
    not fetched again."""
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
    return texts, hashes


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
