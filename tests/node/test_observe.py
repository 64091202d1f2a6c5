"""One observation of everything: sections side by side, failures kept apart, operations listed once."""

from __future__ import annotations

import ast
import os
import sys
from importlib import import_module
from pathlib import Path

from remote.node import observe
from tests.node.kit import ROOT, Probe

NODE = ROOT / "remote/node"
CHANGING = {"write_files", "restore", "recover", "purge", "terminate", "start", "journal_append"}
READING = {
    "observe",
    "http",
    "log",
    "tail",
    "watch",
    "gpu_wait",
    "read_files",
    "compile_check",
    "import_check",
}
READING |= {"import_check", "compile_files", "history", "journal_read", "lock", "unlock", "break_lock"}


def test_every_operation_is_there_once_and_marked() -> None:
    found: dict[str, bool] = {}
    for path in sorted(NODE.glob("*.py")):
        if path.stem in ("loader", "__init__"):
            continue
        for name, op in getattr(import_module(f"remote.node.{path.stem}"), "OPS", {}).items():
            assert name not in found
            found[name] = getattr(op, "CHANGES", False)
    sections = {f"facts.{name}" for name in observe.SECTIONS}
    assert set(found) >= CHANGING | READING | sections
    assert {name for name, changing in found.items() if changing} == CHANGING


def test_sections_hide_nothing_from_each_other(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("line\n")
    sections = {
        "node": {},
        "state": None,
        "log": {"path": str(tmp_path / "log")},
        "files": {"root": "not absolute", "paths": []},
        "configs": {},
        "nonsense": {},
    }
    found = observe.observe({"sections": sections}, probe.ctx)
    assert set(found) == set(sections)
    assert found["log"]["exists"] is True
    assert found["state"]["exists"] is False
    assert found["files"]["error"]["kind"] == "precondition"
    assert found["configs"]["error"] == {"kind": "internal", "message": "KeyError: 'paths'"}
    assert found["nonsense"]["error"]["kind"] == "unsupported"


def test_node_section(probe: Probe) -> None:
    found = observe.node({}, probe.ctx)
    assert found["python"] == sys.executable
    assert found["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["hostname"] == os.uname().nodename
    assert found["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found["state_dir"] == probe.state.dir
    assert (found["uid"], found["euid"]) == (os.getuid(), os.geteuid())


def test_node_code_imports_the_standard_library_and_itself_only() -> None:
    for path in sorted(NODE.glob("*.py")):
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))):
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            if isinstance(statement, ast.ImportFrom) and not statement.level:
                names = [statement.module or ""]
            for name in names:
                assert name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def installed(root: Path) -> Path:
    """A package of this name in a directory that PYTHONPATH leads to."""
    (root / "fakesgl").mkdir()
    (root / "fakesgl/__init__.py").write_text("")
    (root / "fakesgl/model.py").write_text("a = 1\n")
    return root


def test_files_and_bytecode_of_the_package_that_was_found(probe: Probe, tmp_path: Path) -> None:
    """One request: which copy is imported decides which files are looked at."""
    env = {"PYTHONPATH": str(installed(tmp_path))}
    wanted = ["fakesgl/model.py", "fakesgl/not_there.py"]
    sections = {
        "bytecode": {"root": None, "files": wanted, "env": env},
        "files": {"root": None, "paths": wanted},
        "package": {"name": "fakesgl", "env": env, "cwd": str(tmp_path)},
    }
    found = observe.observe({"sections": sections}, probe.ctx)
    assert found["package"]["imported"]["root"] == str(tmp_path)
    assert [found["files"][path]["exists"] for path in wanted] == [True, False]
    assert list(found["bytecode"]) == [str(tmp_path / "fakesgl/model.py")]


def test_without_the_package_its_files_are_unknown(probe: Probe, tmp_path: Path) -> None:
    sections = {
        "files": {"root": None, "paths": ["fakesgl/model.py"]},
        "package": {"name": "fakesgl_that_is_nowhere", "env": {}, "cwd": str(tmp_path)},
    }
    found = observe.observe({"sections": sections}, probe.ctx)
    assert found["package"]["imported"] is None
    assert found["files"]["error"]["kind"] == "missing"


def test_holders_of_the_gpus_are_described_among_the_processes(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(
        '#!/bin/sh\ncase "$1" in --query-gpu=*) echo "0, GPU-a, X, 900, 1000, 0, [N/A]";;'
        f' *) echo "GPU-a, {os.getpid()}, python, 900";; esac\n'
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    sections = {"procs": {"port": None}, "gpus": {"path": str(tmp_path), "timeout_s": 20}}
    found = observe.observe({"sections": sections}, probe.ctx)
    assert os.getpid() in [process["pid"] for process in found["procs"]["processes"]]
