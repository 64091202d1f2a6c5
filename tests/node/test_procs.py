"""Which processes are SGLang's: the cases' lists, real trees, orphans, zombies, strangers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.node import procfs, procs, sockets
from tests.node.kit import Probe, spawned, ticks, titled
from tests.node.trees import half_dead, server_tree
from tests.support import free_port, wait_until


def role(*argv: str, comm: str = "") -> str | None:
    return procs.role({"argv": list(argv), "comm": comm})


def look(probe: Probe, port: int | None = None, **params: Any) -> dict[str, Any]:
    return procs.procs({"port": port, **params}, probe.ctx)


def by_pid(found: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {process["pid"]: process for process in found["processes"]}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [  # case 066, and what else starts a server
        ("/opt/sglang/bin/python3 /opt/sglang/bin/sglang serve --model-path /models/t", "launcher"),
        ("/opt/sglang/bin/sglang serve --port 30000", "launcher"),
        ("sglang::scheduler_TP0", "scheduler"),
        ("sglang::scheduler_DP1_TP3_EP3", "scheduler"),
        ("sglang::scheduler", "scheduler"),
        ("sglang::detokenizer", "detokenizer"),
        ("sglang::detokenizer_router", "detokenizer"),
        ("sglang::tokenizer_worker:1", "tokenizer-worker"),
        ("sglang::data_parallel_controller", "dp-controller"),
        ("sglang::something_new", "member"),
        ("python3 -m sglang.launch_server --model-path /models/t --port 30000", "launcher"),
        ("/usr/bin/python3.12 -B -u -W ignore -X dev -m sglang.launch_server", "launcher"),
        ("python -um sglang.launch_server", "launcher"),
        ("python --check-hash-based-pycs always -msglang.launch_server", "launcher"),
        ("python -m sglang.srt.entrypoints.http_server", "launcher"),
        ("python -m sglang serve --port 1", "launcher"),
        ("python /sgl-workspace/sglang/python/sglang/launch_server.py", "launcher"),
        ("vim /sgl-workspace/sglang/python/sglang/srt/models/deepseek_v2.py", None),
        ("grep --color=auto sglang", None),
        ("grep sglang::scheduler", None),
        ("pgrep -f sglang.launch_server", None),
        ("bash -c pkill_-f_sglang.launch_server", None),
        ("ssh node python -m sglang.launch_server", None),
        ("python3 -m pytest -m sglang.launch_server", None),
        ("python3 train.py -m sglang.launch_server", None),
        ("python3 -m sglang.bench_serving", None),
        ("python3 -m sglang.launch_servers", None),
        ("python3 -m sglang.srt.mem_cache.storage.hf3fs.mini_3fs_metadata_server", None),
        ("python3 -m sglang.srt.debug_utils.dump_comparator", None),
        ("python3 -c print() -m sglang.launch_server", None),
        ("python3 -i", None),
        ("python3", None),
        ("python3 -m", None),
        ("sglang --version", None),
        ("less sglang::scheduler_TP0", None),
    ],
)
def test_role_of_a_command_line(argv: str, expected: str | None) -> None:
    assert role(*argv.split(" ")) == expected


def test_resource_tracker_as_captured() -> None:
    """ps_server_up.txt: PYTHON -B -c CODE."""
    code = "from multiprocessing.resource_tracker import main;main(6)"
    assert role("/srv/sgl/v23/bin/python", "-B", "-c", code) == "resource-tracker"


@pytest.mark.parametrize(
    ("comm", "expected"),
    [
        ("sglang::schedul", "scheduler"),
        ("sglang::detoken", "detokenizer"),
        ("sglang::tokeniz", "tokenizer-worker"),
        ("sglang::data_pa", "dp-controller"),
        ("python", None),
        ("", None),
    ],
)
def test_role_of_a_name_cut_to_15_bytes(comm: str, expected: str | None) -> None:
    """Case 054: top and a zombie show only this."""
    assert role(comm=comm) == expected


def test_other_users_processes_on_a_shared_node() -> None:
    """Case 064: who is SGLang's is told from the command line, whose it is from the user and the port."""
    assert role("python3", "-m", "sglang.launch_server", "--port", "30000", "--tp", "4") == "launcher"
    assert role("python3", "train.py") is None


@given(st.lists(st.text(max_size=12), max_size=8), st.text(max_size=15))
def test_any_command_line_has_an_answer(argv: Sequence[str], comm: str) -> None:
    assert procs.role({"argv": list(argv), "comm": comm}) in {
        None,
        "launcher",
        "scheduler",
        "detokenizer",
        "tokenizer-worker",
        "dp-controller",
        "resource-tracker",
        "member",
    }


def test_secrets_are_not_shown() -> None:
    argv = [
        "python",
        "--api-key",
        "S1",
        "--admin-api-key=S2",
        "--hf-token",
        "S3",
        "HF_TOKEN=S4",
        "--api-k",
        "S5",
    ]
    argv += [
        "--ssl-keyfile-password",
        "S6",
        "--ssl-keyfile",
        "k.pem",
        "--tokenizer-path",
        "t",
        "--max-total-tokens",
        "9",
    ]
    shown = procs.redact(argv)
    assert not [item for item in shown if "S" in item]
    assert shown[-6:] == ["--ssl-keyfile", "k.pem", "--tokenizer-path", "t", "--max-total-tokens", "9"]
    assert procs.title({"argv": argv, "comm": "python"}).startswith(
        "python --api-key *** --admin-api-key=***"
    )


def test_server_and_its_family(probe: Probe, tmp_path: Path) -> None:
    port = free_port()
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_X": "1", "SGLANG_API_KEY": "S", "OTHER": "2"}
    log = (tmp_path / "server.log").open("w")
    with server_tree(tmp_path, port, "--api-key", "S3cret", env=env, stderr=log) as tree:
        found = look(probe, port, env_keys=["OTHER"])
        processes = by_pid(found)
        launcher = processes[tree.launcher.pid]
        roles = {pid: processes[pid]["role"] for pid in tree.started}
    log.close()
    assert roles == {
        tree.launcher.pid: "launcher",
        tree.children["sglang::scheduler_TP0"]: "scheduler",
        tree.children["sglang::scheduler_TP1"]: "scheduler",
        tree.children["sglang::detokenizer"]: "detokenizer",
        tree.children["tracker"]: "resource-tracker",
    }
    assert os.getpid() not in processes
    assert os.getppid() not in processes
    assert launcher["sid"] == launcher["pgid"] == tree.launcher.pid
    assert launcher["starttime_ticks"] == tree.started[tree.launcher.pid]
    assert abs(launcher["start_time"] - time.time()) < 600
    assert launcher["cwd"] == str(tmp_path.resolve())
    assert launcher["exe"] == os.path.realpath(sys.executable)
    assert launcher["env"] == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SGLANG_X": "1",
        "SGLANG_API_KEY": "***",
        "OTHER": "2",
    }
    assert launcher["log_fds"] == [str(tmp_path.resolve() / "server.log")]
    assert (launcher["uid"], launcher["state"]) == (os.getuid(), "S")
    assert "S3cret" not in str(found)
    scheduler = processes[tree.children["sglang::scheduler_TP0"]]
    assert scheduler["title"] == "sglang::scheduler_TP0"
    assert scheduler["comm"] == "sglang::schedul"
    assert scheduler["env"] is None  # written over by the title
    assert [(x["address"], x["port"], x["pid"]) for x in found["listeners"]] == [
        ("127.0.0.1", port, tree.launcher.pid)
    ]
    assert found["port_states"] == {"LISTEN": 1}
    assert found["self"]["pid"] == os.getpid()
    assert launcher["net"] == found["self"]["net"] == str(Path("/proc/self/ns/net").readlink())
    root = Path("/").stat()
    assert launcher["root"] == found["self"]["root"] == f"{root.st_dev}:{root.st_ino}"


def test_orphans_are_found_with_their_tracker(probe: Probe, tmp_path: Path) -> None:
    """Case 052: the launcher is gone, its children are re-parented and hold the memory."""
    with server_tree(tmp_path, free_port()) as tree:
        tree.kill_launcher_only()
        processes = by_pid(look(probe))
        assert tree.launcher.pid not in processes
        for name, pid in tree.children.items():
            assert (
                processes[pid]["role"]
                == {"s": "scheduler", "d": "detokenizer", "t": "resource-tracker"}[name.split("::")[-1][0]]
            )
            assert processes[pid]["ppid"] not in (tree.launcher.pid, os.getpid())


def test_a_scripts_other_jobs_are_no_members_of_its_server() -> None:
    """`nohup bash run_synth.sh`: a server in the background, then its client, all in one process group."""

    def one(pid: int, ppid: int, *argv: str) -> dict[str, Any]:
        return {"pid": pid, "argv": argv, "comm": "", "ppid": ppid, "pgid": 10, "sid": 9, "state": "S"}

    script, client = one(10, 1, "bash", "run_synth.sh"), one(13, 10, "python3", "generate_data.py")
    launcher = one(11, 10, "python3", "-m", "sglang.launch_server")
    rank = one(12, 11, "sglang::scheduler_TP0")
    spawn = one(14, 11, "python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
    others = one(15, 13, "python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
    running = {each["pid"]: each for each in (script, launcher, rank, client, spawn, others)}
    roles = {10: None, 11: "launcher", 12: "scheduler", 13: None, 14: "member", 15: None}
    assert procs.family(running) == roles
    # The launcher was killed: what it left behind has no parent any more.
    killed = {**launcher, "state": "Z", "argv": ()}
    left = {**running, 11: killed, 12: {**rank, "ppid": 1}, 14: {**spawn, "ppid": 1}}
    assert procs.family(left) == {**roles, 11: None}


def test_shell_and_strangers_of_the_same_session_are_no_members(probe: Probe) -> None:
    """A server started from a shell with job control: only its process group is its family."""
    script = (
        "import os, subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, '-c', 'import setproctitle, time, os; os.setpgid(0, 0);'"
        " 'setproctitle.setproctitle(\"sglang::scheduler_TP9\"); time.sleep(600)'])\n"
        "editor = subprocess.Popen(['sleep', '600'])\n"
        "print('up', flush=True)\n"
        "print(server.pid, editor.pid, flush=True)\n"
        "try:\n    sys.stdin.readline()\nfinally:\n    server.kill(); editor.kill()\n"
    )
    with spawned([sys.executable, "-c", script], stdin=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdin is not None
        server, editor = (int(pid) for pid in shell.stdout.readline().split())
        wait_until(lambda: by_pid(look(probe)).get(server, {}).get("role") == "scheduler")
        processes = by_pid(look(probe))
        assert processes[shell.pid]["role"] is None
        assert processes[editor]["role"] is None
        shell.stdin.close()
        shell.wait()


def test_zombie_and_zombie_with_a_living_thread(probe: Probe) -> None:
    """Case 062: Zsl is a zombie whose thread keeps the memory; a plain zombie holds nothing."""
    with half_dead("sglang::scheduler_TP0") as process:
        found = by_pid(look(probe))[process.pid]
        assert found["state"] == "Z"
        assert found["title"] == "[sglang::schedul]"
        assert found["role"] == "scheduler"
        assert found["threads_alive_of_zombie"] is True
        assert procfs.alive(process.pid, found["starttime_ticks"])
    with titled("sglang::detokenizer") as process:
        started = ticks(process.pid)
        process.kill()
        wait_until(lambda: not procfs.alive(process.pid, started))
        found = by_pid(look(probe))[process.pid]
        assert found["title"] == "[sglang::detoken]"
        assert found["role"] == "detokenizer"
        assert found["threads_alive_of_zombie"] is False
        assert found["argv"] == []


def test_extra_pids_and_gone_ones(probe: Probe) -> None:
    with spawned([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]) as process:
        found = by_pid(look(probe, extra_pids=[process.pid, 2**22 + 1]))
        assert found[process.pid]["role"] is None
        assert 2**22 + 1 not in found


def test_port_holder_that_is_not_sglang(probe: Probe) -> None:
    port = free_port()
    code = f"import socket, time; s = socket.create_server(('0.0.0.0', {port}))"
    code += "; print('up', flush=True); time.sleep(600)"
    with spawned([sys.executable, "-c", code]) as process:
        found = look(probe, port)
        assert found["listeners"][0]["pid"] == process.pid
        assert found["listeners"][0]["address"] == "0.0.0.0"
        assert by_pid(found)[process.pid]["role"] is None


def test_listener_on_ipv6(probe: Probe) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        found = look(probe, server.getsockname()[1])
    assert [(x["address"], x["pid"], x["uid"]) for x in found["listeners"]] == [
        ("::1", os.getpid(), os.getuid())
    ]


def test_time_wait_is_not_a_listener(probe: Probe) -> None:
    """Case 067, with real sockets: what is left of an ended server is TIME_WAIT, which blocks nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()
        assert client.recv(1) == b""
        client.close()
    wait_until(lambda: look(probe, port)["port_states"] == {"TIME_WAIT": 1})
    assert look(probe, port)["listeners"] == []


def test_only_the_exact_local_port_counts() -> None:
    """Case 067's rows as the kernel writes them: peer columns and other ports do not count."""
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    lines = [  # 7530 is 30000, 7531 is 30001, C738 is 51000
        "0: 0100007F:7530 0100007F:9DE2 06 00000000:00000000 03:00000D8C 00000000     0        0 0 3 0",
        "1: 0100007F:7530 0100007F:9DE4 06 00000000:00000000 03:00000D8C 00000000     0        0 0 3 0",
        "2: 00000000:7531 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0",
        "3: 0A0200C0:C738 140200C0:7530 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0",
    ]
    text = head + "\n".join("   " + line for line in lines) + "\n"
    assert [row["state"] for row in sockets.rows(text, 30000)] == ["TIME_WAIT", "TIME_WAIT"]
    assert [(row["state"], row["inode"]) for row in sockets.rows(text, 30001)] == [("LISTEN", 77)]
    assert sockets.address("140200C0") == "192.0.2.20"


def test_name_with_brackets_and_spaces(probe: Probe) -> None:
    with titled("a) S 1 (b") as process:
        found = procfs.stat(process.pid)
        assert found is not None
        assert found["comm"] == "a) S 1 (b"
        assert found["ppid"] == os.getpid()
        assert look(probe)["self"]["ancestors"][0] == os.getppid()


def test_servers_own_command_makes_a_launcher(probe: Probe) -> None:
    """An inventory may replace `python -m sglang.launch_server` by a program of its own."""
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    with spawned([*argv, "--port", "1"]) as process:
        assert process.pid not in by_pid(look(probe))
        assert by_pid(look(probe, command=argv))[process.pid]["role"] == "launcher"
        assert process.pid not in by_pid(look(probe, command=[*argv, "--port", "2"]))
