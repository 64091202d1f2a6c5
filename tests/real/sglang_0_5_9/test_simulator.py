"""The simulated server held to the real one: the same command line, models and questions for both.

After test_incident.py, whose node stands.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remote.practice.layout import PROJECT
from tests.real import probe
from tests.real.kit import TIMEOUT_S, Real, children, state_of
from tests.real.probe import Server
from tests.support import free_port, wait_until

Found = dict[str, Any]


@pytest.fixture(scope="module")
def observed(node: Real) -> dict[str, Found]:
    """What each of the two showed, by probe."""
    node.inv("stop", "--yes").is_(0)
    entry, python = node.record["server"], str(node.root / "python" / "bin" / "python")
    simulator = node.root / "simulator"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "remote" / "practice" / "simulator", simulator, ignore=ignore)
    shutil.copytree(PROJECT / "remote" / "wiring", node.root / "wiring", ignore=ignore)
    words = arguments(node)
    found = {}
    for name, head in (
        ("real", [python, "-m", "sglang.launch_server"]),
        ("simulated", [python, str(simulator / "launch_server.py")]),
    ):
        with started([*head, *words], entry["env"], node.root, name) as (server, running):
            found[name] = look(server, running)
    return found


def arguments(node: Real) -> list[str]:
    """As the inventory's server has them, without the port."""
    from remote.inventory import ServerEntry, arguments

    stored = {key: value for key, value in node.record["server"].items() if key != "name"}
    words = arguments(ServerEntry.model_validate(stored))
    place = words.index("--port")
    return [*words[:place], *words[place + 2 :]]


@contextmanager
def started(
    words: list[str], env: dict[str, str], root: Path, name: str
) -> Iterator[tuple[Server, subprocess.Popen[bytes]]]:
    """The server as a child of this process, so that its end can be told."""
    port, log = free_port(), root / "logs" / f"probed-{name}.log"
    given = {"PATH": os.environ["PATH"], "HOME": str(root), "FIXOPS_PRACTICE": str(root), **env}
    with log.open("wb") as file:
        running = subprocess.Popen(
            [*words, "--port", str(port)],
            env=given,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    family = [running.pid]
    try:
        yield Server(running.pid, port, log), running
    finally:
        if running.poll() is None:
            family += children(running.pid)
        for pid in family:
            if state_of(pid) not in ("", "Z"):
                os.kill(pid, signal.SIGKILL)
        running.wait(TIMEOUT_S)


def look(server: Server, running: subprocess.Popen[bytes]) -> Found:
    """All probes, the deadly ones last."""
    found: Found = {"start": probe.timeline(server, running, TIMEOUT_S)}
    found["endpoints"] = probe.endpoints(server)
    found["processes"] = probe.processes(server)
    found["log"] = probe.logged(server)
    offspring = children(server.pid)
    os.kill(server.pid, signal.SIGTERM)
    found["SIGTERM"] = {
        "exit status": running.wait(TIMEOUT_S),
        "log": probe.logged(server)["state"],
    }
    wait_until(lambda: all(state_of(pid) in ("", "Z") for pid in offspring), what="the children's end")
    return found


def test_what_differs_is_known(observed: dict[str, Found]) -> None:
    found = probe.differences(observed["real"], observed["simulated"])
    listed = "\n".join(f"{where}: {what}" for where, what in found.items())
    assert found == {}, listed
