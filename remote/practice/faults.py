"""The faults that `inv practice.break` knows: what each does, and which check must find it.

To add one: a line in the table of its kind, made of steps from file_steps.py and process_steps.py.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remote.practice.build import DEEPSEEK, FIXED, GRAPH_RUNNER, MODEL_RUNNER
from remote.practice.file_steps import Step, append, draft, edit, gpus, remove, stale_bytecode, undo
from remote.practice.process_steps import left_behind, older_than_files, restarted, signalled, stranger


@dataclass(frozen=True)
class Fault:
    """`found_by`: the checks of which at least one is `fail` or `unknown` while the fault is there."""

    name: str
    title: str
    does: str
    found_by: tuple[str, ...]
    steps: tuple[Step, ...]


def _layers(value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["eagle_config"].update(eagle_aux_hidden_state_layer_ids=value)


FILES = (
    Fault(
        "edit-undone",
        "One edit of the fix is gone",
        "takes the capture of the embedding out of deepseek_v2.py again, and leaves the other edits",
        ("source.state", "wiring.eager"),
        (undo(DEEPSEEK, holding="aux_hidden_states.append("),),
    ),
    Fault(
        "graph-edit-undone",
        "The fix reaches prefill but not decode",
        "puts the wheel's cuda_graph_runner.py and model_runner.py back, as in the incident",
        ("source.state", "wiring.graph"),
        (undo(GRAPH_RUNNER, MODEL_RUNNER),),
    ),
    Fault(
        "fix-undone",
        "All files are as in the wheel",
        "puts the wheel's files back, as an upgrade or a reinstall does",
        ("source.state",),
        (undo(*FIXED),),
    ),
    Fault(
        "syntax-error",
        "The model file does not compile",
        "leaves an open bracket at the end of deepseek_v2.py, as a sed that went wrong",
        ("source.compiles",),
        (append(DEEPSEEK, "\n_left_open = (\n"),),
    ),
    Fault(
        "foreign-edit",
        "Somebody else rewrote a statement that the fix builds on",
        "writes `aux_hidden_states = list()` in deepseek_v2.py: neither done nor to do",
        ("source.state",),
        (edit(DEEPSEEK, "        aux_hidden_states = []\n", "        aux_hidden_states = list()\n"),),
    ),
    Fault(
        "stale-pyc",
        "Old bytecode with the new file's second and size",
        "puts bytecode of other source beside deepseek_v2.py that Python believes",
        ("bytecode.fresh",),
        (stale_bytecode(DEEPSEEK, unchecked=False),),
    ),
    Fault(
        "unchecked-pyc",
        "Bytecode that never looks at the source",
        "puts an unchecked-hash pyc of other source beside deepseek_v2.py",
        ("bytecode.fresh",),
        (stale_bytecode(DEEPSEEK, unchecked=True),),
    ),
)

CONFIG = (
    Fault(
        "config-reverted",
        "The draft's layer ids are the old ones",
        "sets eagle_aux_hidden_state_layer_ids to [2, 30, 58]",
        ("config.values", "wiring.eager"),
        (draft(_layers([2, 30, 58])),),
    ),
    Fault(
        "config-string",
        "The draft's layer ids are text, not a list",
        'sets eagle_aux_hidden_state_layer_ids to "[-1, 2, 30]" in quotes',
        ("config.values",),
        (draft(_layers("[-1, 2, 30]")),),
    ),
)

PROCESSES = (
    Fault(
        "old-server",
        "The old server kept the port",
        "has a server answer that was started before the fix was deployed",
        ("process.after_fix",),
        (older_than_files,),
    ),
    Fault(
        "orphans",
        "The launcher is dead, its ranks live",
        "leaves schedulers without a launcher, re-parented to init, with their GPU memory",
        ("process.single", "health.http"),
        (left_behind,),
    ),
    Fault(
        "rank-dead",
        "One rank was killed, the launcher has not noticed",
        "ends rank 1 as the kernel's OOM killer does; the launcher goes on waiting",
        ("process.ranks",),
        (restarted(faults={"hang_on_rank_death": True}, kill_rank=1),),
    ),
    Fault(
        "server-killed",
        "The server is gone",
        "kills the launcher",
        ("process.single", "health.http"),
        (signalled(signal.SIGKILL),),
    ),
    Fault(
        "rank-stopped",
        "One rank does not move",
        "stops rank 0 with SIGSTOP: the server is there and says nothing",
        ("health.http", "health.generate"),
        (signalled(signal.SIGSTOP, rank=0),),
    ),
)

GPUS = (
    Fault(
        "gpu-memory-unknown",
        "nvidia-smi does not tell the memory",
        "answers [N/A] for memory.used and memory.total",
        ("gpu.holders",),
        (gpus(text={"*": {"memory.used": "[N/A]", "memory.total": "[N/A]", "memory.free": "[N/A]"}}),),
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
    ),
    Fault(
        "gpu-pids-unknown",
        "nvidia-smi does not tell the processes",
        "answers [Not Supported] in every column of the process list",
        ("gpu.holders",),
        (gpus(processes="[Not Supported]"),),
    ),
    Fault(
        "gpu-hang",
        "nvidia-smi never answers",
        "has nvidia-smi hang, as with a stuck driver",
        ("gpu.holders",),
        (gpus(answer="hang"),),
    ),
    Fault(
        "gpu-driver",
        "nvidia-smi does not reach the driver",
        "answers as without a driver, with exit code 9",
        ("gpu.holders",),
        (gpus(answer="driver"),),
    ),
    Fault(
        "gpu-garbage",
        "nvidia-smi answers nonsense",
        "has nvidia-smi print bytes that are no table, with exit code 0",
        ("gpu.holders",),
        (gpus(answer="garbage"),),
    ),
    Fault(
        "gpu-tool-missing",
        "There is no nvidia-smi",
        "takes nvidia-smi away",
        ("gpu.holders",),
        (remove(lambda at: at.nvidia_smi),),
    ),
)

FAULTS = {fault.name: fault for fault in (*FILES, *CONFIG, *PROCESSES, *GPUS)}
