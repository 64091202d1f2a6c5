"""Tracebacks as the real server prints them, with the line numbers of the installed files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .install import Install

Frame = tuple[
    str, str, str
]  # file relative to the install's root (or absolute), function, first line of the statement


class SimulatedError(Exception):
    """An exception of the real server: its frames, innermost last, and its last line ("TypeError: ...")."""

    def __init__(self, frames: Sequence[Frame], last: str) -> None:
        super().__init__(last)
        self.frames = tuple(frames)
        self.last = last


@dataclass(frozen=True)
class Place:
    line: int
    text: str


def find_line(install: Install, file: str, snippet: str) -> Place:
    """Where `snippet` starts a line of an installed file; line 1 and the snippet itself where it does not."""
    try:
        lines = install.path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for number, line in enumerate(lines, 1):
        if line.strip().startswith(snippet):
            return Place(number, line.strip())
    return Place(1, snippet)


def _carets(statement: str) -> str:
    """The marks under the part of a statement that raised, where it is not the whole (Python 3.11)."""
    found = re.match(r"(?:return |[\w., ]+ = |.* in )", statement)
    if found is None or (statement.startswith(("raise ", "self.")) and " = " not in statement):
        return ""
    start = found.end()
    return f"    {' ' * start}{'^' * (len(statement) - start)}\n" if start < len(statement) else ""


def render(install: Install, frames: Sequence[Frame], last: str) -> str:
    """The text of a traceback, ending in a newline."""
    text = "Traceback (most recent call last):\n"
    for file, function, snippet in frames:
        place = find_line(install, file, snippet)
        text += f'  File "{install.path(file)}", line {place.line}, in {function}\n    {place.text}\n'
        text += _carets(place.text)
    return text + last + "\n"


MAIN_FRAMES: tuple[Frame, ...] = (
    ("sglang/launch_server.py", "<module>", "server_args = prepare_server_args(sys.argv[1:])"),
    ("sglang/srt/server_args.py", "prepare_server_args", "return ServerArgs.from_cli_args(raw_args)"),
    ("sglang/srt/server_args.py", "from_cli_args", "return cls("),
)

MODEL_CONFIG_FRAMES: tuple[Frame, ...] = (
    *MAIN_FRAMES,
    (
        "sglang/srt/server_args.py",
        "get_model_config",
        "self.model_config = ModelConfig.from_server_args(self)",
    ),
    ("sglang/srt/configs/model_config.py", "from_server_args", "return ModelConfig("),
    ("sglang/srt/configs/model_config.py", "__init__", "self.hf_config = get_config("),
)

SCHEDULER_FRAMES: tuple[Frame, ...] = (
    ("sglang/srt/managers/scheduler.py", "run_scheduler_process", "scheduler = Scheduler("),
    ("sglang/srt/managers/scheduler.py", "__init__", "self.init_model_worker()"),
    ("sglang/srt/managers/scheduler.py", "init_model_worker", "self.init_tp_model_worker()"),
    ("sglang/srt/managers/scheduler.py", "init_tp_model_worker", "self.tp_worker = TpModelWorker("),
    ("sglang/srt/managers/tp_worker.py", "__init__", "self._init_model_runner()"),
    ("sglang/srt/managers/tp_worker.py", "_init_model_runner", "self._model_runner = ModelRunner("),
    ("sglang/srt/model_executor/model_runner.py", "__init__", "self.initialize(min_per_gpu_memory)"),
)

FORWARD_FRAMES: tuple[Frame, ...] = (
    ("sglang/srt/managers/scheduler.py", "run_scheduler_process", "scheduler.event_loop_normal()"),
    ("sglang/srt/managers/scheduler.py", "event_loop_normal", "result = self.run_batch(batch)"),
    (
        "sglang/srt/managers/scheduler.py",
        "run_batch",
        "batch_result = self.model_worker.forward_batch_generation(",
    ),
)
