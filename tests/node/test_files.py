"""Facts of files: a wheel's own RECORD, symlinked snapshots, what cannot be read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from remote.node import files
from remote.node.base import OpError
from tests.node.kit import Probe, led_to, now_ns, unprivileged


def install(root: Path, version: str, sources: dict[str, bytes]) -> None:
    """Files as pip leaves them: with a RECORD that holds their hashes."""
    lines = []
    for path, data in sources.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{path},sha256={digest},{len(data)}")
    info = root / f"sglang-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "RECORD").write_text("\n".join([*lines, f"sglang-{version}.dist-info/RECORD,,"]) + "\n")


def look(probe: Probe, root: Path, *paths: str) -> dict[str, Any]:
    return files.files({"root": str(root), "paths": list(paths)}, probe.ctx)


def test_pristine_and_edited_files_against_record(probe: Probe, tmp_path: Path) -> None:
    install(tmp_path, "0.5.9", {"sglang/a.py": b"a = 1\n", "sglang/b.py": b"b = 1\n"})
    (tmp_path / "sglang/b.py").write_bytes(b"b = 2\n")
    (tmp_path / "sglang/new.py").write_bytes(b"")
    found = look(probe, tmp_path, "sglang/a.py", "sglang/b.py", "sglang/new.py", "sglang/none.py")
    assert found["sglang/a.py"]["sha256"] == found["sglang/a.py"]["record_sha256"]
    assert found["sglang/b.py"]["sha256"] != found["sglang/b.py"]["record_sha256"]
    assert found["sglang/b.py"]["record_sha256"] == hashlib.sha256(b"b = 1\n").hexdigest()
    assert found["sglang/new.py"]["record_sha256"] is None
    assert found["sglang/none.py"]["exists"] is False
    assert found["sglang/none.py"]["sha256"] is None


def test_two_records_that_disagree_say_nothing(probe: Probe, tmp_path: Path) -> None:
    install(tmp_path, "0.5.8", {"sglang/a.py": b"old\n", "sglang/same.py": b"same\n"})
    install(tmp_path, "0.5.9", {"sglang/a.py": b"new\n", "sglang/same.py": b"same\n"})
    found = look(probe, tmp_path, "sglang/a.py", "sglang/same.py")
    assert found["sglang/a.py"]["record_sha256"] is None
    assert found["sglang/same.py"]["record_sha256"] == found["sglang/same.py"]["sha256"]


def test_damaged_record_says_nothing(probe: Probe, tmp_path: Path) -> None:
    install(tmp_path, "0.5.9", {"sglang/a.py": b"a\n", "sglang/b.py": b"b\n"})
    record = tmp_path / "sglang-0.5.9.dist-info/RECORD"
    record.write_text(record.read_text().replace("sglang/a.py,sha256=", "sglang/a.py,sha256=x"))
    found = look(probe, tmp_path, "sglang/a.py", "sglang/b.py")
    assert found["sglang/a.py"]["record_sha256"] is None
    assert found["sglang/b.py"]["record_sha256"] == found["sglang/b.py"]["sha256"]


def test_record_of_another_distribution_is_not_taken(probe: Probe, tmp_path: Path) -> None:
    install(tmp_path, "0.5.9", {"sglang/a.py": b"a\n"})
    (tmp_path / "sglang-0.5.9.dist-info").rename(tmp_path / "sglang_router-0.5.9.dist-info")
    assert look(probe, tmp_path, "sglang/a.py")["sglang/a.py"]["record_sha256"] is None


def test_facts_of_a_file(probe: Probe, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"a\n")
    path.chmod(0o640)
    os.utime(path, ns=(5, 1234567890123456789))
    found = look(probe, tmp_path, "a.py")["a.py"]
    assert found["mode"] == 0o640
    assert found["mtime_ns"] == 1234567890123456789
    assert (found["uid"], found["gid"]) == (os.getuid(), os.getgid())
    assert found["size"] == 2
    assert found["real_path"] == str(path.resolve())
    assert found["symlink"] is None
    assert found["writable"] is True


def test_symlinked_snapshot_of_hugging_face(probe: Probe, tmp_path: Path) -> None:
    blob = tmp_path / "blobs/ab12"
    blob.parent.mkdir()
    blob.write_text('{"a": "\u00e9"}', encoding="utf-8")
    config = tmp_path / "snapshots/main/config.json"
    config.parent.mkdir(parents=True)
    config.symlink_to("../../blobs/ab12")
    found = files.configs({"paths": [str(config)]}, probe.ctx)[str(config)]
    assert found["symlink"] == "../../blobs/ab12"
    assert found["real_path"] == str(blob.resolve())
    assert json.loads(found["text"]) == {"a": "\u00e9"}
    blob.unlink()
    dangling = files.configs({"paths": [str(config)]}, probe.ctx)[str(config)]
    assert dangling["exists"] is False
    assert dangling["symlink"] == "../../blobs/ab12"
    assert dangling["text"] is None


def changed_ns(probe: Probe, path: Path) -> int:
    """The change time that is reported for a configuration file."""
    return int(files.configs({"paths": [str(path)]}, probe.ctx)[str(path)]["ctime_ns"])


@pytest.mark.parametrize("link", ["draft", "data/draft", "config.json", "chain"])
def test_a_link_that_was_led_elsewhere_is_a_change(probe: Probe, tmp_path: Path, link: str) -> None:
    """A checkpoint's folder, one above it, a snapshot's file, a link to a link: the new target is old."""
    tree = tmp_path / "tree"
    for name in ("old", "new"):
        (tree / name / "draft").mkdir(parents=True)
        (tree / name / "draft/config.json").write_text(name)
    made = {
        "draft": ("draft", "old/draft", "new/draft", "draft/config.json"),
        "data/draft": ("data", "old", "new", "data/draft/config.json"),
        "config.json": ("config.json", "old/draft/config.json", "new/draft/config.json", "config.json"),
        "chain": ("second", "old/draft", f"{tree}/new/../new/./draft", "first/config.json"),
    }
    name, old, new, path = made[link]
    (tree / name).symlink_to(old)
    if link == "chain":
        (tree / "first").symlink_to("second/")
    started = now_ns(tmp_path)
    assert changed_ns(probe, tree / path) < started
    led_to(tree / name, new)
    assert changed_ns(probe, tree / path) > started
    found = look(probe, tree, path)[path]
    assert found["ctime_ns"] > started, "source files are looked at in the same way"
    assert found["real_path"] == str((tree / "new/draft/config.json").resolve())


def test_a_model_directory_that_was_renamed_is_a_change(probe: Probe, tmp_path: Path) -> None:
    for name in ("draft", "draft.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
        os.utime(tmp_path / name, (1, 1))  # as rsync -a and cp -a leave it
    config = tmp_path / "draft/config.json"
    started = now_ns(tmp_path)
    assert changed_ns(probe, config) < started
    (tmp_path / "draft").rename(tmp_path / "draft.old")
    (tmp_path / "draft.new").rename(tmp_path / "draft")
    assert changed_ns(probe, config) > started


def test_what_is_written_beside_a_file_is_no_change_of_it(probe: Probe, tmp_path: Path) -> None:
    """Bytecode, a temporary file, another file replaced: a server that runs for weeks sees them all."""
    config = tmp_path / "draft/config.json"
    config.parent.mkdir()
    config.write_text("{}")
    (tmp_path / "draft/other").write_text("")
    started = now_ns(tmp_path)
    (tmp_path / "draft/__pycache__").mkdir()
    (tmp_path / "draft/new").write_text("")
    (tmp_path / "draft/new").replace(tmp_path / "draft/other")
    assert config.parent.stat().st_ctime_ns > started
    assert changed_ns(probe, config) < started


def test_text_is_limited_and_nothing_is_replaced_in_it(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (files.TEXT_LIMIT + 1))
    (tmp_path / "latin").write_bytes(b"\xbf{}")
    found = files.configs({"paths": [str(tmp_path / "big"), str(tmp_path / "latin")]}, probe.ctx)
    assert found[str(tmp_path / "big")]["text"] is None
    assert found[str(tmp_path / "big")]["size"] == files.TEXT_LIMIT + 1
    assert found[str(tmp_path / "latin")]["text"] is None
    assert found[str(tmp_path / "latin")]["problem"] == "byte 1 is not UTF-8"


def test_one_failure_does_not_hide_others(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    (tmp_path / "good").write_text("x")
    found = look(probe, tmp_path, "loop", "directory", "good")
    assert found["loop"]["error"]["kind"] == "unsupported"
    assert found["directory"]["error"]["kind"] == "unsupported"
    assert found["good"]["exists"] is True


def test_unreadable_and_unwritable_for_another_user(open_path: Path) -> None:
    """Permission is an error, never "does not exist"."""
    (open_path / "secret").write_text("x")
    (open_path / "secret").chmod(0)
    (open_path / "open").write_text("y")
    open_path.chmod(0o555)
    code = "print(json.dumps(files.files({'root': sys.argv[1], 'paths': ['secret', 'open']}, None)))"
    found = unprivileged("files", code, str(open_path))
    assert found["secret"]["error"]["kind"] == "permission"
    assert found["open"]["exists"] is True
    assert found["open"]["writable"] is False


def test_read_files(probe: Probe, tmp_path: Path) -> None:
    data = bytes(range(256)) * 50
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(b"x" * 20000)
    names = [str(tmp_path / name) for name in ("a", "b", "c")]
    found = files.read_files({"paths": names, "max_bytes": 15000}, probe.ctx)
    assert zlib.decompress(base64.b64decode(found[names[0]]["z"])) == data
    assert found[names[0]]["sha256"] == hashlib.sha256(data).hexdigest()
    assert found[names[1]]["error"]["kind"] == "unsupported"
    assert found[names[2]]["error"]["kind"] == "missing"


def test_relative_path_of_a_config_is_refused(probe: Probe) -> None:
    found = files.configs({"paths": ["etc/passwd"]}, probe.ctx)
    assert found["etc/passwd"]["error"]["kind"] == "precondition"
    with pytest.raises(OpError):
        files.files({"root": "relative", "paths": []}, probe.ctx)
