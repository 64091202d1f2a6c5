"""Following logs and watching servers: whole characters, truncation, new files, and what changes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remote.node import follow, procfs, watch
from tests.node.kit import Probe, spawned, ticks
from tests.node.trees import server_tree
from tests.support import free_port, wait_until

BAR = "100%|██████████| 4/4 ‘x’\n"


@contextlib.contextmanager
def running(operation: Callable[[], dict[str, Any]], probe: Probe) -> Iterator[list[dict[str, Any]]]:
    """An operation in its own thread, cancelled at the end; its result is put into the list."""
    results: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: results.append(operation()))
    thread.start()
    try:
        yield results
    finally:
        probe.cancel.set()
        thread.join()


def logged(probe: Probe) -> str:
    return "".join(event.get("log", "") for event in probe.events)


def of_kind(probe: Probe, kind: str) -> list[Any]:
    return [event[kind] for event in probe.events if kind in event]


@pytest.mark.parametrize("ending", ["\n", ""])
def test_last_lines(probe: Probe, tmp_path: Path, ending: str) -> None:
    path = tmp_path / "log"
    lines = [f"line {n} " + "x" * 100 for n in range(3000)]
    path.write_text("\n".join(lines) + ending)
    for wanted in (1, 10, 2999, 3000, 5000):
        probe.events.clear()
        result = follow.tail({"path": str(path), "lines": wanted, "follow": False}, probe.ctx)
        assert logged(probe) == "\n".join(lines[-wanted:]) + ending
        assert result == {"offset": path.stat().st_size, "exists": True}
        assert all(len(event["log"].encode()) <= follow.PIECE for event in probe.events)
    probe.events.clear()
    follow.tail({"path": str(path), "lines": 0, "follow": False}, probe.ctx)
    assert logged(probe) == ""


def test_tail_of_nothing(probe: Probe, tmp_path: Path) -> None:
    assert follow.tail({"path": str(tmp_path / "none")}, probe.ctx) == {"offset": 0, "exists": False}
    (tmp_path / "empty").write_text("")
    assert follow.tail({"path": str(tmp_path / "empty")}, probe.ctx) == {"offset": 0, "exists": True}


def test_from_an_offset(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("0123456789")
    follow.tail({"path": str(tmp_path / "log"), "from_offset": 7}, probe.ctx)
    assert probe.events == [{"log": "789", "offset": 10}]


def test_characters_are_never_broken(tmp_path: Path) -> None:
    """Case 096: a character cut at the end of what was written is given with the rest of it."""
    path = tmp_path / "log"
    data = (BAR * 3).encode()
    follower = follow.Follower(str(path), 0)
    text = ""
    offsets = []
    with path.open("wb", buffering=0) as file:
        for at in range(len(data)):
            file.write(data[at : at + 1])
            event = follower.piece()
            assert event is not None
            text += event["log"]
            offsets.append((event["offset"], text))
    assert text == BAR * 3
    for offset, so_far in offsets:  # going on from any reported offset loses and repeats nothing
        assert data[:offset].decode() == so_far
    follower.close()


def test_broken_bytes_are_replaced(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\xbfb\n")
    follow.tail({"path": str(tmp_path / "log")}, probe.ctx)
    assert logged(probe) == "a\ufffdb\n"


def test_follows_growth_truncation_and_a_new_boots_file(probe: Probe, tmp_path: Path) -> None:
    stable = tmp_path / "server.log"
    params = {"path": str(stable), "from_offset": 0, "follow": True}
    with running(lambda: follow.tail(params, probe.ctx), probe) as results:
        (tmp_path / "server.b1.log").write_text("one\n")
        stable.symlink_to("server.b1.log")
        wait_until(lambda: logged(probe) == "one\n")
        with (tmp_path / "server.b1.log").open("a") as file:
            file.write("two\n")
        wait_until(lambda: logged(probe) == "one\ntwo\n")
        (tmp_path / "server.b1.log").write_text("x\n")
        wait_until(lambda: logged(probe) == "one\ntwo\nx\n")
        (tmp_path / "server.b2.log").write_text("of the next boot\n")
        (tmp_path / "new").symlink_to("server.b2.log")
        (tmp_path / "new").replace(stable)
        wait_until(lambda: logged(probe).endswith("x\nof the next boot\n"))
    assert of_kind(probe, "restarted") == ["truncated", "replaced"]
    assert results == [{"offset": len("of the next boot\n"), "exists": True}]


def watched(probe: Probe, pid: int, log: Path | None, port: int | None, **params: Any) -> dict[str, Any]:
    request = {
        "pid": pid,
        "starttime_ticks": ticks(pid),
        "log": log and str(log),
        "port": port,
        "interval_s": 0.1,
    }
    return watch.watch({**request, "from_offset": 0, "health_every_s": 0.05, **params}, probe.ctx)


HEALTHY = """
import http.server, socket, sys, threading, time
print("up", flush=True)
sys.stdin.readline()
class Handler(http.server.BaseHTTPRequestHandler):
    answers = iter([503, 503, 200])
    def log_message(self, *args): pass
    def do_GET(self):
        print("asked", self.path, file=sys.stderr, flush=True)
        self.send_response(next(self.answers, 200))
        self.send_header("Content-Length", "0")
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.readline()
"""


def test_start_up_until_healthy_and_the_end(probe: Probe, tmp_path: Path) -> None:
    port = free_port()
    with (
        (tmp_path / "log").open("w") as log,
        spawned([sys.executable, "-c", HEALTHY, str(port)], stdin=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdin is not None
        with running(lambda: watched(probe, process.pid, tmp_path / "log", port), probe) as results:
            wait_until(lambda: of_kind(probe, "listener") == [{"pid": None, "address": None}])
            assert of_kind(probe, "health") == []  # nobody is asked while nobody listens
            process.stdin.write("\n")
            process.stdin.flush()
            wait_until(lambda: [health["status"] for health in of_kind(probe, "health")] == [503, 200])
            assert of_kind(probe, "listener")[1:] == [{"pid": process.pid, "address": "127.0.0.1"}]
            process.stdin.close()
            wait_until(lambda: results)
    assert probe.events[-1] == {"alive": False, "exit": None}
    assert logged(probe).startswith("asked /health\n")
    assert logged(probe) == (tmp_path / "log").read_text()
    assert results[0] == {"alive": False, "offset": (tmp_path / "log").stat().st_size, "ended": "gone"}


def test_rank_that_dies_is_told(probe: Probe, tmp_path: Path) -> None:
    """Case 042: no error line, the log just stops; the processes tell it."""
    with (
        server_tree(tmp_path, free_port()) as tree,
        running(lambda: watched(probe, tree.launcher.pid, None, None), probe),
    ):
        wait_until(lambda: of_kind(probe, "procs"))
        roles = {entry["pid"]: entry["role"] for entry in of_kind(probe, "procs")[-1]}
        assert sorted(map(str, roles.values())) == [
            "detokenizer",
            "launcher",
            "resource-tracker",
            "scheduler",
            "scheduler",
        ]
        rank = tree.children["sglang::scheduler_TP1"]
        subprocess.run(["kill", "-9", str(rank)], check=True)
        wait_until(lambda: {e["pid"]: e["state"] for e in of_kind(probe, "procs")[-1]}[rank] == "Z")
        assert procfs.alive(tree.launcher.pid, tree.started[tree.launcher.pid])


def test_ends_at_its_deadline_and_when_cancelled(tmp_path: Path) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    with spawned([sys.executable, "-c", code]) as process:
        short = Probe(tmp_path / "state", timeout_s=0.3)
        assert watched(short, process.pid, tmp_path / "none", None) == {
            "alive": True,
            "offset": 0,
            "ended": "deadline",
        }
        cancelled = Probe(tmp_path / "state")
        cancelled.cancel.set()
        assert watched(cancelled, process.pid, None, None)["ended"] == "cancelled"


def test_another_process_of_that_pid_is_not_the_server(probe: Probe) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    with spawned([sys.executable, "-c", code]) as process:
        result = watched(probe, process.pid, None, None, starttime_ticks=ticks(process.pid) - 1)
    assert (result["alive"], result["ended"]) == (False, "gone")


def test_log_is_read_to_its_end_after_the_server_has_gone(probe: Probe, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    started = ticks(process.pid)
    process.wait()
    (tmp_path / "log").write_text("x" * (3 * follow.PIECE))
    params = {"pid": process.pid, "starttime_ticks": started, "log": str(tmp_path / "log"), "port": None}
    result = watch.watch(params, probe.ctx)
    assert result["offset"] == 3 * follow.PIECE == len(logged(probe))
