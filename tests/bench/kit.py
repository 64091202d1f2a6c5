"""A server on loopback that answers /generate as a script says, and a session whose node is this process.

Replies have the form of real ones (SGLang 0.5.9, streamed): each event holds the whole answer so far.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from remote.inventory import Node, ServerEntry
from remote.node.base import Context, OpError
from remote.node.state import State
from remote.pending import OnEvent, Pending
from remote.session import Session

OPS = {
    "bench": "load",
    "bench_client": "client",
    "observe": "observe",
    "http": "http",
    "watch": "watch",
    "log": "logs",
    "facts.files": "files",
    "lock": "lock",
    "unlock": "lock",
    "journal_append": "state",
    "journal_read": "state",
}
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def meta(tokens: int, verify_ct: int | None = None, **more: Any) -> dict[str, Any]:
    """What a finished reply's meta_info says (0.5.9)."""
    found: dict[str, Any] = {
        "id": "x",
        "finish_reason": {"type": "length", "length": tokens},
        "prompt_tokens": 10,
        "completion_tokens": tokens,
        "cached_tokens": 0,
    }
    if verify_ct is not None:
        found |= {"spec_verify_ct": verify_ct, "spec_accept_length": tokens / verify_ct}
    return found | more


def reply(
    tokens: int, verify_ct: int | None = None, ids: list[int] | None = None, **more: Any
) -> dict[str, Any]:
    """A finished reply; its tokens are all different unless `ids` are given."""
    return {
        "text": "t" * tokens,
        "output_ids": list(range(tokens)) if ids is None else ids,
        "meta_info": meta(tokens, verify_ct, **more),
    }


@dataclass
class Exchange:
    """One request as the server sees it."""

    connection: socket.socket
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    number: int
    # Called before the end is told: whoever has read [DONE] may already send the next request.
    ending: Callable[[], None] = lambda: None

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(self, value: object) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def end(self) -> None:
        self.ending()
        self.chunk(b"data: [DONE]\n\n")
        self.send(b"0\r\n\r\n")

    def stream(
        self, final: dict[str, Any], *, first_s: float = 0.0, rest_s: float = 0.0, events: int = 3
    ) -> None:
        """The first token after `first_s`, the last one `rest_s` later, in so many events."""
        tokens = final["meta_info"]["completion_tokens"]
        time.sleep(first_s)
        self.send(HEAD)
        for number in range(events - 1):
            so_far = max(1, tokens * number // events)
            running = {**final["meta_info"], "completion_tokens": so_far, "finish_reason": None}
            self.event({**final, "output_ids": final["output_ids"][:so_far], "meta_info": running})
            if number == 0:
                time.sleep(rest_s)
        self.event(final)
        self.end()

    def json(self, value: object, status: str = "200 OK") -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)


Script = Callable[[Exchange], None]


@dataclass
class Scripted:
    """The server; `seen` are the bodies of the requests to /generate, `most` how many ran at once."""

    script: Script
    info: dict[str, Any] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    running: int = 0
    most: int = 0
    broken: int = 0
    port: int = 0
    tls: ssl.SSLContext | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, connection: socket.socket, client: int) -> None:
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:  # not a client that speaks TLS
                connection.close()
                return
        with connection, contextlib.suppress(OSError):
            exchange = self._read(connection)
            if exchange.path in ("/health", "/server_info", "/get_server_info"):
                exchange.json(self.info)
                return
            with self.lock:
                exchange.number = len(self.seen)
                self.seen.append(exchange.body)
                self.clients.append(client)
                self.headers.append(exchange.headers)
                self.running += 1
                self.most = max(self.most, self.running)
            exchange.ending = functools.cache(self._one_less)
            try:
                self.script(exchange)
            except OSError:
                self.broken += 1
            finally:
                exchange.ending()

    def _one_less(self) -> None:
        with self.lock:
            self.running -= 1

    def _read(self, connection: socket.socket) -> Exchange:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {
            key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])
        }
        length = int(headers.get("content-length", "0"))
        while len(rest) < length:
            rest += connection.recv(65536)
        self.paths.append(path)
        return Exchange(connection, method, path, headers, json.loads(rest) if rest else None, -1)


@contextlib.contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None, **info: Any) -> Iterator[Scripted]:
    """The server for as long as the block runs."""
    found = Scripted(script, dict(info), tls=tls)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    found.port = listener.getsockname()[1]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, address = listener.accept()
                threading.Thread(target=found.serve, args=(connection, address[1]), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@dataclass
class LocalHelper:
    """The node's operations, run in this process, each in a thread as on the node."""

    state: State
    pending: dict[int, Context] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    alive: bool = True
    hello: dict[str, Any] = field(default_factory=dict)

    def submit(
        self,
        op: str,
        params: dict[str, Any],
        *,
        timeout_s: float,
        on_event: OnEvent | None = None,
        journal: dict[str, Any] | None = None,
    ) -> Pending:
        assert journal is None
        number = len(self.asked)
        self.asked.append((op, params))
        waiting = Pending(self, number, op, timeout_s + 20, on_event)  # type: ignore[arg-type]
        ctx = Context(
            emit=lambda event: waiting.put({"event": event}),
            state=lambda: self.state,
            deadline=time.monotonic() + timeout_s,
        )
        self.pending[number] = ctx

        def work() -> None:
            try:
                result = import_module(f"remote.node.{OPS[op]}").OPS[op](params, ctx)
                waiting.put({"result": json.loads(json.dumps(result))})
            except OpError as error:
                waiting.put({"error": {"kind": error.kind, "message": error.message, "data": error.data}})

        threading.Thread(target=work, daemon=True).start()
        return waiting

    def request(self, op: str, params: dict[str, Any], *, timeout_s: float, **more: Any) -> dict[str, Any]:
        return self.submit(op, params, timeout_s=timeout_s, **more).result()

    def send(self, message: dict[str, Any]) -> None:
        self.pending[message["params"]["id"]].cancel.set()

    def forget(self, identifier: int) -> None:
        self.pending.pop(identifier, None)


def node(port: int, log: Path, **server: Any) -> Node:
    entry = {"model_path": "/models/kimi", "port": port, "log": str(log), **server}
    nothing = dict.fromkeys(
        ("user", "port", "gateway", "identity_file", "known_hosts", "ssh_config", "state_dir")
    )
    return Node(
        name="here",
        host="here",
        python="python",
        sudo=False,
        server_name="kimi",
        server=ServerEntry.model_validate(entry),
        **nothing,
    )


def session(node: Node, state: Path) -> Session:
    return Session(node, LocalHelper(State(str(state))), "tester@here")  # type: ignore[arg-type]
