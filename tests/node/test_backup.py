"""Replacing files: all or none, whenever the process dies; and exactly back."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import resource
import stat
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from remote.node import backup, fsio, rollback
from remote.node.base import OpError
from remote.node.state import State
from tests.node.kit import ROOT, Probe, unprivileged


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wanted(path: Path, new: bytes, **changes: Any) -> dict[str, Any]:
    """One file of a request, its precondition taken from what is there."""
    expect = digest(path.read_bytes()) if path.is_file() else None
    packed = base64.b64encode(zlib.compress(new)).decode()
    return {
        "path": str(path),
        "z": packed,
        "expect_sha256": expect,
        "mode": None,
        "compile": path.suffix == ".py",
        "replace_symlink": False,
        **changes,
    }


def write(probe: Probe, *files: dict[str, Any], deploy_id: str = "d1") -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = backup.write_files(
        {"deploy_id": deploy_id, "files": list(files)}, probe.ctx
    )["files"]
    return result


def restore(probe: Probe, deploy_id: str = "d1", **params: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = rollback.restore({"deploy_id": deploy_id, **params}, probe.ctx)["files"]
    return result


def snapshot(directory: Path) -> dict[str, Any]:
    """All that "exactly back" means, of everything below a directory; times not of folders."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        info = path.lstat()
        content: Any = (
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        )
        times = None if stat.S_ISDIR(info.st_mode) else info.st_mtime_ns
        found[str(path)] = (info.st_mode, info.st_uid, info.st_gid, times, content)
    return found


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Some files of a node: sources with a mode and times of their own, a linked configuration."""
    made = tmp_path / "node"
    (made / "blobs").mkdir(parents=True)
    for name, text in (("a.py", "a = 1\n"), ("b.py", "b = 1\n")):
        (made / name).write_text(text)
        (made / name).chmod(0o640)
        os.utime(made / name, ns=(1_000_000_000_123_456_789, 1_500_000_000_987_654_321))
    (made / "blobs/ab12").write_text('{"ids": [2]}')
    (made / "config.json").symlink_to("blobs/ab12")
    os.utime(made / "config.json", ns=(5, 1_400_000_000_000_000_001), follow_symlinks=False)
    if os.geteuid() == 0:
        os.chown(made / "a.py", 12, 34)
    return made


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
    back = restore(probe)
    assert [entry["changed"] for entry in back] == [True, True, True]
    assert [entry["sha256"] for entry in back] == [digest(b"a = 1\n"), None, digest(b'{"ids": [2]}')]
    assert snapshot(node) == before
    assert [entry["changed"] for entry in restore(probe)] == [False, False, False]
    assert snapshot(node) == before
    assert probe.state.latest("deploys", 1)[0]["outcome"] == "restored"


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
    with pytest.raises(OpError) as caught:
        restore(probe)
    assert caught.value.kind == "missing"
    assert snapshot(node) == now


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
        errno.EPERM: "permission",
        errno.ENOENT: "missing",
        errno.EBUSY: "unsupported",
        errno.EIO: "internal",
    }
    for number, kind in kinds.items():
        error = fsio.op_error(OSError(number, os.strerror(number)), "/some/path")
        assert error.kind == kind
        assert error.message.startswith("/some/path: ")
        assert error.data["path"] == "/some/path"


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


CRASH = """
import json, os, shutil, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from remote.node import backup, fsio, rollback
from tests.node.kit import Probe
from tests.node.test_backup import snapshot, wanted

home = Path(sys.argv[2])
what = sys.argv[3]
node, state = home / "node", home / "state"

def setup():
    for folder in (node, state):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(home / "template", node, symlinks=True)
    probe = Probe(state)
    probe.state.take_lock({"who": "crashing"})
    return probe

def change(probe):
    files = [wanted(node / "a.py", b"a = 2\\n"), wanted(node / "new.py", b"c = 1\\n"),
             wanted(node / "config.json", b"{}", replace_symlink=True), wanted(node / "b.py", b"b = 2\\n")]
    backup.write_files({"deploy_id": "d1", "files": files}, probe.ctx)

def crash_at(number):
    calls = 0
    def counted(function):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return call
    for name in ("open", "write", "fsync", "replace", "unlink", "symlink", "chmod", "chown", "utime", "mkdir",
                 "fchmod"):
        setattr(os, name, counted(getattr(os, name)))

os.fsync = lambda _handle: None  # a killed process loses nothing of what it wrote; only a power cut would
number = 0
seen = {"old": 0, "new": 0}
while True:
    number += 1
    probe = setup()
    old = snapshot(node)
    if what == "restore":
        change(probe)
    probe.state.release_lock()
    pid = os.fork()
    if pid == 0:
        victim = Probe(state)
        crash_at(number)
        victim.state.take_lock({"who": "victim"})
        change(victim) if what == "write" else rollback.restore({"deploy_id": "d1"}, victim.ctx)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    probe = Probe(state)
    probe.state.take_lock({"who": "next"})
    interrupted = probe.state.interrupted()
    done = rollback.recover({}, probe.ctx)
    assert [entry["deploy_id"] for entry in done["recovered"]] == interrupted, done
    assert done["foreign"] == [], done
    assert probe.state.interrupted() == []
    now = snapshot(node)
    names = sorted(path.name for path in node.iterdir())
    if now == old:
        seen["old"] += 1
    else:
        assert names == ["a.py", "b.py", "blobs", "config.json", "new.py"], names
        contents = [(node / name).read_bytes() for name in ("a.py", "b.py", "config.json", "new.py")]
        assert contents == [b"a = 2\\n", b"b = 2\\n", b"{}", b"c = 1\\n"], contents
        assert (node / "blobs/ab12").read_text() == '{"ids": [2]}'
        seen["new"] += 1
        rollback.restore({"deploy_id": "d1"}, probe.ctx)
        assert snapshot(node) == old
    probe.state.release_lock()
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print(json.dumps({"points": number, **seen}))
"""


@pytest.mark.parametrize("what", ["write", "restore"])
def test_killed_at_any_point_leaves_all_old_or_all_new(tmp_path: Path, node: Path, what: str) -> None:
    """The process is killed at each of its calls to the system in turn; then the next run recovers."""
    node.rename(tmp_path / "template")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CRASH, str(ROOT), str(tmp_path), what],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["points"] > 40
    assert seen["old"] > 10
    assert seen["new"] > 0


def test_recover_leaves_a_file_alone_that_somebody_changed_since(probe: Probe, node: Path) -> None:
    write(probe, wanted(node / "a.py", b"a = 2\n"), wanted(node / "b.py", b"b = 2\n"))
    record = probe.state.read_record("deploys", "d1", "manifest.json") or {}
    probe.state.write_record(
        {**record, "pending": record["files"], "files": []}, "deploys", "d1", "manifest.json"
    )
    with pytest.raises(OpError, match="recovered first"):
        write(probe, wanted(node / "a.py", b"a = 3\n"))
    with pytest.raises(OpError, match="recovered first"):
        restore(probe)
    (node / "b.py").write_bytes(b"b = 'mine'\n")
    done = rollback.recover({}, probe.ctx)
    assert done == {
        "recovered": [{"deploy_id": "d1", "files": [str(node / "a.py")]}],
        "foreign": [str(node / "b.py")],
    }
    assert (node / "a.py").read_bytes() == b"a = 1\n"
    assert (node / "b.py").read_bytes() == b"b = 'mine'\n"
    assert rollback.recover({}, probe.ctx) == {"recovered": [], "foreign": []}


def test_they_are_changes() -> None:
    for op in (backup.write_files, rollback.restore, rollback.recover):
        assert op.CHANGES  # type: ignore[attr-defined]
