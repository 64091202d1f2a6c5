"""GPUs: the answers that nvidia-smi gives in the field, a hanging one, device files, waiting for memory."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.node import gpus, gpuwait, procfs
from remote.node.base import OpError
from tests.node.kit import Probe, spawned
from tests.support import wait_until

TWO = (
    "0, GPU-a, NVIDIA RTX PRO 6000 Blackwell, 70211, 97887, 0, Disabled\n"
    "1, GPU-b, NVIDIA RTX PRO 6000 Blackwell, 4, 97887, 100, Disabled\n"
)


def smi(directory: Path, cards: str, apps: str = "", *, script: str = "") -> str:
    """A stand-in for nvidia-smi that prints these; the directory to look for it in."""
    directory.mkdir(exist_ok=True)
    (directory / "cards").write_text(cards)
    (directory / "apps").write_text(apps)
    here = f"{script}\ncd '{directory}'\ncase \"$1\" in --query-gpu=*) cat cards;; *) cat apps;; esac\n"
    (directory / "nvidia-smi").write_text("#!/bin/sh\n" + here)
    (directory / "nvidia-smi").chmod(0o755)
    return str(directory)


def look(probe: Probe, path: str, **params: Any) -> dict[str, Any]:
    return gpus.gpus({"path": path, "timeout_s": 20, **params}, probe.ctx)


def test_holders_are_named_with_gpu_and_user(probe: Probe, tmp_path: Path) -> None:
    apps = (
        f"GPU-a, {os.getpid()}, sglang::scheduler_TP0, 69800\nGPU-b, 4194305, /usr/bin/python3, a b, [N/A]\n"
    )
    found = look(probe, smi(tmp_path / "bin", TWO, apps))
    assert found["available"] is True
    assert found["why"] is None
    assert [gpu["memory_used_mib"] for gpu in found["gpus"]] == [70211, 4]
    assert found["gpus"][0]["name"] == "NVIDIA RTX PRO 6000 Blackwell"
    user = procfs.user_of(os.getuid())
    assert found["holders"] == [
        {
            "gpu_index": 0,
            "uuid": "GPU-a",
            "pid": os.getpid(),
            "name": "sglang::scheduler_TP0",
            "used_mib": 69800,
            "user": user,
        },
        {
            "gpu_index": 1,
            "uuid": "GPU-b",
            "pid": 4194305,
            "name": "/usr/bin/python3, a b",
            "used_mib": None,
            "user": None,
        },
    ]
    assert found["holders_known"] is True


def test_ghost_utilization_is_no_holder(probe: Probe, tmp_path: Path) -> None:
    """Case 069: 100 % and 0 MiB is free."""
    cards = "0, GPU-a, X, 0, 97887, 100, [N/A]\n1, GPU-b, X, 4, 97887, 100, [N/A]\n"
    found = look(probe, smi(tmp_path / "bin", cards))
    assert found["holders"] == []
    assert found["holders_known"] is True
    assert all(gpus.idle(gpu, 1024) for gpu in found["gpus"])
    assert gpuwait.gpu_wait({"path": str(tmp_path / "bin"), "timeout_s": 5}, probe.ctx)["freed"] is True


def test_insufficient_permissions_on_a_mig_gpu(probe: Probe, tmp_path: Path) -> None:
    """Case 056: unknown, never free."""
    denied = "[Insufficient Permissions]"
    cards = f"0, GPU-a, NVIDIA A100-SXM4-80GB, {denied}, {denied}, [N/A], Enabled\n"
    found = look(probe, smi(tmp_path / "bin", cards))
    gpu = found["gpus"][0]
    assert (gpu["memory_used_mib"], gpu["memory_total_mib"], gpu["utilization"], gpu["mig"]) == (
        None,
        None,
        None,
        True,
    )
    assert gpus.idle(gpu, 1024) is None
    assert found["holders_known"] is False
    waited = gpuwait.gpu_wait({"path": str(tmp_path / "bin"), "timeout_s": 60}, probe.ctx)
    assert waited["freed"] is None
    assert "GPU 0" in waited["why"]


def test_pid_not_supported(probe: Probe, tmp_path: Path) -> None:
    """Case 057: the list of processes is not available."""
    apps = "[Not Supported], [Not Supported], [Not Supported], [Not Supported]\n"
    found = look(probe, smi(tmp_path / "bin", "0, GPU-a, X, 70211, 97887, 0, [N/A]\n", apps))
    assert found["holders_known"] is False
    assert [holder["pid"] for holder in found["holders"]] == [None]
    assert gpus.idle(found["gpus"][0], 1024) is False


@pytest.mark.parametrize(
    ("used", "apps", "known"),
    [
        ("0", "No running processes found\n", True),  # case 059, A
        ("7325", "", False),  # case 059, B: the empty panel of a container
        ("70211", "", False),  # case 061
        ("70211", "GPU-a, 99, python3, 300\n", False),  # somebody else is not listed
        ("70211", "GPU-a, 99, python3, 69900\n", True),
        ("600", "", True),
        ("[N/A]", "", False),
        ("70211", "MIG-x, 99, python3, 69900\n", False),
    ],
)
def test_empty_list_of_processes(probe: Probe, tmp_path: Path, used: str, apps: str, known: bool) -> None:
    found = look(probe, smi(tmp_path / "bin", f"0, GPU-a, X, {used}, 24564, 0, [N/A]\n", apps))
    assert found["holders_known"] is known


def test_device_files_name_those_who_are_not_listed(probe: Probe, tmp_path: Path) -> None:
    """Case 061: whoever has /dev/nvidiaN open, as fuser would tell."""
    device = tmp_path / "nvidia0"
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).write_text("")
    code = f"import time; a = open({str(device)!r}); b = open({str(tmp_path / 'nvidiactl')!r})"
    code += "; print('up', flush=True); time.sleep(600)"
    with spawned([sys.executable, "-c", code]) as first, spawned([sys.executable, "-c", code]) as second:
        prefix = str(tmp_path / "nvidia")
        found = look(
            probe, smi(tmp_path / "bin", "0, GPU-a, X, 70211, 97887, 0, [N/A]\n"), device_prefix=prefix
        )
        whole = look(probe, smi(tmp_path / "bin", "0, GPU-a, X, 0, 97887, 0, [N/A]\n"), device_prefix=prefix)
        names = {pid: (procfs.stat(pid) or {})["comm"] for pid in (first.pid, second.pid)}
    user = procfs.user_of(os.getuid())
    expected = [
        {"pid": pid, "name": name, "user": user, "path": str(device)} for pid, name in sorted(names.items())
    ]
    assert sorted(found["device_file_holders"], key=lambda holder: holder["pid"]) == expected
    assert whole["device_file_holders"] == []  # nothing is in use: nobody is looked for


def test_hanging_nvidia_smi_is_given_up_and_leaves_nothing_behind(probe: Probe, tmp_path: Path) -> None:
    """Case 062: every call is under a time limit."""
    path = smi(tmp_path / "bin", TWO, script=f"echo $$ >>'{tmp_path}/pids'\nsleep 600")
    found = look(probe, path, timeout_s=1.5)
    assert found["available"] is False
    assert "hangs" in found["why"]
    assert found["holders_known"] is False
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    left = [pid for pid in procfs.pids() if (procfs.stat(pid) or {}).get("pgid") in pids]
    wait_until(
        lambda: (
            not any(procfs.alive(pid, (procfs.stat(pid) or {}).get("starttime_ticks", -1)) for pid in left)
        )
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9",
            "exit code 9",
        ),
        (
            "echo 'Unable to determine the device handle for GPU 0000:61:00.0: GPU is lost.'; exit 15",
            "exit code 15",
        ),
        ("echo 'No devices were found'; exit 6", "No devices"),
        ("echo garbage; exit 0", "not understood"),
        ("exit 0", "empty"),
        ("printf '\\377\\376, x'; exit 0", "not understood"),
    ],
)
def test_answers_that_are_none(probe: Probe, tmp_path: Path, script: str, why: str) -> None:
    found = look(probe, smi(tmp_path / "bin", TWO, script=script))
    assert found["available"] is False
    assert why in found["why"]
    assert found["gpus"] == []
    assert found["holders_known"] is False


def test_one_lost_gpu_makes_the_whole_answer_unknown(probe: Probe, tmp_path: Path) -> None:
    found = look(probe, smi(tmp_path / "bin", TWO + "Unable to determine the device handle for GPU2\n"))
    assert found["available"] is False
    assert len(found["gpus"]) == 2
    assert gpuwait.gpu_wait({"path": str(tmp_path / "bin"), "timeout_s": 0.1}, probe.ctx)["freed"] is None


def test_old_driver_without_mig_field(probe: Probe, tmp_path: Path) -> None:
    answer = 'echo "Field \\"mig.mode.current\\" is not a valid field to query."'
    refusal = f'case "$1" in *mig.mode*) {answer}; exit 2;; esac'
    found = look(probe, smi(tmp_path / "bin", "0, GPU-a, Tesla, 12, 15000, 0\n", script=refusal))
    assert found["available"] is True
    assert found["gpus"][0]["memory_used_mib"] == 12
    assert found["gpus"][0]["mig"] is False


def test_no_nvidia_smi(probe: Probe, tmp_path: Path) -> None:
    found = look(probe, str(tmp_path))
    assert (found["available"], found["why"], found["program"]) == (False, "nvidia-smi was not found", None)
    waited = gpuwait.gpu_wait({"path": str(tmp_path), "timeout_s": 60}, probe.ctx)
    assert waited["freed"] is None


def test_not_an_executable_format(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("x")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert "nvidia-smi" in look(probe, str(tmp_path))["why"]


def test_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = smi(tmp_path / "bin", TWO)
    monkeypatch.setenv("PATH", path)
    assert gpus.find_program(None) == str(tmp_path / "bin/nvidia-smi")


def test_wait_until_memory_is_back(probe: Probe, tmp_path: Path) -> None:
    path = smi(tmp_path / "bin", TWO, "GPU-a, 99, python3, 69900\n")

    def free_when_seen() -> None:
        wait_until(lambda: probe.events)
        (tmp_path / "bin/apps").write_text("")
        wait_until(lambda: probe.events)
        new = tmp_path / "bin/new"
        new.write_text(TWO.replace("70211", "1500"))
        new.replace(tmp_path / "bin/cards")

    thread = threading.Thread(target=free_when_seen)
    thread.start()
    waited = gpuwait.gpu_wait(
        {"path": path, "timeout_s": 40, "interval_s": 0.05, "pids_gone": [99]}, probe.ctx
    )
    thread.join()
    assert waited["freed"] is True  # 1500 MiB is below 2 % of 97887
    assert [[gpu["memory_used_mib"] for gpu in event["gpus"]] for event in probe.events] == [
        [70211, 4],
        [1500, 4],
    ]


def test_wait_gives_up(probe: Probe, tmp_path: Path) -> None:
    path = smi(tmp_path / "bin", TWO, "GPU-a, 99, python3, 69900\n")
    waited = gpuwait.gpu_wait({"path": path, "timeout_s": 0.2, "interval_s": 0.05}, probe.ctx)
    assert waited["freed"] is False
    assert waited["why"] == "memory still in use on GPU 0"
    assert waited["waited_s"] >= 0.2
    others = gpuwait.gpu_wait({"path": path, "timeout_s": 5, "indices": [1]}, probe.ctx)
    assert others["freed"] is True
    above = gpuwait.gpu_wait({"path": path, "timeout_s": 5, "baseline_mib": 70000}, probe.ctx)
    assert above["freed"] is True
    absent = gpuwait.gpu_wait({"path": path, "timeout_s": 5, "indices": [1, 7]}, probe.ctx)
    assert absent["freed"] is None


def test_wait_for_pids_that_are_still_listed(probe: Probe, tmp_path: Path) -> None:
    path = smi(tmp_path / "bin", TWO.replace("70211", "4"), "GPU-a, 99, python3, 3\n")
    waited = gpuwait.gpu_wait(
        {"path": path, "timeout_s": 0.1, "interval_s": 0.05, "pids_gone": [99, 100]}, probe.ctx
    )
    assert (waited["freed"], waited["why"]) == (False, "still on the GPUs: 99")


def test_wait_is_cancelled(probe: Probe, tmp_path: Path) -> None:
    path = smi(tmp_path / "bin", TWO, "GPU-a, 99, python3, 69900\n")
    probe.cancel.set()
    with pytest.raises(OpError) as caught:
        gpuwait.gpu_wait({"path": path, "timeout_s": 60}, probe.ctx)
    assert caught.value.kind == "cancelled"


@given(st.text(alphabet="0123456789,[]/NA GPU-ab\n.", max_size=200))
def test_any_answer_is_parsed_without_inventing_memory(text: str) -> None:
    found, rest = gpus.parse_gpus(text)
    assert len(found) + len(rest) == len([line for line in text.splitlines() if line.strip()])
    digits = {int(part) for part in re.findall(r"\d+", text)}
    for gpu in found:
        assert gpu["memory_used_mib"] is None or gpu["memory_used_mib"] in digits
    holders, understood = gpus.parse_holders(text, found)
    assert not understood or all(holder["pid"] is not None for holder in holders)


def test_program_is_asked_for_numbers_without_units(probe: Probe, tmp_path: Path) -> None:
    path = smi(
        tmp_path / "bin",
        TWO,
        script=f"echo \"$@\" >>'{tmp_path}/asked'; env | grep ^LC_ALL >>'{tmp_path}/asked'",
    )
    look(probe, path)
    asked = (tmp_path / "asked").read_text()
    assert "--query-gpu=index,uuid,name,memory.used,memory.total,utilization.gpu,mig.mode.current" in asked
    assert "--query-compute-apps=gpu_uuid,pid,process_name,used_memory" in asked
    assert asked.count("--format=csv,noheader,nounits") == 2
    assert asked.count("LC_ALL=C") == 2
