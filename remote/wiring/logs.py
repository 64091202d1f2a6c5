"""Log lines of the installed code."""

from __future__ import annotations

from .machine import Run
from .values import Stub, show

_LEVELS = {
    "debug": "debug", "info": "info", "warning": "warning", "warn": "warning", "error": "error",
    "critical": "critical", "exception": "error", "info_once": "info", "warning_once": "warning",
    "log_info_on_rank0": "info", "rank0_log": "info", "print_info_once": "info",
    "print_warning_once": "warning",
}  # fmt: skip
LOG_CALLS = frozenset(_LEVELS)


def emit(run: Run, path: str, args: list[object]) -> None:
    """Give the formatted message of `logger.info(...)` and its like to the run's `log` callback."""
    from .operators import percent

    owner, _, name = path.rpartition(".")
    if owner and not owner.endswith(("logger", "logging", "LOGGER", "log")):
        return
    rest = args[1:] if args and isinstance(args[0], Stub) and args[0].path == "logger" else args
    if run.log is None or run.quiet or not rest:
        return
    message = rest[0] if isinstance(rest[0], str) else show(rest[0])
    run.log(_LEVELS[name], str(percent(message, tuple(rest[1:])) if rest[1:] else message))
