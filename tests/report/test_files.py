"""What a deploy did to a file: before, after, now, and the difference."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from remote.cache import Contents
from remote.report.files import MAX_DIFF_LINES, one, replaced
from tests.bench import kit as bench_kit
from tests.pictures import picture


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


OLD, NEW = b"a = 1\nb = 2\n", b"a = 1\nb = 3\n"


def entry(kind: str = "file", old: bytes | None = OLD, **original: Any) -> dict[str, Any]:
    told = {"kind": kind, "sha256": None if old is None else digest(old), **original}
    return {"named": "/site/m.py", "path": "/site/m.py", "original": told, "after_sha256": digest(NEW)}


TEXTS = {digest(OLD): OLD, digest(NEW): NEW}


def test_the_difference_is_that_of_the_kept_contents() -> None:
    found = one(entry(), TEXTS, digest(NEW), "/state", "/site/m.py")
    assert found.diff == "--- a/site/m.py\n+++ b/site/m.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3"
    assert found.now == "as deployed"
    assert found.kept == f"/state/blobs/{digest(OLD)}"


def test_what_stands_there_now_is_told() -> None:
    cases = {
        None: "unknown",
        digest(NEW): "as deployed",
        digest(OLD): "the original",
        "f" * 64: "changed since",
    }
    for sha256, now in cases.items():
        assert one(entry(), TEXTS, sha256, "/state", "m").now == now


def test_a_new_file_has_only_added_lines() -> None:
    found = one(entry("absent", None), TEXTS, digest(NEW), "/state", "m")
    assert found.kept is None
    assert (found.diff or "").splitlines()[3:] == ["+a = 1", "+b = 3"]


def test_a_content_that_is_gone_is_no_difference() -> None:
    assert "original" in str(one(entry(), {digest(NEW): NEW}, None, "/s", "m").why_no_diff)
    assert "deployed" in str(one(entry(), {digest(OLD): OLD}, None, "/s", "m").why_no_diff)


def test_a_difference_too_long_for_a_page_is_counted() -> None:
    long = b"".join(b"x = %d\n" % number for number in range(MAX_DIFF_LINES))
    told = {**entry(old=b""), "after_sha256": digest(long)}
    found = one(told, {digest(b""): b"", digest(long): long}, None, "/s", "m")
    assert found.diff is None
    assert "too long" in str(found.why_no_diff)


class Node:
    """A node that has these files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.asked = files, []  # type: dict[str, bytes], list[str]

    def request(self, op: str, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert op == "read_files"
        self.asked += params["paths"]
        return {
            path: {
                "sha256": digest(self.files[path]),
                "z": base64.b64encode(zlib.compress(self.files[path])).decode(),
            }
            if path in self.files
            else {"error": {"kind": "missing", "message": "not there"}}
            for path in params["paths"]
        }


def read(node: Node, told: dict[str, Any], cache: Path) -> Any:
    session = replace(bench_kit.session(bench_kit.node(1, cache), cache), helper=node)  # type: ignore[arg-type]
    base = picture()
    state = {**base.facts, "state": {"dir": "/state"}}
    (found,) = replaced(session, replace(base, facts=state), {"files": [told]}, Contents(cache))
    return found


def test_contents_come_from_the_node_and_its_kept_originals(tmp_path: Path) -> None:
    node = Node({"/site/m.py": NEW, f"/state/blobs/{digest(OLD)}": OLD})
    found = read(node, entry(), tmp_path)
    assert "+b = 3" in found.diff
    assert found.now == "as deployed"


def test_what_this_machine_knows_is_not_fetched(tmp_path: Path) -> None:
    Contents(tmp_path).put(OLD)
    Contents(tmp_path).put(NEW)
    node = Node({"/site/m.py": b"changed by hand\n"})
    found = read(node, entry(), tmp_path)
    assert node.asked == ["/site/m.py"]
    assert found.now == "changed since"
    assert "+b = 3" in found.diff


def test_the_content_behind_a_link_that_was_replaced_is_found(tmp_path: Path) -> None:
    node = Node({"/site/m.py": NEW, "/blobs/old": OLD})
    found = read(node, entry("symlink", target="../blobs/old"), tmp_path)
    assert found.kind == "symlink"
    assert "-b = 2" in found.diff
