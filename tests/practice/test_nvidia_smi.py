"""The stand-in for nvidia-smi, run as a command, with processes that really live and die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote.practice.build import GPU_IDLE_MIB, GPU_TOTAL_MIB, make_gpus
from remote.practice.layout import Layout
from remote.practice.nvidia_smi import start_ticks
from tests.support import wait_until

QUERY_GPU = (
    "--query-gpu=index,uuid,name,memory.used,memory.total,utilization.gpu,mig.mode.current",
    "--format=csv,noheader,nounits",
)
QUERY_APPS = (
    "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
    "--format=csv,noheader,nounits",
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Three GPUs and their nvidia-smi; the interpreter of the tests stands in for the node's."""
    made = Layout(tmp_path.resolve() / "a directory with spaces")
    made.python.parent.mkdir(parents=True)
    made.python.symlink_to(sys.executable)
    make_gpus(made, 3)
    return made


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def smi(layout: Layout, *arguments: str, timeout_s: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [layout.nvidia_smi, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def rows(layout: Layout, *arguments: str) -> list[list[str]]:
    done = smi(layout, *arguments)
    assert done.returncode == 0, done
    return [line.split(", ") for line in done.stdout.splitlines()]


def hold(layout: Layout, pid: int, gpu: int, used_mib: int, **other: Any) -> None:
    entry = {"pid": pid, "starttime_ticks": start_ticks(pid), "gpu": gpu, "used_mib": used_mib, "name": "x"}
    layout.holders.joinpath(f"{pid}.json").write_text(json.dumps({**entry, **other}))


def fault(layout: Layout, name: str = "test", **settings: Any) -> None:
    layout.gpu_faults.joinpath(f"{name}.json").write_text(json.dumps(settings))


def test_idle_gpus_hold_no_memory_of_anybody(layout: Layout) -> None:
    found = rows(layout, *QUERY_GPU)
    assert [row[0] for row in found] == ["0", "1", "2"]
    assert len({row[1] for row in found}) == 3
    assert {tuple(row[3:]) for row in found} == {(str(GPU_IDLE_MIB), str(GPU_TOTAL_MIB), "0", "Disabled")}
    assert smi(layout, *QUERY_APPS).stdout == ""


def test_a_living_holder_counts_and_a_dead_one_does_not(
    layout: Layout, process: subprocess.Popen[bytes]
) -> None:
    hold(layout, process.pid, 1, 5000)
    uuid = rows(layout, *QUERY_GPU)[1][1]
    assert rows(layout, *QUERY_GPU)[1][3] == str(GPU_IDLE_MIB + 5000)
    assert rows(layout, *QUERY_APPS) == [[uuid, str(process.pid), sys.executable, "5000"]]
    process.send_signal(signal.SIGKILL)
    # Not waited for yet: a zombie holds no memory.
    wait_until(lambda: start_ticks(process.pid) is None, what="the end of the holder")
    assert rows(layout, *QUERY_GPU)[1][3] == str(GPU_IDLE_MIB)
    assert rows(layout, *QUERY_APPS) == []


def test_a_process_that_got_the_pid_later_is_not_the_holder(
    layout: Layout, process: subprocess.Popen[bytes]
) -> None:
    hold(layout, process.pid, 0, 5000, starttime_ticks=1)
    assert rows(layout, *QUERY_APPS) == []


def test_a_half_written_holder_file_is_passed_over(layout: Layout) -> None:
    layout.holders.joinpath("1.json").write_text('{"pid": 1, ')
    layout.holders.joinpath("2.json").write_text("[]")
    assert rows(layout, *QUERY_APPS) == []


def test_header_and_units_are_there_unless_taken_away(layout: Layout) -> None:
    done = smi(layout, "--query-gpu=index,memory.used,utilization.gpu", "--format=csv", "-i", "2")
    assert done.stdout == f"index, memory.used [MiB], utilization.gpu [%]\n2, {GPU_IDLE_MIB} MiB, 0 %\n"


def test_list_names_every_gpu_as_simulated(layout: Layout) -> None:
    lines = smi(layout, "-L").stdout.splitlines()
    assert len(lines) == 3
    assert all("(simulated)" in line and "UUID: GPU-" in line for line in lines)


def test_the_table_says_that_it_is_simulated(layout: Layout, process: subprocess.Popen[bytes]) -> None:
    assert "No running processes found" in smi(layout).stdout
    hold(layout, process.pid, 1, 5000)
    shown = smi(layout).stdout
    assert shown.startswith("SIMULATED")
    assert str(process.pid) in shown
    assert "No running processes found" not in shown


@pytest.mark.parametrize(
    "arguments",
    [("-q",), ("--query-gpu=colour", "--format=csv"), ("--query-gpu=index",), ("-i", "9"), ("--frobnicate",)],
)
def test_what_it_does_not_know_it_refuses(layout: Layout, arguments: tuple[str, ...]) -> None:
    done = smi(layout, *arguments)
    assert done.returncode == 2
    assert done.stdout.strip()


def test_faults_of_several_kinds_are_shown_together(layout: Layout) -> None:
    fault(layout, "one", text={"*": {"memory.total": "[N/A]"}}, leak_mib={"1": 9000})
    fault(layout, "two", text={"0": {"memory.used": "[Insufficient Permissions]"}}, utilization={"2": 100})
    found = rows(layout, *QUERY_GPU)
    assert [row[3] for row in found] == [
        "[Insufficient Permissions]",
        str(GPU_IDLE_MIB + 9000),
        str(GPU_IDLE_MIB),
    ]
    assert {row[4] for row in found} == {"[N/A]"}
    assert found[2][5] == "100"


def test_hidden_processes_are_not_called_none(layout: Layout, process: subprocess.Popen[bytes]) -> None:
    hold(layout, process.pid, 1, 5000)
    fault(layout, processes="hidden")
    assert rows(layout, *QUERY_APPS) == []
    assert rows(layout, *QUERY_GPU)[1][3] == str(GPU_IDLE_MIB + 5000)
    assert "No running processes found" not in smi(layout).stdout


def test_the_process_list_can_be_not_supported(layout: Layout, process: subprocess.Popen[bytes]) -> None:
    hold(layout, process.pid, 1, 5000)
    fault(layout, processes="[Not Supported]")
    assert rows(layout, *QUERY_APPS)[0][1:] == ["[Not Supported]"] * 3


@pytest.mark.parametrize(("answer", "code"), [("driver", 9), ("lost", 15), ("no-devices", 6), ("garbage", 0)])
def test_a_broken_tool_answers_as_the_real_one(layout: Layout, answer: str, code: int) -> None:
    fault(layout, answer=answer)
    done = smi(layout, *QUERY_GPU)
    assert done.returncode == code
    assert str(GPU_TOTAL_MIB) not in done.stdout


def test_a_hanging_tool_hangs_and_can_be_killed(layout: Layout) -> None:
    fault(layout, answer="hang")
    with pytest.raises(subprocess.TimeoutExpired):
        smi(layout, *QUERY_GPU, timeout_s=0.5)
