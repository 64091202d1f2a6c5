"""What several tests need."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


def wait_until(
    predicate: Callable[[], object], timeout_s: float = 20.0, *, what: str = "the condition"
) -> None:
    """Poll until `predicate()` is true; fail the test when it is not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not become true within {timeout_s} s")
        time.sleep(0.02)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
