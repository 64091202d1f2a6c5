"""Replacing files: all or none, whenever the process dies; and what the next run recovers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from remote.node import rollback
from remote.node.base import OpError
from tests.node.kit import ROOT, Probe
from tests.node.replacing import restore, wanted, write

CRASH = """
import json, os, shutil, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from remote.node import backup, fsio, rollback
from tests.node.kit import Probe
from tests.node.replacing import snapshot, wanted

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
