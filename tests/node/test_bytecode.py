"""Compiled files: every verdict is compared with what a real interpreter then does."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from remote.node import bytecode
from remote.node.base import OpError
from tests.node.kit import Probe, unprivileged

OLD = "VALUE = 'old'\n"
NEW = "VALUE = 'new'\n"
Mode = py_compile.PycInvalidationMode


def imported(directory: Path, *flags: str, **env: str) -> str:
    """What an interpreter imports as m; it writes no bytecode of its own."""
    done = subprocess.run(
        [sys.executable, "-B", *flags, "-c", "import m; print(m.VALUE)"],
        cwd=directory,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "failed"


def source(directory: Path, text: str, mtime: float | None = None) -> Path:
    path = directory / "m.py"
    path.write_text(text)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


def compiled(path: Path, mode: Mode = Mode.TIMESTAMP, optimize: int = -1) -> Path:
    return Path(py_compile.compile(str(path), doraise=True, invalidation_mode=mode, optimize=optimize) or "")


def look(probe: Probe, path: Path, **env: str) -> dict[str, dict[str, Any]]:
    """Compiled file name -> facts."""
    found = bytecode.bytecode({"files": [str(path)], "env": env}, probe.ctx)[str(path)]
    return {pyc["path"]: pyc for pyc in found["pycs"]}


def verdict(probe: Probe, path: Path, **env: str) -> tuple[bool, bool | None]:
    (pyc,) = look(probe, path, **env).values()
    return pyc["believed"], pyc["stale"]


def test_no_compiled_file(probe: Probe, tmp_path: Path) -> None:
    assert look(probe, source(tmp_path, OLD)) == {}


def test_fresh(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, NEW)
    pyc = compiled(path)
    facts = look(probe, path)[str(pyc)]
    assert (facts["kind"], facts["magic_ours"], facts["believed"], facts["stale"]) == (
        "timestamp",
        True,
        True,
        False,
    )
    assert facts["tag"] == sys.implementation.cache_tag
    assert facts["mtime_ns"] == pyc.stat().st_mtime_ns
    assert imported(tmp_path) == "new"


def test_edited_source_with_another_time_or_size(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, OLD, 1000)
    compiled(path)
    source(tmp_path, NEW, 1001)
    assert verdict(probe, path) == (False, False)
    assert imported(tmp_path) == "new"
    source(tmp_path, "VALUE = 'longer'\n", 1000)
    assert verdict(probe, path) == (False, False)
    assert imported(tmp_path) == "longer"


@pytest.mark.parametrize("mtime", [1000.0, 0.0])
def test_same_second_and_same_size_is_believed_and_stale(probe: Probe, tmp_path: Path, mtime: float) -> None:
    """Also with time 0, as ostree and composefs images have it (case 071)."""
    path = source(tmp_path, OLD, mtime)
    compiled(path)
    source(tmp_path, NEW, mtime + 0.75)
    assert verdict(probe, path) == (True, True)
    assert imported(tmp_path) == "old"


def test_same_code_but_for_a_comment_is_not_stale(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, NEW + "# a\n", 1000)
    compiled(path)
    source(tmp_path, NEW + "# b\n", 1000)
    assert verdict(probe, path) == (True, False)


@pytest.mark.parametrize(
    ("mode", "kind", "expected", "value"),
    [
        (Mode.CHECKED_HASH, "checked-hash", (False, False), "new"),
        (Mode.UNCHECKED_HASH, "unchecked-hash", (True, True), "old"),  # case 071
    ],
)
def test_hash_based(
    probe: Probe, tmp_path: Path, mode: Mode, kind: str, expected: tuple[bool, bool], value: str
) -> None:
    path = source(tmp_path, OLD)
    pyc = compiled(path, mode)
    assert verdict(probe, path) == (True, False)
    assert imported(tmp_path) == "old"
    source(tmp_path, NEW, 5)
    assert verdict(probe, path) == expected
    assert look(probe, path)[str(pyc)]["kind"] == kind
    assert imported(tmp_path) == value


def test_optimization_levels_are_files_of_their_own(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, OLD, 1000)
    pycs = [compiled(path, optimize=level) for level in (0, 1, 2)]
    source(tmp_path, NEW, 1000)
    found = look(probe, path)
    assert [found[str(pyc)]["optimization"] for pyc in pycs] == ["0", "1", "2"]
    assert all(found[str(pyc)]["stale"] for pyc in pycs)
    assert [imported(tmp_path, *flags) for flags in ([], ["-O"], ["-OO"])] == ["old"] * 3


def test_asserts_and_docstrings_do_not_make_an_optimized_file_stale(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, "def f():\n    '''doc'''\n    assert f\n    return {1, 2} | {'a', 'b'}\n")
    for level in (0, 1, 2):
        compiled(path, optimize=level)
    assert [(pyc["believed"], pyc["stale"]) for pyc in look(probe, path).values()] == [(True, False)] * 3


def test_other_interpreters_files(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, NEW)
    pyc = compiled(path)
    other = pyc.with_name("m.cpython-399.pyc")
    other.write_bytes(pyc.read_bytes())
    pyc.write_bytes(b"\x00\x00\r\n" + pyc.read_bytes()[4:])
    found = look(probe, path)
    assert (found[str(pyc)]["magic_ours"], found[str(pyc)]["believed"], found[str(pyc)]["stale"]) == (
        False,
        False,
        None,
    )
    assert (found[str(other)]["magic_ours"], found[str(other)]["believed"]) == (True, False)
    assert imported(tmp_path) == "new"


def test_pycache_prefix(probe: Probe, tmp_path: Path) -> None:
    """With a prefix the interpreter looks there only."""
    prefix = tmp_path / "cache"
    path = source(tmp_path, OLD, 1000)
    beside = compiled(path)
    moved = prefix / str(tmp_path).lstrip("/") / beside.name
    moved.parent.mkdir(parents=True)
    moved.write_bytes(beside.read_bytes())
    source(tmp_path, NEW, 1000)
    found = look(probe, path, PYTHONPYCACHEPREFIX=str(prefix))
    assert (found[str(moved)]["believed"], found[str(moved)]["stale"]) == (True, True)
    assert (found[str(beside)]["believed"], found[str(beside)]["stale"]) == (False, False)
    assert imported(tmp_path, PYTHONPYCACHEPREFIX=str(prefix)) == "old"
    moved.unlink()
    assert imported(tmp_path, PYTHONPYCACHEPREFIX=str(prefix)) == "new"
    assert imported(tmp_path) == "old"
    assert verdict(probe, path) == (True, True)


def test_prefix_agrees_with_importlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in (str(tmp_path / "p"), str(tmp_path / "p") + "/"):
        monkeypatch.setattr(sys, "pycache_prefix", prefix)
        expected = str(Path(importlib.util.cache_from_source("/some/where/m.py")).parent)
        assert bytecode.folder_of("/some/where/m.py", prefix) == expected


@pytest.mark.parametrize(
    ("cut", "believed", "value"),
    [(0, False, "new"), (12, False, "new"), (17, True, "failed"), (30, True, "failed")],
)
def test_cut_off_files(probe: Probe, tmp_path: Path, cut: int, believed: bool, value: str) -> None:
    path = source(tmp_path, NEW)
    pyc = compiled(path)
    pyc.write_bytes(pyc.read_bytes()[:cut])
    assert verdict(probe, path) == (believed, believed if cut >= 4 else None)
    assert imported(tmp_path) == value


def test_unknown_flags_are_not_believed(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, NEW)
    pyc = compiled(path)
    pyc.write_bytes(pyc.read_bytes()[:4] + b"\x04\0\0\0" + pyc.read_bytes()[8:])
    (facts,) = look(probe, path).values()
    assert facts["believed"] is False


def test_flags_of_the_case() -> None:
    """Case 071: bytes 4 to 8 of the two files in the input."""
    flags = {"m": bytes.fromhex("01000000"), "n": bytes.fromhex("00000000")}
    assert {name: int.from_bytes(data, "little") for name, data in flags.items()} == {"m": 1, "n": 0}


def test_source_that_does_not_compile(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, OLD, 1000)
    compiled(path)
    source(tmp_path, "VALUE = 'new\n\n", 1000)
    assert verdict(probe, path) == (True, True)


def test_link_and_directory_in_the_place_of_a_compiled_file(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, NEW)
    pyc = compiled(path)
    pyc.unlink()
    pyc.mkdir()
    assert verdict(probe, path) == (None, None)


def test_what_shadows_a_source(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, NEW)
    assert bytecode.shadow(str(path)) is None
    (tmp_path / "m").mkdir()
    assert bytecode.shadow(str(path)) is None
    (tmp_path / "m/__init__.py").write_text("VALUE = 'package'\n")
    found = bytecode.bytecode({"files": [str(path)]}, probe.ctx)
    assert found[str(path)]["shadow"] == str(tmp_path / "m/__init__.py")
    assert imported(tmp_path) == "package"
    (tmp_path / "m/__init__.py").unlink()
    (tmp_path / f"m{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    assert bytecode.shadow(str(path)) == str(tmp_path / f"m{EXTENSION_SUFFIXES[0]}")
    assert imported(tmp_path) == "failed"


def test_missing_source_and_wrong_names(probe: Probe, tmp_path: Path) -> None:
    names = [str(tmp_path / "none.py"), str(tmp_path / "text.txt"), "m.py"]
    found = bytecode.bytecode({"files": names}, probe.ctx)
    assert [found[name]["error"]["kind"] for name in names] == ["missing", "precondition", "precondition"]


def test_purge_removes_every_form_and_nothing_else(probe: Probe, tmp_path: Path) -> None:
    """Case 082 too: what is not compiled from these sources stays, kernel caches above all."""
    path = source(tmp_path, OLD)
    prefix = tmp_path / "prefix"
    pycs = [compiled(path, optimize=level) for level in (0, 1, 2)]
    pycs.append(pycs[0].with_name("m.cpython-38.pyc"))
    pycs.append(prefix / str(tmp_path).lstrip("/") / pycs[0].name)
    pycs[4].parent.mkdir(parents=True)
    others = [pycs[0].with_name(name) for name in ("m2.cpython-311.pyc", "mm.cpython-311.pyc", "m.txt")]
    others.append(tmp_path / ".triton/cache/x.pyc")
    others[-1].parent.mkdir(parents=True)
    for file in (*pycs[3:], *others):
        file.write_bytes(b"x")
    params = {"files": [str(path)], "env": {"PYTHONPYCACHEPREFIX": str(prefix)}}
    done = bytecode.purge(params, probe.ctx)
    assert sorted(done["removed"]) == sorted(map(str, pycs))
    assert done["remaining"] == []
    assert not any(pyc.exists() for pyc in pycs)
    assert all(other.exists() for other in others)
    assert path.exists()
    assert bytecode.purge(params, probe.ctx) == {"removed": [], "remaining": []}


def test_purge_of_a_source_that_is_gone(probe: Probe, tmp_path: Path) -> None:
    path = source(tmp_path, OLD)
    pyc = compiled(path)
    path.unlink()
    assert bytecode.purge({"files": [str(path)]}, probe.ctx)["removed"] == [str(pyc)]


def test_purge_says_what_it_could_not_remove(open_path: Path) -> None:
    """Case 072: __pycache__ belongs to somebody else; purged 0 of 2, with paths and owner."""
    path = source(open_path, OLD)
    pycs = [compiled(path), compiled(path, optimize=1)]
    pycs[0].parent.chmod(0o555)
    code = "print(json.dumps(bytecode.purge({'files': [sys.argv[1]]}, None)))"
    done = unprivileged("bytecode", code, str(path))
    owner = path.owner()
    assert done["removed"] == []
    assert done["remaining"] == [
        {"path": str(pyc), "why": "Permission denied", "owner": owner} for pyc in sorted(pycs)
    ]


def test_directory_that_cannot_be_listed_is_no_success(open_path: Path) -> None:
    path = source(open_path, OLD)
    folder = compiled(path).parent
    folder.chmod(0)
    code = (
        "import sys; p = {'files': [sys.argv[1]]};"
        "print(json.dumps([bytecode.purge(p, None), bytecode.bytecode(p, None)]))"
    )
    purged, looked = unprivileged("bytecode", code, str(path))
    assert [entry["path"] for entry in purged["remaining"]] == [str(folder)]
    assert looked[str(path)]["error"]["kind"] == "permission"


def test_compile_error_is_located() -> None:
    assert bytecode.compile_source(b"a = 1\n", "x.py") is None
    error = bytecode.compile_source(b"a = 1\nb = (\n", "x.py")
    assert error is not None
    assert error["line"] == 2
    assert bytecode.compile_source("é = 1\n".encode("latin-1"), "x.py") is not None
    assert bytecode.compile_source(b"a = 1\0\n", "x.py") is not None
    assert bytecode.compile_source(b"s = '\\d'\n", "x.py") is None  # a warning only
    assert bytecode.compile_source(b"(" * 5000 + b")" * 5000, "x.py") is not None


def test_purge_is_a_change() -> None:
    assert bytecode.purge.CHANGES  # type: ignore[attr-defined]
    with pytest.raises(OpError):
        bytecode._source("relative.py")
