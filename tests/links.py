"""A TCP link between a test and a server: it delays, counts turns, falls silent or breaks."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

PIECE = 1 << 18


class Link:
    """Relays every connection to its port on to `target`, `delay_s` later, each direction for itself.

    A turn is a piece from the client that follows one from the server, counted over all connections.
    """

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        self.turns = 0
        self._target = target
        self._delay_s = delay_s
        self._last = ""
        self._silent = threading.Event()
        self._sockets: list[socket.socket] = []
        self._queues: list[queue.SimpleQueue[tuple[float, bytes]]] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = self._run(self._accept)

    def silence(self) -> None:
        """From now on nothing passes either way, and nobody is told."""
        self._silent.set()

    def cut(self) -> None:
        """Reset all connections."""
        for end in list(self._sockets):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
            end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(10)
        self.cut()
        for waiting in self._queues:
            waiting.put((0.0, b""))
        for thread in self._threads:
            thread.join(10)

    def _run(self, function: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets.append(server)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, source, sink in (("client", client, server), ("server", server, client)):
                waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                self._queues.append(waiting)
                self._run(self._read, name, source, waiting)
                self._run(self._write, sink, waiting)

    def _read(
        self, name: str, source: socket.socket, waiting: queue.SimpleQueue[tuple[float, bytes]]
    ) -> None:
        piece = b"begin"
        while piece:
            try:
                piece = source.recv(PIECE)
            except OSError:
                piece = b""
            if piece and name == "client" and self._last != "client":
                self.turns += 1
            self._last = name if piece else self._last
            if not self._silent.is_set():
                waiting.put((time.monotonic() + self._delay_s, piece))

    def _write(self, sink: socket.socket, waiting: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, piece = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))  # the link's delay, nothing is waited for
            try:
                if not piece:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(piece)
            except OSError:
                return


@contextlib.contextmanager
def link(target: int, delay_s: float = 0.0) -> Iterator[Link]:
    """A link to a port of 127.0.0.1, closed at the end."""
    made = Link(target, delay_s)
    try:
        yield made
    finally:
        made.close()
