"""Which interpreter a process runs in: held against what Python itself says, of real environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from remote.node import interpreter, procs
from tests.node.kit import Probe, spawned

SAYS = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"
WAITS = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two virtual environments of one base interpreter, "one" and "two"; "link" leads to "one"."""
    made = tmp_path_factory.mktemp("environments").resolve()
    for name in ("one", "two"):
        venv.EnvBuilder(symlinks=True, with_pip=False).create(made / name)
    (made / "link").symlink_to("one")
    (made / "tool").symlink_to("one/bin/python")
    return made


def of(named: str, cwd: Path, search_path: str = "") -> dict[str, Any] | None:
    return interpreter.of([named, "-m", "sglang.launch_server"], str(cwd), search_path)


def same(found: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    assert found is not None
    assert other is not None
    return all(found[key] == other[key] for key in ("environment", "file"))


def test_names_and_links_of_one_environment_are_one_interpreter(environments: Path) -> None:
    one = of(str(environments / "one/bin/python"), environments)
    assert one == {
        "program": str(environments / "one/bin/python"),
        "environment": str(environments / "one"),
        "file": os.path.realpath(sys.executable),
    }
    for named in ("one/bin/python3", str(environments / "link/bin/python")):
        assert same(of(named, environments), one)
    assert same(of("python", environments, f"/nowhere:{environments}/one/bin:/usr/bin"), one)


def test_two_environments_of_one_base_are_two_interpreters(environments: Path) -> None:
    one = of("one/bin/python", environments)
    assert not same(of("two/bin/python", environments), one)
    assert not same(of("python", environments, f"{environments}/two/bin:{environments}/one/bin"), one)
    # Python looks for pyvenv.cfg beside the link: this one runs outside of the environment.
    assert not same(of("tool", environments, str(environments)), one)


@pytest.mark.parametrize("named", ["one/bin/python3", "link/bin/python", "two/bin/python", "tool"])
def test_python_says_the_same(environments: Path, named: str) -> None:
    found = of(str(environments / named), environments)
    assert found is not None
    said = subprocess.run([found["program"], "-c", SAYS], capture_output=True, text=True, check=True).stdout
    executable, prefix, base = json.loads(said)
    assert executable == found["program"]
    assert (found["environment"] is None) == (prefix == base)
    if found["environment"]:
        assert os.path.realpath(prefix) == found["environment"]


def test_what_cannot_be_told(environments: Path) -> None:
    assert interpreter.of([], None, None) is None
    assert interpreter.of(["python"], None, None) is None
    assert of("sglang::scheduler_TP0", environments, "/usr/bin") is None
    assert of("one/bin/gone", environments) is None
    gone = of("/gone/bin/python", environments)
    assert gone == {"program": "/gone/bin/python", "environment": None, "file": "/gone/bin/python"}


@pytest.mark.parametrize("environment", ["one", "two"])
def test_a_process_started_by_name_in_an_activated_environment(
    probe: Probe, environments: Path, environment: str
) -> None:
    """`source one/bin/activate; python ...`: argv[0] is `python`, and the executable is the base's."""
    env = {**os.environ, "PATH": f"{environments}/{environment}/bin:{os.environ['PATH']}"}
    executable = str(environments / environment / "bin/python")
    with spawned(["python", "-c", WAITS], executable=executable, env=env) as process:
        seen = procs.procs({"port": None, "extra_pids": [process.pid]}, probe.ctx)
    (found,) = [each for each in seen["processes"] if each["pid"] == process.pid]
    assert found["argv"][0] == "python"
    assert found["exe"] == seen["self"]["exe"]
    assert found["interpreter"]["environment"] == str(environments / environment)
    assert "PATH" not in found["env"]
    assert same(seen["self"]["interpreter"], of(sys.executable, environments))
