"""The simulated server held to the real one: the same command line, models and questions for both.

After test_incident.py, whose node stands.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from remote import inventory
from remote.practice.layout import PROJECT
from tests.real import probe
from tests.real.kit import TIMEOUT_S, Real, children, state_of
from tests.real.probe import Server
from tests.support import free_port, wait_until

Found = dict[str, Any]


# What differs and stays so, with the reason.
ON_A_GPU = "the simulated server has GPUs, whatever --device says: SGLang takes this from the device"
KNOWN = {
    "/log/values/chunked_prefill_size": ON_A_GPU,
    "/log/values/cuda_graph_bs": ON_A_GPU,
    "/log/values/cuda_graph_max_bs": ON_A_GPU,
    "/log/values/sampling_backend": ON_A_GPU,
}


@pytest.fixture(scope="module")
def stage(node: Real) -> Real:
    """The node with its server stopped, and the simulator beside it, as on a simulated node."""
    node.inv("stop", "--yes").is_(0)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("practice/simulator", "wiring"):
        source = PROJECT / "remote" / name
        shutil.copytree(source, node.root / source.name, ignore=ignore)
    return node


def command(stage: Real, name: str) -> list[str]:
    python = str(stage.root / "python" / "bin" / "python")
    if name == "real":
        return [python, "-m", "sglang.launch_server", *arguments(stage)]
    return [python, str(stage.root / "simulator" / "launch_server.py"), *arguments(stage)]


def arguments(stage: Real) -> list[str]:
    """As the inventory's server has them, without the port."""
    stored = {key: value for key, value in stage.record["server"].items() if key != "name"}
    words = inventory.arguments(inventory.ServerEntry.model_validate(stored))
    place = words.index("--port")
    return [*words[:place], *words[place + 2 :]]


@contextmanager
def started(stage: Real, name: str) -> Iterator[tuple[Server, subprocess.Popen[bytes]]]:
    """The server as a child of this process, so that its end can be told."""
    root, env = stage.root, stage.record["server"]["env"]
    port, log = free_port(), root / "logs" / f"probed-{name}.log"
    given = {"PATH": os.environ["PATH"], "HOME": str(root), "FIXOPS_PRACTICE": str(root), **env}
    with log.open("wb") as file:
        running = subprocess.Popen(
            [*command(stage, name), "--port", str(port)],
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


def test_what_differs_is_known(stage: Real) -> None:
    observed = {}
    for name in ("real", "simulated"):
        with started(stage, name) as (server, running):
            observed[name] = look(server, running)
    found = probe.differences(observed["real"], observed["simulated"])
    listed = "\n".join(f"{where}: {what}" for where, what in found.items())
    assert set(found) == set(KNOWN), listed


@pytest.mark.parametrize(
    ("kill", "expected"),
    [
        (probe.scheduler_killed, probe.SCHEDULER_KILLED),
        (probe.launcher_killed, probe.LAUNCHER_KILLED),
    ],
)
def test_the_simulated_server_dies_as_the_real_one(
    stage: Real, kill: Callable[[Server], dict[str, str]], expected: dict[str, str]
) -> None:
    with started(stage, "simulated") as (server, running):
        probe.timeline(server, running, TIMEOUT_S)
        assert kill(server) == expected
