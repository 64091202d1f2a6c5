"""The released SGLang sources that tests work on: from the wheels, downloaded once and then cached.

The cache is FIXOPS_CACHE, else XDG_CACHE_HOME/fixops/wheels, else ~/.cache/fixops/wheels.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from remote.practice import wheels


@lru_cache(maxsize=32)
def wheel(version: str) -> Path:
    """The wheel's path; fetched and checked once in a test run."""
    return wheels.fetch(version)


@lru_cache(maxsize=32)
def _record(version: str) -> dict[str, str]:
    return wheels.record(wheel(version))


@lru_cache(maxsize=256)
def wheel_source(version: str, path: str) -> bytes:
    """A file of the wheel, such as `sglang/srt/models/deepseek_v2.py`. KeyError if it has none."""
    return wheels.read(wheel(version), path)


def record_sha256(version: str, path: str) -> str | None:
    """The SHA-256 (hex) that the wheel's RECORD gives for the file, None if it gives none."""
    return _record(version).get(path)
