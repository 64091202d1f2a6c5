"""Ending processes: asked first, killed last, never another one, and said as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote.node import procfs, terminate
from remote.node.base import OpError
from tests.node.kit import STUBBORN, Probe, named, spawned, ticks, titled, unprivileged
from tests.node.trees import half_dead, server_tree, unkillable
from tests.support import free_port, wait_until


def ended(
    probe: Probe, *processes: dict[str, int], term_s: float = 20, kill_s: float = 20
) -> list[dict[str, Any]]:
    params = {"processes": list(processes), "term_timeout_s": term_s, "kill_timeout_s": kill_s}
    result: list[dict[str, Any]] = terminate.terminate(params, probe.ctx)["processes"]
    return result


def test_launcher_takes_its_children_along(probe: Probe, tmp_path: Path) -> None:
    """Only the launcher is asked; what ends with it was ended by that."""
    with server_tree(tmp_path, free_port()) as tree:
        done = ended(probe, *tree.named())
        assert not any(procfs.alive(pid, started) for pid, started in tree.started.items())
        assert {entry["ended_by"] for entry in done} == {"TERM"}
        assert [entry["pid"] for entry in done] == list(tree.started)
        assert "-m sglang.launch_server --port" in done[0]["title"]
        assert {entry["left"] for entry in done} <= {None, "zombie"}
        assert tree.launcher.wait() == 0  # it ended by itself, in order


def test_launcher_that_does_not_listen_is_killed_last(probe: Probe, tmp_path: Path) -> None:
    with server_tree(tmp_path, free_port(), "--stubborn") as tree:
        done = {entry["pid"]: entry for entry in ended(probe, *tree.named(), term_s=1)}
        assert not any(procfs.alive(pid, started) for pid, started in tree.started.items())
        assert done[tree.launcher.pid]["ended_by"] == "KILL"
        assert {done[pid]["ended_by"] for pid in tree.children.values()} == {"TERM"}
        assert tree.launcher.wait() == -signal.SIGKILL


def test_orphans_without_a_launcher(probe: Probe, tmp_path: Path) -> None:
    """Case 052: what a killed launcher left behind."""
    with server_tree(tmp_path, free_port()) as tree:
        tree.kill_launcher_only()
        orphans = list(tree.children.values())
        done = ended(probe, *tree.named(*orphans))
        assert [entry["ended_by"] for entry in done] == ["TERM"] * len(orphans)
        assert not any(procfs.alive(pid, tree.started[pid]) for pid in orphans)


def test_one_that_ignores_the_signal_is_killed(probe: Probe) -> None:
    with spawned([sys.executable, "-c", STUBBORN]) as process:
        (done,) = ended(probe, named(process.pid), term_s=0.3)
        assert (done["ended_by"], done["left"]) == ("KILL", "zombie")  # nobody has waited for it yet
        assert process.wait() == -signal.SIGKILL


def test_stopped_process_is_let_go_on(probe: Probe) -> None:
    with titled("sglang::scheduler_TP0") as process:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: (procfs.stat(process.pid) or {}).get("state") == "T")
        (done,) = ended(probe, named(process.pid))
        assert done["ended_by"] == "TERM"
        assert process.wait() == -signal.SIGTERM


def test_pid_that_is_another_process_by_now_is_not_touched(probe: Probe) -> None:
    with titled("innocent") as process:
        (done,) = ended(probe, {"pid": process.pid, "starttime_ticks": ticks(process.pid) - 1})
        assert done == {
            "pid": process.pid,
            "starttime_ticks": ticks(process.pid) - 1,
            "title": None,
            "ended_by": "none",
            "left": "changed",
        }
        assert process.poll() is None


def test_process_that_has_ended_before(probe: Probe) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    name = named(process.pid)
    process.wait()
    (done,) = ended(probe, name)
    assert (done["ended_by"], done["left"]) == ("none", None)


def test_zombie_is_told_apart(probe: Probe) -> None:
    with titled("sglang::scheduler_TP0") as process:
        name = named(process.pid)
        process.kill()
        wait_until(lambda: not procfs.alive(**name))
        (done,) = ended(probe, name)
        assert (done["ended_by"], done["left"]) == ("none", "zombie")


def test_zombie_with_a_living_thread_is_ended(probe: Probe) -> None:
    """Case 062: a zombie leader does not count as ended while a thread of it lives."""
    with half_dead("sglang::scheduler_TP0") as process:
        name = named(process.pid)
        (done,) = ended(probe, name)
        assert done["title"] == "[sglang::schedul]"
        assert done["ended_by"] in ("TERM", "KILL")
        assert done["left"] == "zombie"
        assert not procfs.alive(**name)


def test_unkillable_process_is_said_to_be_so(probe: Probe) -> None:
    """Case 062: bounded wait, then the truth; no loop of kill -9."""
    with unkillable() as pid:
        (done,) = ended(probe, named(pid), term_s=0.3, kill_s=0.3)
        assert (done["ended_by"], done["left"]) == ("none", "unkillable")
        assert procfs.alive(pid, done["starttime_ticks"])


REFUSED = """
from pathlib import Path
from remote.node import procfs
probe = Probe(Path(sys.argv[1]))
name = {"pid": int(sys.argv[2]), "starttime_ticks": procfs.stat(int(sys.argv[2]))["starttime_ticks"]}
params = {"processes": [name], "term_timeout_s": 0.1, "kill_timeout_s": 0.1}
print(json.dumps(terminate.terminate(params, probe.ctx)["processes"]))
"""


def test_process_of_another_user(open_path: Path, strangers_pid: int) -> None:
    """Case 064: what is not ours to signal is left, and said so."""
    (done,) = unprivileged("terminate", REFUSED, str(open_path / "state"), str(strangers_pid))
    assert (done["ended_by"], done["left"]) == ("none", "permission")


@pytest.fixture
def strangers_pid() -> Iterator[int]:
    """A process that the unprivileged user may not signal: one of ours if we are root, else one of root's."""
    if os.geteuid() == 0:
        with titled("sglang::scheduler_TP0") as process:
            yield process.pid
            assert process.poll() is None
    else:
        yield next(pid for pid in procfs.pids() if pid > 1 and procfs.uid_of(pid) == 0)


@pytest.mark.parametrize("who", ["self", "parent", "init"])
def test_never_itself_or_above(probe: Probe, who: str) -> None:
    """Case 086: nothing is sent to anybody when one of them is this process or above it."""
    pid = {"self": os.getpid(), "parent": os.getppid(), "init": 1}[who]
    with titled("bystander") as process:
        with pytest.raises(OpError) as caught:
            ended(probe, named(process.pid), named(pid))
        assert caught.value.kind == "precondition"
        assert process.poll() is None


def test_cancelling_stops_before_killing(probe: Probe) -> None:
    with spawned([sys.executable, "-c", STUBBORN]) as process:
        started = threading.Timer(0.3, probe.cancel.set)
        started.start()
        with pytest.raises(OpError) as caught:
            ended(probe, named(process.pid), term_s=600)
        started.join()
        assert caught.value.kind == "cancelled"
        assert caught.value.data["processes"][0]["ended_by"] == "none"
        assert process.poll() is None


def test_works_without_pidfd(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Python 3.8: by number, after one more look at the start time."""
    monkeypatch.setattr(terminate, "_pidfd", lambda _pid: None)
    with titled("sglang::scheduler_TP0") as one, spawned([sys.executable, "-c", STUBBORN]) as two:
        done = ended(probe, named(one.pid), named(two.pid), term_s=0.5)
        assert [entry["ended_by"] for entry in done] == ["TERM", "KILL"]


def test_secrets_of_a_command_line_are_not_in_the_title(probe: Probe) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    with spawned([sys.executable, "-c", code, "--api-key", "S3cret"]) as process:
        (done,) = ended(probe, named(process.pid))
        assert "S3cret" not in done["title"]
        assert "***" in done["title"]
