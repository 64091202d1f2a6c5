"""What docs/architecture.md promises of the tree: imports point one way, files stay small, no shell."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = sorted((PROJECT / "remote").rglob("*.py"))
MAX_LINES = 400

# A module of a layer imports only from its own layer and from those after it.
LAYERS: list[set[str]] = [
    {"tasks"},
    {"commands", "cli"},
    {"render"},
    {
        *(
            "deploy",
            "rollback",
            "steps",
            "status",
            "verify",
            "history",
            "logs",
            "unlock",
            "trusting",
            "fitting",
        ),
        *("diagnose", "hypotheses", "bench", "report"),
    },
    {"interrupted", "health", "free", "kill", "purge", "push", "start", "pristine"},
    {"proofs", "plan", "strangers", "observe", "work"},
    {
        "picture",
        "running",
        "ownership",
        "intent",
        "checks",
        "secrets",
        "redact",
        "session",
        "cache",
        "reporting",
        "node_errors",
    },
    {"runbook", "hints", "inventory", "fixes", "wiring", "sglang", "helper", "pending", "trust", "ssh"},
]


def layer(module: str) -> int | None:
    return next((number for number, names in enumerate(LAYERS) if module in names), None)


def imports(path: Path) -> Iterator[str]:
    """The names directly below `remote` that a module imports, wherever the statement stands."""
    package = path.relative_to(PROJECT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            parts = [*base, *((node.module or "").split(".") if node.module else [])]
            if parts[:1] != ["remote"]:
                continue
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                words = alias.name.split(".")
                if words[0] == "remote" and len(words) > 1:
                    yield words[1]


def module_of(path: Path) -> str:
    parts = path.relative_to(PROJECT / "remote").with_suffix("").parts
    return parts[0]


def type_only(path: Path) -> set[str]:
    """What is imported for types alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    found.add(statement.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_imports_point_one_way(path: Path) -> None:
    here = module_of(path)
    mine = layer(here)
    if mine is None:
        return
    for name in set(imports(path)) - type_only(path):
        theirs = layer(name)
        assert theirs is None or theirs >= mine or name == here, f"{here} imports {name}, which is above it"


@pytest.mark.parametrize("folder", ["node", "wiring", "sglang"])
def test_what_stands_alone_imports_nothing_else_of_the_project(folder: str) -> None:
    for path in sorted((PROJECT / "remote" / folder).rglob("*.py")):
        assert set(imports(path)) <= {folder}, path


def test_the_nodes_code_is_standard_library_and_python_3_8() -> None:
    for path in sorted((PROJECT / "remote" / "node").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names or top == "__future__", f"{path}: {name}"


def test_files_stay_small() -> None:
    large = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in large.items() if lines > MAX_LINES} == {}


def test_no_shell_reads_a_string_of_ours() -> None:
    for path in [*SOURCES, PROJECT / "tasks.py", *sorted((PROJECT / "tools").glob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in ("os.system", "os.popen", "subprocess.getoutput"), f"{path}:{node.lineno}"
                shell = [k for k in node.keywords if k.arg == "shell"]
                assert all(isinstance(k.value, ast.Constant) and not k.value.value for k in shell), path


def test_printing_is_in_one_place() -> None:
    allowed = (PROJECT / "remote" / "render", PROJECT / "remote" / "practice" / "simulator")
    for path in SOURCES:
        if any(path.is_relative_to(folder) for folder in allowed) or path.parent.name == "practice":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path}:{node.lineno}"


def tasks() -> list[str]:
    listed = subprocess.run(
        [sys.executable, "-m", "invoke", "--list", "--list-format=json"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [str(task["name"]) for task in json.loads(listed.stdout)["tasks"]]


def test_every_command_is_in_the_readme() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert len(tasks()) > 15
    assert [name for name in tasks() if f"`inv {name}" not in readme and f"`{name}`" not in readme] == []


def test_listing_the_commands_loads_nothing_heavy() -> None:
    """`inv --list` must answer at once: what the commands need is imported when one runs."""
    heavy = ("fabric", "paramiko", "rich", "pydantic", "asyncssh", "jinja2", "pygal")
    code = f"import sys, tasks; print(sorted(set({heavy!r}) & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_every_dependency_has_its_reason() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = (PROJECT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index("dependencies = [")
    names = [line.strip(' ",').split(">")[0] for line in lines[start + 1 : lines.index("]", start)]]
    table = text[text.index("## Dependencies") :]
    assert [name for name in names if name not in table] == []
