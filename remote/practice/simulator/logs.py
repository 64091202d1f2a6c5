"""Writing log lines as SGLang 0.5.x does: its own logger, Uvicorn's, and tqdm's progress bars.

Every line is one write, so that lines of several processes never mix. SGLang and tqdm write to stderr,
Uvicorn's access lines to stdout (uvicorn.config.LOGGING_CONFIG).
"""

from __future__ import annotations

import os
import time


def _write(fd: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:  # nobody reads our log any more: as Python's logging, go on
        return


def stamp(now: float | None = None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))


def log(message: str, prefix: str = "") -> None:
    """A line of SGLang's logger; `prefix` is the rank's (" TP0"), empty in launcher and detokenizer."""
    _write(2, f"[{stamp()}{prefix}] {message}\n")


def early(message: str, where: str, level: str = "WARNING") -> None:
    """A line from before the logger is configured, as 0.5.9 prints it; `where` is "server_args.py:2364"."""
    _write(2, f"[{stamp()}] {level} {where}: {message}\n")


def raw(text: str) -> None:
    """Text without a prefix: progress bars, tracebacks of the launcher."""
    _write(2, text)


def uvicorn(message: str, level: str = "INFO") -> None:
    _write(2, f"[{stamp()}] {level + ':':<10}{message}\n")


def access(client: str, request_line: str, status: str) -> None:
    """`status` is code and phrase, "200 OK"."""
    _write(1, f'[{stamp()}] {"INFO:":<10}{client} - "{request_line}" {status}\n')


def _clock(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 60:02d}:{whole % 60:02d}"


def _rate(done: int, elapsed_s: float, per_s: str = "it/s", s_per: str = "s/it") -> str:
    if not done or elapsed_s <= 0:
        return f"?{per_s}"
    rate = done / elapsed_s
    return f"{rate:5.2f}{per_s}" if rate >= 1 else f"{1 / rate:5.2f}{s_per}"


def shard_bar(done: int, total: int, elapsed_s: float) -> str:
    """Progress of weight loading (model_loader/weight_utils.py: the bar format itself ends in a newline)."""
    left = _clock(elapsed_s / done * (total - done)) if done else "?"
    rate = _rate(done, elapsed_s) if done else "?it/s"
    if done:
        rate = rate.rjust(9)
    return (
        f"\rLoading safetensors checkpoint shards: {100 * done // total:3d}% Completed | "
        f"{done}/{total} [{_clock(elapsed_s)}<{left}, {rate}]\n"
    )


def capture_bar(description: str, done: int, total: int, elapsed_s: float) -> str:
    """tqdm's default bar, redrawn after a carriage return (cuda_graph_runner.py: capture)."""
    full = 10 * done // total
    bar = "█" * full + ("▏▎▍▌▋▊▉"[(80 * done // total) % 8 - 1] if (80 * done // total) % 8 else "")
    left = _clock(elapsed_s / done * (total - done)) if done else "?"
    head = f"{description}: " if description else ""
    rate = _rate(done, elapsed_s).rjust(9) if done else "?it/s"
    return f"\r{head}{100 * done // total:3d}%|{bar:<10}| {done}/{total} [{_clock(elapsed_s)}<{left}, {rate}]"
