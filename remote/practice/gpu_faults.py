"""Faults of the GPUs: what nvidia-smi says, does not say, or cannot know."""

from __future__ import annotations

from remote.practice.fault import Fault
from remote.practice.file_steps import gpus, remove
from remote.practice.process_steps import stranger

GPUS = (
    Fault(
        "gpu-memory-unknown",
        "nvidia-smi does not tell the memory",
        "answers [N/A] for memory.used and memory.total",
        ("gpu.holders",),
        (gpus(text={"*": {"memory.used": "[N/A]", "memory.total": "[N/A]", "memory.free": "[N/A]"}}),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-leak",
        "Memory is held that no process accounts for",
        "shows 9000 MiB in use on GPU 1 for which no process is listed",
        ("gpu.holders",),
        (gpus(leak_mib={"1": 9000}),),
    ),
    Fault(
        "gpu-foreign",
        "Somebody else computes on our GPU",
        "starts a process that is not SGLang and holds 6000 MiB of GPU 0",
        ("gpu.holders",),
        (stranger(lambda at: [str(at.python), "-c", "import time; time.sleep(1e6)"], gpu=0, used_mib=6000),),
    ),
    Fault(
        "gpu-no-permission",
        "nvidia-smi may not tell the memory",
        "answers [Insufficient Permissions] for memory.used and memory.total",
        ("gpu.holders",),
        (
            gpus(
                text={
                    "*": dict.fromkeys(
                        ("memory.used", "memory.total", "memory.free"), "[Insufficient Permissions]"
                    )
                }
            ),
        ),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-pids-unknown",
        "nvidia-smi does not tell the processes",
        "answers [Not Supported] in every column of the process list",
        ("gpu.holders",),
        (gpus(processes="[Not Supported]"),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-processes-hidden",
        "nvidia-smi lists no processes",
        "leaves the process list empty while memory is in use, as inside a container",
        ("gpu.holders",),
        (gpus(processes="hidden"),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-lost",
        "A GPU fell off the bus",
        "has nvidia-smi answer that a GPU is lost, with exit code 15",
        ("gpu.holders",),
        (gpus(answer="lost"),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-hang",
        "nvidia-smi never answers",
        "has nvidia-smi hang, as with a stuck driver",
        ("gpu.holders",),
        (gpus(answer="hang"),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-driver",
        "nvidia-smi does not reach the driver",
        "answers as without a driver, with exit code 9",
        ("gpu.holders",),
        (gpus(answer="driver"),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-garbage",
        "nvidia-smi answers nonsense",
        "has nvidia-smi print bytes that are no table, with exit code 0",
        ("gpu.holders",),
        (gpus(answer="garbage"),),
        undetermined=("gpu.holders",),
    ),
    Fault(
        "gpu-tool-missing",
        "There is no nvidia-smi",
        "takes nvidia-smi away",
        ("gpu.holders",),
        (remove(lambda at: at.nvidia_smi),),
        undetermined=("gpu.holders",),
    ),
)
