"""Replacing files where the disk, the permissions or somebody else do not allow it: nothing is changed."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remote.node import backup, fsio, rollback
from remote.node.base import OpError
from remote.node.state import State
from tests.node.kit import ROOT, Probe, unprivileged
from tests.node.replacing import restore, snapshot, wanted, write

LIMITED = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from remote.node import backup
from remote.node.base import OpError
from tests.node.kit import Probe
probe = Probe(Path(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    backup.write_files(json.load(sys.stdin), probe.ctx)
except OpError as error:
    print(json.dumps([error.kind, error.data.get("path")]))
"""


def test_full_disk_changes_nothing_and_names_the_path(probe: Probe, node: Path) -> None:
    """A limit on the size of files stands in for a full disk: the second of the new contents does not fit."""
    before = snapshot(node)
    request = {
        "deploy_id": "d1",
        "files": [wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"#" * 9000 + b"\n")],
    }
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(ROOT), probe.state.dir],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["no-space", str(node / "b.py")]
    assert snapshot(node) == before
    assert probe.state.interrupted() == []
    assert probe.state.latest("deploys", 1)[0]["outcome"] == "undone"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 8192


def test_directory_of_somebody_else(open_path: Path) -> None:
    folder = open_path / "node"
    folder.mkdir()
    (folder / "a.py").write_text("a = 1\n")
    before = snapshot(folder)
    (open_path / "state").mkdir()
    (open_path / "state").chmod(0o777)
    folder.chmod(0o555)
    code = (
        "probe = Probe(__import__('pathlib').Path(sys.argv[1]) / 'state')\n"
        "try:\n    backup.write_files(json.loads(sys.argv[2]), probe.ctx)\n"
        "except OpError as error:\n    print(json.dumps([error.kind, error.data['path']]))\n"
    )
    request = {"deploy_id": "d1", "files": [wanted(folder / "a.py", b"a = 2\n")]}
    answer = unprivileged("backup", code, str(open_path), json.dumps(request))
    folder.chmod(0o755)
    assert answer == ["permission", str(folder / "a.py")]
    assert snapshot(folder) == before


def test_what_the_kernel_says_is_told_by_kind() -> None:
    kinds = {
        errno.ENOSPC: "no-space",
        errno.EDQUOT: "no-space",
        errno.EROFS: "read-only",
        errno.EACCES: "permission",
    }
    kinds |= {
        errno.ENOENT: "missing",
        errno.EBUSY: "unsupported",
        errno.EIO: "unsupported",
        errno.ENOTTY: "internal",
    }
    for number, kind in kinds.items():
        error = fsio.op_error(OSError(number, os.strerror(number)), "/some/path")
        assert error.kind == kind
        assert error.message.startswith("/some/path: ")
        assert error.data["path"] == "/some/path"


def test_what_even_root_may_not_do_is_no_matter_of_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """`set sudo: true` was all that was said of an immutable file."""
    for uid, told in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        error = fsio.op_error(PermissionError(errno.EPERM, "Operation not permitted"), "/a.py")
        assert ("lsattr" in error.message, error.kind == "unsupported") == (told, told)


def test_a_restore_that_comes_half_way_says_so(
    probe: Probe, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an immutable file: "not permitted" was all that was said, and the other files had been put back."""
    before = snapshot(node)
    write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    replace = os.replace

    def refuse(source: str, target: str) -> None:
        if target == str(node / "a.py"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        replace(source, target)

    with monkeypatch.context() as immutable:
        immutable.setattr(os, "replace", refuse)
        with pytest.raises(
            OpError, match=r"a\.py: .*; 1 of 2 files are put back, the next command"
        ) as caught:
            restore(probe)
    assert caught.value.data["path"] == str(node / "a.py")
    assert rollback.recover({}, probe.ctx)["foreign"] == []
    assert snapshot(node) == before


def test_failure_between_renames_puts_the_renamed_ones_back(probe: Probe, node: Path) -> None:
    """The second target becomes a directory just before the renames: its own fails, the first is undone."""
    before = snapshot(node)
    entries = []
    for path, new in ((node / "a.py", b"a = 2\n"), (node / "new", b"x")):
        entry, _, now = backup._plan(wanted(path, new), "d1")
        entries.append(entry)
        if now is not None:
            probe.state.keep(now)

    class Meddler(State):
        def write_record(self, record: dict[str, Any], *parts: str) -> None:
            super().write_record(record, *parts)
            if record.get("pending"):
                (node / "new").mkdir()

    meddler = Meddler(probe.state.dir)
    entries[1]["original"] = {"kind": "absent", "sha256": None}
    manifest = {"deploy_id": "d1", "begun": 1.0, "files": [], "outcome": None}
    contents: list[tuple[bytes, int | None]] = [(b"a = 2\n", None), (b"x", None)]
    untouched, backup._check_untouched = backup._check_untouched, lambda _entry: None  # it would notice
    try:
        with pytest.raises(OpError) as caught:
            backup._replace_all(entries, contents, meddler, manifest)
    finally:
        backup._check_untouched = untouched
    assert caught.value.kind == "unsupported"
    (node / "new").rmdir()
    assert snapshot(node) == before
    assert probe.state.interrupted() == []


def test_edit_between_look_and_rename_is_noticed(probe: Probe, node: Path) -> None:
    class Meddler(State):
        def write_record(self, record: dict[str, Any], *parts: str) -> None:
            super().write_record(record, *parts)
            if record.get("pending"):
                (node / "b.py").write_bytes(b"b = 9\n")

    probe.state = Meddler(probe.state.dir)
    with pytest.raises(OpError, match="meanwhile") as caught:
        write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    assert caught.value.kind == "precondition"
    assert (node / "a.py").read_bytes() == b"a = 1\n"
