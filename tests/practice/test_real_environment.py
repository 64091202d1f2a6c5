"""The packages of a real practice node: found, refused, installed once. What pip would install is made up."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.errors import RefusedError, UsageError
from remote.practice.real import environment, interpreter
from remote.practice.real.environment import EnvironmentUnavailable
from remote.practice.real.interpreter import Interpreter, NoInterpreter
from tests.support import wait_until

# Stands for `pip install ... --target DIR -r FILE`: notes that it was called, and installs toy packages.
PIP = """#!{python}
import pathlib, sys, time
arguments = sys.argv[1:]
calls = pathlib.Path({calls!r})
with calls.open("a") as file:
    print(*arguments, file=file)
target = pathlib.Path(arguments[arguments.index("--target") + 1])
target.mkdir(parents=True)
wanted = pathlib.Path(arguments[arguments.index("-r") + 1]).read_text().split()
for name in wanted:
    print("Collecting", name, flush=True)
print("Installing collected packages:", len(wanted))
{extra}
for name in wanted:
    name = name.partition("==")[0]
    if name == "torchvision":
        (target / name).mkdir()
        (target / name / "__init__.py").write_text({torchvision!r})
    else:
        (target / (name.replace("-", "_") + ".py")).write_text({torch!r} if name == "torch" else "")
"""
TORCH = """
class library:
    declared = []
    class Library:
        def __init__(self, *_): pass
        def define(self, signature): library.declared.append(signature.partition("(")[0])
"""
DEAF = """import torch
if "nms" not in torch.library.declared:
    raise RuntimeError("operator torchvision::nms does not exist")
"""

Make = Callable[..., Path]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Put a made-up pip in place; returns the file in which it notes its calls."""

    def make(extra: str = "", torchvision: str = DEAF) -> Path:
        calls, script = tmp_path / "calls", tmp_path / "pip"
        script.write_text(
            PIP.format(
                python=sys.executable, calls=str(calls), extra=extra, torchvision=torchvision, torch=TORCH
            )
        )
        script.chmod(0o755)
        monkeypatch.setattr(environment, "find", lambda: Interpreter(Path(sys.executable), (str(script),)))
        return calls

    monkeypatch.setenv("FIXOPS_CACHE", str(tmp_path / "cache"))
    return make


def test_packages_are_installed_once_and_shared_between_versions(pip: Make) -> None:
    calls = pip()
    said: list[str] = []
    made = environment.build("0.5.9", said.append)
    assert [path.name.partition("-cp311-")[0] for path in made.layers] == ["sglang-0.5.9", "common", "torch"]
    assert "Python 3.11" in said[0]
    assert any("layer 2 of 3, common" in each for each in said)
    lines = calls.read_text().splitlines()
    assert len(lines) == 3
    assert "--no-deps" not in lines[0]
    assert all("--no-deps" in line for line in lines[1:])
    assert environment.build("0.5.9") == made
    other = environment.build("0.5.23")
    assert other.layers[1:] == made.layers[1:]
    assert len(calls.read_text().splitlines()) == 4


def test_a_cache_that_is_named_relative_is_found_from_everywhere(
    pip: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIXOPS_CACHE", "cache")
    assert all(path.is_absolute() for path in environment.build("0.5.9").layers)


def test_torchvision_is_mended_where_it_does_not_load(pip: Make) -> None:
    """Its compiled part belongs to another build of PyTorch: what its import needs is declared."""
    pip()
    made = environment.build("0.5.9")
    source = (made.layers[1] / "torchvision" / "__init__.py").read_text()
    assert source.endswith(DEAF)
    assert source.count("FRAGMENT") == 1


def test_torchvision_that_loads_is_left_alone(pip: Make) -> None:
    pip(torchvision="")
    made = environment.build("0.5.9")
    assert (made.layers[1] / "torchvision" / "__init__.py").read_text() == ""


def test_packages_that_do_not_fit_together_are_an_error_each_time(pip: Make) -> None:
    calls = pip(torchvision="import no_such_module")
    for _ in range(2):
        with pytest.raises(EnvironmentUnavailable, match=r"do not work together: .*no_such_module"):
            environment.build("0.5.9")
    assert not environment.ready("0.5.9")
    assert len(calls.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("extra", "message", "hint"),
    [
        (
            "print('ERROR: Could not find a version that satisfies x==1'); sys.exit(1)",
            "packages of torch cannot be installed: ERROR: Could not find a version",
            "check the network",
        ),
        (
            "print('/usr/bin/python3.11: No module named pip'); sys.exit(1)",
            "No module named pip",
            "install pip",
        ),
        ("print('ERROR: [Errno 28] No space left on device'); sys.exit(1)", "No space left", "make room"),
        ("import os; os._exit(9)", "packages of torch cannot be installed", "what is complete is kept"),
    ],
)
def test_pip_that_fails(pip: Make, extra: str, message: str, hint: str) -> None:
    pip(extra)
    with pytest.raises(EnvironmentUnavailable, match=message) as error:
        environment.build("0.5.9")
    assert hint in error.value.hint
    assert isinstance(error.value, RefusedError)


def test_an_install_that_was_interrupted_is_begun_anew(pip: Make) -> None:
    """A layer is there whole or not at all."""
    pip("sys.exit(1)")
    with pytest.raises(EnvironmentUnavailable):
        environment.build("0.5.9")
    assert not [path for path in environment.directory().iterdir() if path.name.startswith("torch")]
    pip()
    assert environment.build("0.5.9").layers


def test_two_at_once_install_once(pip: Make, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    calls = pip(f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)")
    said: list[list[str]] = [[], []]
    builders = [threading.Thread(target=environment.build, args=("0.5.9", each.append)) for each in said]
    builders[0].start()
    wait_until(calls.exists, what="the first install's begin")
    builders[1].start()
    wait_until(lambda: "waiting: another command is installing" in said[1], what="the second one's wait")
    gate.touch()
    for each in builders:
        each.join()
    assert len(calls.read_text().splitlines()) == 3
    assert environment.ready("0.5.9")


def test_too_little_disk_is_told_before_anything_is_fetched(
    pip: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip()
    monkeypatch.setattr(environment, "SPARE_MIB", 10**9)
    with pytest.raises(EnvironmentUnavailable, match="MB are free"):
        environment.build("0.5.9")
    assert not calls.exists()


def test_a_version_that_is_not_known_to_run(pip: Make) -> None:
    calls = pip()
    with pytest.raises(UsageError, match=r"SGLang 0\.5\.10") as error:
        environment.build("0.5.10")
    assert "0.5.9 or 0.5.23" in error.value.hint
    assert not calls.exists()


def python(folder: Path, version: tuple[int, int], *, pip: bool = True) -> Path:
    """A program that answers as a Python of this version."""
    script = folder / f"python{version[0]}.{version[1]}"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\necho '{json.dumps([list(version), pip])}'\n")
    script.chmod(0o755)
    return script


def test_the_interpreter_that_is_named_counts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = python(tmp_path, (3, 11))
    monkeypatch.setenv(interpreter.NAMED, str(named))
    assert interpreter.find() == Interpreter(named, (str(named), "-m", "pip"))
    monkeypatch.setenv(interpreter.NAMED, str(python(tmp_path, (3, 10))))
    with pytest.raises(NoInterpreter, match=r"needs Python 3\.11.*python3\.10 \(3\.10\)"):
        interpreter.find()
    monkeypatch.setenv(interpreter.NAMED, str(tmp_path / "absent"))
    with pytest.raises(NoInterpreter, match="does not run"):
        interpreter.find()


def test_an_interpreter_is_searched_where_it_usually_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(interpreter.NAMED, raising=False)
    monkeypatch.setattr(sys, "executable", str(python(tmp_path / "own", (3, 12))))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    with pytest.raises(NoInterpreter, match=r"3\.12"):
        interpreter.find()
    by_pyenv = tmp_path / "pyenv" / "versions" / "3.11.7" / "bin"
    by_pyenv.mkdir(parents=True)
    python(by_pyenv, (3, 11)).rename(by_pyenv / "python")
    assert interpreter.find().path == by_pyenv / "python"
    (tmp_path / "path").mkdir()
    on_path = python(tmp_path / "path", (3, 11), pip=False)
    found = interpreter.find()
    assert found.path == on_path
    # Debian's has no pip: the one of the Python that runs this installs for it.
    assert found.pip == (sys.executable, "-m", "pip", "--python", str(on_path))
