"""JSON lines between the processes of the simulated server, over pipes and socket pairs."""

from __future__ import annotations

import json
import os
import select
from typing import Any

Message = dict[str, Any]


class PeerGone(Exception):
    """The process at the other end of a channel has ended."""


class Channel:
    """One end: reads and writes messages, each a line of JSON.

    `fd` may be a socket, or a pipe for one direction.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._pending = b""
        self._ready: list[Message] = []

    def fileno(self) -> int:
        return self.fd

    def send(self, message: Message) -> None:
        """Write one message. Raises PeerGone."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except (BrokenPipeError, ConnectionResetError):
            raise PeerGone from None

    def receive_some(self) -> list[Message]:
        """Block until there is at least one message; returns all that have come. Raises PeerGone."""
        while not self._ready:
            try:
                data = os.read(self.fd, 1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                raise PeerGone
            *lines, self._pending = (self._pending + data).split(b"\n")
            self._ready += [json.loads(line) for line in lines]
        messages, self._ready = self._ready, []
        return messages

    def receive(self) -> Message:
        """Block for one message. Raises PeerGone."""
        first, *rest = self.receive_some()
        self._ready = rest
        return first


def readable(channels: list[Channel], timeout_s: float | None) -> list[Channel]:
    """Those of `channels` that have something to read (or whose peer is gone) within `timeout_s`; None waits
    for ever.
    """
    return select.select(channels, [], [], timeout_s)[0]
