"""Replacing files: all or none, and exactly back."""

from __future__ import annotations

import base64
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from remote.node import backup, rollback
from remote.node.base import OpError
from tests.node.kit import Probe
from tests.node.replacing import digest, restore, snapshot, stands, wanted, write


def test_replaced_and_exactly_back(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    done = write(
        probe,
        wanted(node / "a.py", b"a = 2\n"),
        wanted(node / "new.py", b"c = 3\n"),
        wanted(node / "config.json", b'{"ids": [-1]}', replace_symlink=True),
    )
    assert [(entry["path"], entry["changed"]) for entry in done] == [
        (str(node / name), True) for name in ("a.py", "new.py", "config.json")
    ]
    assert done[0]["before_sha256"] == digest(b"a = 1\n")
    assert done[0]["after_sha256"] == digest(b"a = 2\n")
    assert Path(done[0]["backup"]).read_bytes() == b"a = 1\n"
    assert (done[1]["before_sha256"], done[1]["backup"]) == (None, None)
    assert (node / "a.py").read_bytes() == b"a = 2\n"
    assert snapshot(node)[str(node / "a.py")][:3] == before[str(node / "a.py")][:3]  # mode and owner are kept
    assert (node / "a.py").stat().st_mtime_ns != before[str(node / "a.py")][3]
    assert stat.S_IMODE((node / "new.py").stat().st_mode) == 0o644
    assert not (node / "config.json").is_symlink()
    assert (node / "blobs/ab12").read_text() == '{"ids": [2]}'  # the shared blob is not touched
    deployed, seen = snapshot(node), stands(probe)
    assert [entry["in_place"] for entry in seen] == [False, False, False]
    assert [entry["sha256"] for entry in seen] == [each["after_sha256"] for each in done]
    assert snapshot(node) == deployed
    back = restore(probe)
    assert [entry["changed"] for entry in back] == [True, True, True]
    assert [entry["in_place"] for entry in stands(probe)] == [True, True, True]
    assert [entry["sha256"] for entry in back] == [digest(b"a = 1\n"), None, digest(b'{"ids": [2]}')]
    assert [entry["symlink"] for entry in back] == [None, None, "blobs/ab12"]
    assert snapshot(node) == before
    assert [entry["changed"] for entry in restore(probe)] == [False, False, False]
    assert snapshot(node) == before
    assert probe.state.latest("deploys", 1)[0]["outcome"] == "restored"


# posix_acl_xattr.h: version 2, then (tag, permissions, id): owner rw, uid 1000 r, group r, mask r, others -.
_NOBODY = 0xFFFFFFFF
_ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, _NOBODY), (2, 4, 1000), (4, 4, _NOBODY), (0x10, 4, _NOBODY), (0x20, 0, _NOBODY))
)


def test_access_control_list_and_attributes_are_kept_and_come_back(probe: Probe, node: Path) -> None:
    """The server's user could read the file by its list only: a deploy lost it, and a rollback too."""
    attributes = {"system.posix_acl_access": _ACL, "user.origin": b"registry"}

    def found() -> dict[str, bytes]:
        return {name: os.getxattr(node / "a.py", name) for name in os.listxattr(node / "a.py")}

    try:
        for name, value in attributes.items():
            os.setxattr(node / "a.py", name, value)
    except OSError:
        pytest.skip("this file system has no attributes")
    write(probe, wanted(node / "a.py", b"a = 2\n"))
    assert found() == attributes
    os.removexattr(node / "a.py", "system.posix_acl_access")
    restore(probe)
    assert found() == attributes
    assert [entry["in_place"] for entry in stands(probe)] == [True]


def test_file_behind_a_link_is_replaced_in_its_place(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    (done,) = write(probe, wanted(node / "config.json", b"{}"))
    assert done["real_path"] == str(node / "blobs/ab12")
    assert (node / "config.json").is_symlink()
    assert (node / "blobs/ab12").read_bytes() == b"{}"
    restore(probe)
    assert snapshot(node) == before


def test_link_that_is_replaced_takes_the_files_mode(probe: Probe, node: Path) -> None:
    (node / "blobs/ab12").chmod(0o604)
    write(probe, wanted(node / "config.json", b"{}", replace_symlink=True))
    assert stat.S_IMODE((node / "config.json").lstat().st_mode) == 0o604


@pytest.mark.parametrize("replace", [True, False])
def test_empty_file_behind_a_link(probe: Probe, node: Path, replace: bool) -> None:
    (node / "blobs/ab12").write_bytes(b"")
    before = snapshot(node)
    (done,) = write(probe, wanted(node / "config.json", b"{}", replace_symlink=replace))
    assert done["before_sha256"] == digest(b"")
    restore(probe)
    assert snapshot(node) == before


def test_nothing_to_do_changes_nothing(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    (done,) = write(probe, wanted(node / "a.py", b"a = 1\n"))
    assert (done["changed"], done["backup"]) == (False, None)
    assert snapshot(node) == before
    assert probe.state.latest("deploys", 5) == []


def test_mode_is_a_change(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    assert write(probe, wanted(node / "a.py", b"a = 1\n", mode=0o600))[0]["changed"] is True
    assert stat.S_IMODE((node / "a.py").stat().st_mode) == 0o600
    assert write(probe, wanted(node / "a.py", b"a = 1\n", mode=0o600))[0]["changed"] is False
    restore(probe)
    assert snapshot(node) == before


def test_hard_link_elsewhere_keeps_the_original(probe: Probe, node: Path) -> None:
    """uv installs by hard links into its cache: the cache must not change."""
    (node / "cache").hardlink_to(node / "a.py")
    write(probe, wanted(node / "a.py", b"a = 2\n"))
    assert (node / "cache").read_bytes() == b"a = 1\n"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"expect_sha256": "0" * 64}, "precondition"),
        ({"expect_sha256": None}, "precondition"),
        ({"z": base64.b64encode(zlib.compress(b"b = (\n")).decode()}, "compile"),
        ({"path": "relative.py"}, "precondition"),
    ],
)
def test_one_refusal_refuses_all(probe: Probe, node: Path, change: dict[str, Any], kind: str) -> None:
    before = snapshot(node)
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "a.py", b"a = 2\n"), {**wanted(node / "b.py", b"b = 2\n"), **change})
    assert caught.value.kind == kind
    assert snapshot(node) == before
    assert probe.state.interrupted() == []


def test_refusals_tell_path_and_line(probe: Probe, node: Path) -> None:
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "a.py", b"a = 1\nb = (\n"))
    assert caught.value.data["path"] == str(node / "a.py")
    assert caught.value.data["line"] == 2
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "a.py", b"", expect_sha256="0" * 64))
    assert caught.value.data == {
        "path": str(node / "a.py"),
        "expected": "0" * 64,
        "found": digest(b"a = 1\n"),
    }


def test_file_that_must_exist_or_must_not(probe: Probe, node: Path) -> None:
    for path, expect in ((node / "none.py", digest(b"")), (node / "a.py", None)):
        with pytest.raises(OpError) as caught:
            write(probe, wanted(path, b"", expect_sha256=expect))
        assert caught.value.kind == "precondition"
    (node / "dangling").symlink_to("nowhere")
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "dangling", b"", replace_symlink=True))
    assert caught.value.kind == "precondition"
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "blobs", b""))
    assert caught.value.kind == "unsupported"
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "no/such/folder.json", b""))
    assert caught.value.kind == "missing"


def test_same_file_under_two_names_is_refused(probe: Probe, node: Path) -> None:
    with pytest.raises(OpError) as caught:
        write(probe, wanted(node / "config.json", b"1"), wanted(node / "blobs/ab12", b"2"))
    assert caught.value.kind == "unsupported"


def test_prepared_files_look_like_no_module(probe: Probe, node: Path) -> None:
    entry, _, _ = backup._plan(wanted(node / "a.py", b"a = 2\n"), "d1")
    assert not entry["staged"].endswith((".py", ".pyc", ".json"))
    assert Path(entry["staged"]).parent == node
    write(probe, wanted(node / "a.py", b"a = 2\n"))
    assert sorted(path.name for path in node.iterdir()) == ["a.py", "b.py", "blobs", "config.json"]


def test_second_write_of_a_deploy_keeps_the_first_original(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    write(probe, wanted(node / "a.py", b"a = 2\n"))
    write(probe, wanted(node / "a.py", b"a = 3\n"), wanted(node / "b.py", b"b = 3\n"))
    assert len(probe.state.latest("deploys", 5)) == 1
    restore(probe)
    assert snapshot(node) == before


def test_later_deploy_is_not_overwritten_by_an_earlier_rollback(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    write(probe, wanted(node / "a.py", b"a = 3\n"), deploy_id="d2")
    now = snapshot(node)
    with pytest.raises(OpError) as caught:
        restore(probe)
    assert caught.value.kind == "precondition"
    moved = {"path": str(node / "a.py"), "expected": digest(b"a = 2\n"), "found": digest(b"a = 3\n")}
    assert caught.value.data["files"] == [moved]
    assert snapshot(node) == now
    restore(probe, expect={str(node / "a.py"): digest(b"a = 3\n")})
    assert snapshot(node) == before


def test_force_and_what_was_put_back_by_hand(probe: Probe, node: Path) -> None:
    before = snapshot(node)
    write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    (node / "a.py").write_bytes(b"a = 1\n")  # somebody's own rollback: content only
    restore(probe)
    assert snapshot(node) == before
    write(probe, wanted(node / "a.py", b"a = 2\n"), deploy_id="d2")
    (node / "a.py").unlink()
    with pytest.raises(OpError):
        restore(probe, "d2")
    restore(probe, "d2", force=True)
    assert snapshot(node) == before


def test_unknown_deploy_and_wrong_names(probe: Probe, node: Path) -> None:
    with pytest.raises(OpError) as caught:
        restore(probe, "none")
    assert caught.value.kind == "missing"
    for name in ("../x", "", ".hidden", "a/b", None):
        with pytest.raises(OpError) as caught:
            backup.write_files({"deploy_id": name, "files": [wanted(node / "a.py", b"")]}, probe.ctx)
        assert caught.value.kind == "precondition"


def test_damaged_original_is_noticed_before_anything_is_put_back(probe: Probe, node: Path) -> None:
    done = write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    now = snapshot(node)
    Path(done[1]["backup"]).write_bytes(b"x")
    with pytest.raises(OpError, match=r"b\.py: its original is lost") as caught:
        restore(probe)
    assert caught.value.kind == "missing"
    assert snapshot(node) == now
    assert probe.state.interrupted() == [], "each changing command after it was refused, for ever"


def test_an_interrupted_run_whose_original_is_lost_is_ended_all_the_same(probe: Probe, node: Path) -> None:
    done = write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    record = probe.state.read_record("deploys", "d1", "manifest.json") or {}
    probe.state.write_record({**record, "pending": record["files"]}, "deploys", "d1", "manifest.json")
    Path(done[1]["backup"]).unlink()
    found = rollback.recover({}, probe.ctx)
    assert found["foreign"] == [f"{node / 'b.py'} (its original is lost)"]
    assert ((node / "a.py").read_bytes(), (node / "b.py").read_bytes()) == (b"a = 1\n", b"b = 2\n")
    assert probe.state.interrupted() == []


def test_they_are_changes() -> None:
    for op in (backup.write_files, rollback.restore, rollback.recover):
        assert op.CHANGES  # type: ignore[attr-defined]
