"""How servers end: signals, dead ranks, orphans; nothing is left behind, as captured from real ones."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from remote.sglang import failures
from tests.support import wait_until

from .kit import Node, rank_pid, run, session, started, state_of


def test_sigterm_drains_and_ends_everything(fixed: Node) -> None:
    """Open requests are answered; then the launcher ends by SIGKILL to itself, as SGLang's kill_process_tree
    does.
    """
    fixed.settings(step_ms=4)
    with started(fixed) as server:
        server.wait_ready()
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(server.generate(400)))
        asking.start()
        wait_until(lambda: "Decode batch" in server.log(), what="a decode line")
        os.kill(server.process.pid, signal.SIGTERM)
        wait_until(lambda: "SIGTERM received." in server.log(), what="the reaction")
        assert server.health() == 503
        assert server.wait_end() == -signal.SIGKILL
        asking.join()
        (answer,) = answers
        assert answer["meta_info"]["completion_tokens"] == 400  # type: ignore[index]
        assert (
            "SIGTERM received. signum=None frame=None. Draining requests and shutting down..." in server.log()
        )
        assert (
            "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]."
            in server.log()
        )
        assert failures.first_cause(server.log()) is None
        assert list(fixed.gpus.iterdir()) == []


def test_sigterm_while_loading_ends_at_once(fixed: Node) -> None:
    fixed.settings(speed=20)
    with started(fixed) as server:
        wait_until(lambda: "Init torch distributed begin" in server.log(), what="loading")
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.wait_end() == -signal.SIGTERM


def test_sigkill_of_the_launcher_takes_the_children_with_it(fixed: Node) -> None:
    fixed.settings()
    with started(fixed) as server:
        server.wait_ready()
        os.kill(server.process.pid, signal.SIGKILL)
        assert server.wait_end() == -signal.SIGKILL


def test_orphans_stay_until_they_are_ended(fixed: Node) -> None:
    fixed.settings()
    with started(fixed, "--simulate-orphans") as server:
        assert server.process.wait(60) == -signal.SIGKILL
        wait_until(lambda: len(session(server.process.pid)) == 3, what="three orphans")
        left = session(server.process.pid)
        assert sorted(left.values()) == [
            "sglang::detokenizer",
            "sglang::scheduler_TP0",
            "sglang::scheduler_TP1",
        ]
        assert {entry["pid"] for entry in fixed.holders()} < set(left)
        assert server.health() is None
        for pid in left:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not session(server.process.pid), what="their end")
        assert list(fixed.gpus.iterdir()) == []


def test_a_server_may_ignore_sigterm(fixed: Node) -> None:
    fixed.settings()
    with started(fixed, faults={"ignore_sigterm": True}) as server:
        server.wait_ready()
        for pid in session(server.process.pid):
            os.kill(pid, signal.SIGTERM)
        assert server.health() == 200
        assert server.process.poll() is None


def test_a_killed_rank_brings_the_server_down(fixed: Node) -> None:
    fixed.settings()
    with started(fixed) as server:
        server.wait_ready()
        os.kill(rank_pid(server, 1), signal.SIGKILL)
        assert server.wait_end() == -signal.SIGKILL
        assert "TP0] Scheduler hit an exception: Traceback" in server.log()
        assert "Connection closed by peer" in server.log()
        assert "SIGQUIT received. signum=None, frame=None. It usually means one child failed." in server.log()
        assert list(fixed.gpus.iterdir()) == []


def test_a_killed_rank_may_go_unnoticed(fixed: Node) -> None:
    """The launcher answers, nothing is generated: case of a rank that the OOM killer took."""
    fixed.settings(health_timeout_s=0.3)
    with started(fixed, faults={"hang_on_rank_death": True}) as server:
        server.wait_ready()
        os.kill(rank_pid(server, 1), signal.SIGKILL)
        wait_until(lambda: server.health() == 503, what="503")
        assert server.request("GET", "/v1/models")[0] == 200
        assert server.process.poll() is None


def test_a_rank_that_dies_while_loading_may_hang_the_start(fixed: Node) -> None:
    fixed.settings()
    dies = {"hang_on_rank_death": True, "rank_dies": {"rank": 1, "at": "loading-target", "signal": 9}}
    with started(fixed, faults=dies) as server:
        wait_until(lambda: "TP0] Load weight begin" in server.log(), what="loading")
        wait_until(lambda: len(session(server.process.pid)) == 4, what="the rank's death")
        log = server.log()
        assert server.health() is None
        assert server.log() == log


def test_rank_zero_dead_while_loading_is_reported(fixed: Node) -> None:
    fixed.settings()
    dies = {"hang_on_rank_death": True, "rank_dies": {"rank": 0, "at": "loading-draft", "signal": 9}}
    code, log = run(fixed, faults=dies)
    found = failures.first_cause(log)
    assert code == 1
    assert "Rank 0 scheduler is dead. Please check if there are relevant logs." in log
    assert "Exit code: -9" in log
    assert found is not None
    assert found.code == "rank-died"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_rank_hangs_generation(fixed: Node, rank: int) -> None:
    """As captured with SIGSTOP: 503 after the bounded time, model_info answers, SIGCONT heals."""
    fixed.settings(health_timeout_s=0.3)
    with started(fixed) as server:
        server.wait_ready()
        stopped = rank_pid(server, rank)
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: state_of(stopped) == "T", what="the stop")
        assert server.health() == 503
        assert server.request("GET", "/model_info")[0] == 200
        assert (
            "Health check failed. Server couldn't get a response from detokenizer for last 0.3 seconds."
            in server.log()
        )
        os.kill(stopped, signal.SIGCONT)
        wait_until(lambda: server.health() == 200, what="200 again")


def test_the_port_is_noticed_last(fixed: Node) -> None:
    """As captured: loads, cannot bind, its warm-up is answered by the old server, says ready, ends with 3."""
    fixed.settings(memory_is_limited=False)
    with started(fixed) as old:
        old.wait_ready()
        with started(fixed, port=old.port) as new:
            assert new.wait_end() == 3
            log = new.log()
        assert (
            f"ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', {old.port})" in log
        )
        assert (
            log.index("Application startup complete.") < log.index("[Errno 98]") < log.index("ready to roll")
        )
        found = failures.first_cause(log)
        assert found is not None
        assert found.code == "port-in-use"
        assert old.health() == 200


def test_a_full_gpu_is_noticed_when_loading(fixed: Node) -> None:
    fixed.settings()
    with started(fixed) as old:
        old.wait_ready()
        code, log = run(fixed)
        found = failures.first_cause(log)
        assert code == -signal.SIGKILL
        assert found is not None
        assert found.code == "gpu-oom"
        assert old.health() == 200
