"""What the tests of the dispatcher share: one in a thread, the other ends of its pipes, and operations."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remote.frames import FrameReader
from remote.node import main
from remote.node.base import Context

NONCE = "0123456789abcdef"
Op = Callable[[dict[str, Any], Context], dict[str, Any]]


class Bench:
    """A dispatcher that runs in a thread, with the other ends of its pipes."""

    def __init__(self, state_dir: Path, ops: dict[str, Op], monkeypatch: pytest.MonkeyPatch) -> None:
        trial = types.ModuleType("remote.node.trial")
        trial.OPS = ops  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "remote.node.trial", trial)
        # The children of this process belong to other tests; see tests/helper/test_ends.py for this part.
        monkeypatch.setattr(main.about, "descendants", lambda _pid: [])
        requests_fd, self.requests = os.pipe()
        self.replies, replies_fd = os.pipe()
        names = dict.fromkeys(ops, "trial") | {"lock": "lock", "unlock": "lock"}
        self.service = main.Service(requests_fd, replies_fd, NONCE, names)
        self.service.state_dir = str(state_dir)
        self.frames = FrameReader(NONCE)
        self.received: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.ended = threading.Event()
        self._ends = [requests_fd, replies_fd]
        self._threads = [threading.Thread(target=self._serve), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self.service.serve()
            self.service.finish()
        finally:
            self.ended.set()
            for end in self._ends:
                os.close(end)

    def _read(self) -> None:
        while piece := os.read(self.replies, 4096):
            for frame in self.frames.feed(piece):
                self.received.put(json.loads(frame))
        os.close(self.replies)

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.requests, data) :]

    def ask(self, identifier: int, op: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        self.send(json.dumps({"id": identifier, "op": op, "params": params or {}, **more}).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        return self.received.get(timeout=30)

    def end_input(self) -> None:
        if self.requests >= 0:
            os.close(self.requests)
            self.requests = -1

    def close(self) -> None:
        self.end_input()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def echo(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    return params


def until_cancelled(_params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.event({"begun": True})
    ctx.wait(600)
    ctx.check()
    return {}
