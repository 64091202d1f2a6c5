"""Starting a server: detached, its own log, nothing truncated, failures told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote.node import procfs, server, watch
from remote.node.base import OpError
from tests.node.kit import ROOT, Probe, end
from tests.support import wait_until

SERVER = """
import json, os, signal, sys, time
fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
links = {}
for fd in fds:
    try:
        links[fd] = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        pass
print(json.dumps({
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "fds": links,
    "pid": os.getpid(), "sid": os.getsid(0), "pgid": os.getpgid(0),
    "int": signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
}), flush=True)
print("to stderr", file=sys.stderr, flush=True)
time.sleep(600)
"""


class Started:
    """Servers of one test; ended with it."""

    def __init__(self, probe: Probe, directory: Path) -> None:
        self.probe = probe
        self.directory = directory
        self.results: list[dict[str, Any]] = []

    def __call__(self, boot_id: str = "b1", **changes: Any) -> dict[str, Any]:
        params = {
            "argv": [sys.executable, "-c", SERVER, "--flag", "a b"],
            "env": {},
            "cwd": None,
            "log": str(self.directory / "server.log"),
            "boot_id": boot_id,
            "record": {"port": 30000},
            **changes,
        }
        result = server.start(params, self.probe.ctx)
        self.results.append(result)
        return result

    def told(self, result: dict[str, Any]) -> dict[str, Any]:
        """What the server printed about itself."""
        log = Path(result["log"])
        wait_until(lambda: "to stderr" in log.read_text(), what="the server's output")
        told: dict[str, Any] = json.loads(log.read_text().splitlines()[0])
        return told


@pytest.fixture
def start(probe: Probe, tmp_path: Path) -> Iterator[Started]:
    started = Started(probe, tmp_path)
    yield started
    for result in started.results:
        end(result["pid"], result["starttime_ticks"])


def test_detached_with_its_own_session_log_and_nothing_else_open(start: Started, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as where the helper runs in the background
    try:
        result = start()
    finally:
        signal.signal(signal.SIGINT, before)
    told = start.told(result)
    assert told["pid"] == told["sid"] == told["pgid"] == result["pid"]
    stat = procfs.stat(result["pid"])
    assert stat is not None
    assert stat["ppid"] != os.getpid()
    assert stat["starttime_ticks"] == result["starttime_ticks"]
    assert result["start_time"] == procfs.start_time(stat["starttime_ticks"])
    assert told["argv"] == ["--flag", "a b"]
    log = str(tmp_path.resolve() / "server.b1.log")
    assert told["fds"] == {"0": "/dev/null", "1": log, "2": log}
    assert told["int"] is True
    assert result["log"] == str(tmp_path / "server.b1.log")
    assert result["log_stable"] == str(tmp_path / "server.log")
    assert (tmp_path / "server.log").readlink() == Path("server.b1.log")
    assert (result["kept"], result["log_problem"], result["alive"]) == (None, None, True)


def test_environment_is_the_helpers_without_ssh(start: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 087: nothing of a login file; what the server needs is named."""
    monkeypatch.setenv("SSH_CONNECTION", "x")
    monkeypatch.setenv("SUDO_USER", "x")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("REMOVED", "1")
    env = start.told(start(env={"CUDA_VISIBLE_DEVICES": "0", "REMOVED": None}))["env"]
    assert (env["KEPT"], env["CUDA_VISIBLE_DEVICES"], env["PATH"]) == ("1", "0", os.environ["PATH"])
    assert not {"SSH_CONNECTION", "SUDO_USER", "REMOVED"} & set(env)


def test_python_variables_of_the_server_do_not_disturb_its_start(start: Started, tmp_path: Path) -> None:
    """The process in between is an isolated interpreter; the server gets them all the same."""
    (tmp_path / "os.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "sitecustomize.py").write_text("print('site')\n")
    result = start(
        argv=["/bin/sh", "-c", "echo $PYTHONPATH; exec sleep 600"], env={"PYTHONPATH": str(tmp_path)}
    )
    wait_until(lambda: Path(result["log"]).read_text() == f"{tmp_path}\n")


def test_working_directory(start: Started, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert start.told(start(cwd=str(tmp_path / "sub")))["cwd"] == str((tmp_path / "sub").resolve())
    with pytest.raises(OpError) as caught:
        start("b2", cwd=str(tmp_path / "none"))
    assert caught.value.kind == "missing"


def test_program_on_the_path_of_the_servers_environment(start: Started, tmp_path: Path) -> None:
    (tmp_path / "my-server").write_text("#!/bin/sh\necho mine\nexec /bin/sleep 600\n")
    (tmp_path / "my-server").chmod(0o755)
    result = start(argv=["my-server"], env={"PATH": str(tmp_path)})
    wait_until(lambda: Path(result["log"]).read_text() == "mine\n")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("none", "missing"), ("text", "permission"), ("folder", "permission"), ("binary", "internal")],
)
def test_what_cannot_be_executed_is_reported_and_leaves_no_log(
    start: Started, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / "text").write_text("x")
    (tmp_path / "text").chmod(0o644)
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    (tmp_path / "binary").chmod(0o755)
    (tmp_path / "server.log").write_text("earlier\n")
    with pytest.raises(OpError, match=name) as caught:
        start(argv=[str(tmp_path / name)])
    assert caught.value.kind == kind
    assert not (tmp_path / "server.b1.log").exists()
    assert (tmp_path / "server.log").read_text() == "earlier\n"
    record = start.probe.state.read_record("boots", "b1", "boot.json") or {}
    assert name in record["failed"]
    assert record["pid"] is None


def test_log_that_stood_at_the_stable_name_is_kept(start: Started, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("of another day\n")
    first = start("b1")
    assert first["kept"] == str(tmp_path / "server.before-b1.log")
    assert Path(first["kept"]).read_text() == "of another day\n"
    second = start("b2")
    assert second["kept"] is None
    assert (tmp_path / "server.log").resolve() == Path(second["log"]).resolve()
    start.told(first)
    start.told(second)
    assert Path(first["log"]).read_text() != Path(second["log"]).read_text()


def test_one_that_ends_at_once_is_told_by_its_start_and_its_log(
    start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone before anybody could look: init takes the entry in /proc away as soon as it has it."""
    with monkeypatch.context() as patched:
        patched.setattr(procfs, "stat", lambda *_: None)
        result = start(argv=["/bin/sh", "-c", "echo why"])
    assert isinstance(result["starttime_ticks"], int)
    assert result["start_time"] == procfs.start_time(result["starttime_ticks"])
    assert result["alive"] is False
    told = {**result, "port": None}
    assert watch.watch(told, start.probe.ctx)["ended"] == "gone"
    assert {"log": "why\n", "offset": 4} in start.probe.events
    assert start.probe.events[-1] == {"alive": False, "exit": None}


def test_record_of_the_boot_holds_no_values_of_the_environment(start: Started) -> None:
    result = start(env={"HF_TOKEN": "S3cret", "A": "1"})
    record = start.probe.state.read_record("boots", "b1", "boot.json") or {}
    assert {key: record[key] for key in ("pid", "starttime_ticks", "start_time", "log", "log_stable")} == {
        key: result[key] for key in ("pid", "starttime_ticks", "start_time", "log", "log_stable")
    }
    assert record["record"] == {"port": 30000}
    assert record["env_names"] == ["A", "HF_TOKEN"]
    assert record["kernel_boot_id"] == procfs.boot_id()
    assert "S3cret" not in json.dumps(record)


def test_boot_is_started_once(start: Started) -> None:
    start("b1")
    with pytest.raises(OpError) as caught:
        start("b1")
    assert caught.value.kind == "precondition"
    for boot_id in ("../x", "", None):
        with pytest.raises(OpError):
            start(boot_id)  # type: ignore[arg-type]


def test_log_in_no_directory_and_directory_in_its_place(start: Started, tmp_path: Path) -> None:
    with pytest.raises(OpError) as caught:
        start(log=str(tmp_path / "none/server.log"))
    assert caught.value.kind == "missing"
    (tmp_path / "server.log").mkdir()
    with pytest.raises(OpError) as caught:
        start("b2")
    assert caught.value.kind == "unsupported"


STARTER = """
import json, sys, time
from pathlib import Path
from remote.node import server
from tests.node.kit import Probe
probe = Probe(Path(sys.argv[1]) / "state")
params = {"argv": json.loads(sys.argv[2]), "log": sys.argv[1] + "/server.log", "boot_id": "b1"}
print(json.dumps(server.start(params, probe.ctx)), flush=True)
time.sleep(600)
"""


def test_survives_the_end_of_the_helper_and_its_session(tmp_path: Path) -> None:
    """Case 084: nobody waits for the server, no stream of the connection stays open in it."""
    argv = json.dumps([sys.executable, "-c", SERVER])
    helper = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert helper.stdout is not None
    result = json.loads(helper.stdout.readline())
    try:
        os.killpg(helper.pid, signal.SIGHUP)
        os.killpg(helper.pid, signal.SIGKILL)
        assert helper.stdout.read() == ""  # the end of the stream: the server does not hold it
        helper.wait()
        wait_until(lambda: "to stderr" in Path(result["log"]).read_text())
        assert procfs.alive(result["pid"], result["starttime_ticks"])
    finally:
        helper.stdout.close()
        end(result["pid"], result["starttime_ticks"])


def test_it_is_a_change() -> None:
    assert server.start.CHANGES  # type: ignore[attr-defined]


def test_why_a_start_would_fail_is_told_before_one_is_tried(probe: Probe, tmp_path: Path) -> None:
    here, log = str(tmp_path), str(tmp_path / "server.log")

    def problems(**wanted: object) -> list[str]:
        params = {"program": sys.executable, "env": {}, "cwd": here, "log": log, **wanted}
        found: list[str] = server.startable(params, probe.ctx)["problems"]
        return found

    assert problems() == []
    assert problems(program="sh") == [], "found on PATH"
    assert problems(program="sh", env={"PATH": here}) == ["sh is not there, or cannot be executed"]
    assert problems(program="/nowhere/python") == ["/nowhere/python is not there, or cannot be executed"]
    assert problems(program=str(tmp_path)) == [f"{tmp_path} is not there, or cannot be executed"]
    assert problems(cwd="/nowhere") == ["the folder /nowhere (cwd) is not there"]
    assert problems(log="/nowhere/server.log") == ["the folder /nowhere (of the log) is not there"]
    assert problems(log=here) == [f"{here} (the log) is neither a file nor a link"]
