"""A plug-in of SGLang 0.5.23: lets its attention for CPUs be chosen on one without AMX.

That backend (layers/attention/intel_amx_backend.py) only calls the operators that the stand-in for sgl_kernel
registers. Everything else goes on asking whether AMX is there, and takes the way without it.
"""

from __future__ import annotations

import importlib
from typing import Any


def activate() -> None:
    """Called by SGLang in every process, through the entry point `sglang.srt.plugins`."""
    context: Any = importlib.import_module("sglang.srt.runtime_context")
    context.override_platform(has_amx=True).install()
