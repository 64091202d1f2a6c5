"""N-gram speculation, which the practice node does not use: there so that it can be imported."""

from __future__ import annotations

from typing import Any

from . import absent


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return absent(f"sgl_kernel.speculative.{name}")
