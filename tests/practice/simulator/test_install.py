"""Which sglang a server would import, and what its files do: bytecode that Python believes decides."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from pathlib import Path

import pytest

from remote.practice.simulator import install
from tests.wheels import wheel

from .kit import Node, apply_three_edits, configure_graphs, run, started

NAME = "sglang/srt/models/deepseek_v2.py"


def tree(root: Path, text: str) -> install.Install:
    path = root / NAME
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return install.Install(root, "0.5.9")


def cached(path: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(path)))


def test_the_source_counts_when_there_is_no_bytecode(tmp_path: Path) -> None:
    found = install.load(tree(tmp_path, "x = 1\n"), NAME, [])
    assert found == install.Loaded("x = 1\n")


def test_a_syntax_error_is_told(tmp_path: Path) -> None:
    found = install.load(tree(tmp_path, "x = (\n"), NAME, [])
    assert found.error is not None
    assert found.error.lineno == 1


def test_bytecode_of_another_text_with_the_same_second_and_size_is_believed(tmp_path: Path) -> None:
    path = tmp_path / NAME
    made = tree(tmp_path, "x = 1\n")
    py_compile.compile(str(path), doraise=True)
    stat = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert install.load(made, NAME, []) == install.Loaded(None, stale=True)
    install.remember(tmp_path / "seen", NAME, "x = 0\n")
    install.remember(tmp_path / "seen", NAME, "x = 1\n")
    assert install.load(made, NAME, [tmp_path / "seen"]) == install.Loaded("x = 1\n", stale=True)


def test_unchecked_bytecode_is_believed_whatever_the_source_is(tmp_path: Path) -> None:
    path = tmp_path / NAME
    made = tree(tmp_path, "x = 1\n")
    py_compile.compile(
        str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    path.write_text("x = (\n")
    older = tree(tmp_path / "older", "x = 1\n")
    assert install.load(made, NAME, [older.root]) == install.Loaded("x = 1\n", stale=True)


def test_bytecode_of_an_older_second_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / NAME
    made = tree(tmp_path, "x = 1\n")
    py_compile.compile(str(path), doraise=True)
    path.write_text("x = 2\n")
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 10))
    assert install.load(made, NAME, []) == install.Loaded("x = 2\n")


def test_bytecode_is_written_as_by_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tree(tmp_path, "x = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    install.load(made, NAME, [])
    assert not cached(tmp_path / NAME).exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    install.load(made, NAME, [])
    assert cached(tmp_path / NAME).exists()


def test_the_version_is_the_dist_infos_else_the_generated_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "home"), str(tmp_path / "site"), *sys.path])
    with pytest.raises(install.NotInstalled):
        install.find_install(tmp_path / "home", None)
    (package / "__init__.py").touch()
    assert install.find_install(tmp_path / "home", None) == install.Install(tmp_path / "site", "0.0.0.dev0")
    (package / "_version.py").write_text("__version__ = version = '0.5.8'\n")
    assert install.find_install(tmp_path / "home", None).version == "0.5.8"
    metadata = tmp_path / "site" / "sglang-0.5.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.4\nName: sglang\nVersion: 0.5.9\n")
    assert install.find_install(tmp_path / "home", None).version == "0.5.9"
    assert install.find_install(tmp_path / "home", "0.5.7").version == "0.5.7"


def test_a_package_in_the_working_directory_shadows_the_installed_one(node: Node) -> None:
    """The wrong one of two copies, as `python -m` finds it, unless Python is told to leave it out."""
    shadow = node.root / "sglang"
    shadow.mkdir()
    (shadow / "__init__.py").touch()
    code, log = run(node, "--help", PYTHONSAFEPATH="1")
    assert code == 0
    assert "SIMULATED SGLang 0.5.9" in log
    code, log = run(node, "--help")
    assert code == 1
    assert f"No module named sglang.launch_server in {shadow}" in log


def test_stale_bytecode_decides_what_reaches_the_draft(node: Node) -> None:
    """The fix is in the files, the old code runs: the wheel's text is found for the bytecode."""
    path = node.tree / NAME
    node.layers([-1, 2, 30])
    py_compile.compile(
        str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    kept = cached(path).read_bytes()
    apply_three_edits(node)
    configure_graphs(node)
    cached(path).write_bytes(kept)
    node.settings(source_texts=[str(wheel("0.5.9"))])
    code, log = run(node)
    assert code == -9
    assert "TypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'" in log
    cached(path).unlink()
    with started(node) as server:
        server.wait_ready()
        assert "capturing [3, 31] for [-1, 2, 30]" in server.log()
