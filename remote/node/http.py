"""HTTP requests to the server on this machine, several at once, each under one time limit in all.

Written on sockets: importing http.client takes more of the node's CPU than everything else of a
verification, and would let a proxy variable or a redirect decide where the request goes.
"""

from __future__ import annotations

import json
import socket
import threading
import time

from .base import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

BODY_LIMIT = 64 * 1024
HEAD_LIMIT = 64 * 1024
DEFAULT_TIMEOUT_S = 10.0
_ANY = {None: "127.0.0.1", "": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class _Reader:
    """The bytes of one answer, read until a deadline (of time.monotonic)."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.pending = b""

    def more(self) -> bool:
        """Read what there is into `pending`; false at the end."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout
        self.connection.settimeout(left)
        piece = self.connection.recv(65536)
        self.pending += piece
        return bool(piece)

    def until(self, mark: bytes) -> bytes:
        while mark not in self.pending:
            if len(self.pending) > HEAD_LIMIT or not self.more():
                raise ValueError("the answer is cut off or is not HTTP")
        found, _, self.pending = self.pending.partition(mark)
        return found

    def exactly(self, size: int) -> bytes:
        while len(self.pending) < size and self.more():
            pass
        found, self.pending = self.pending[:size], self.pending[size:]
        if len(found) < size:
            raise ValueError("the answer's body is cut off")
        return found


def _body(reader: _Reader, headers: dict[str, str], limit: int) -> tuple[bytes, bool]:
    """(at most `limit` bytes, was there more)."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while len(body) <= limit:
            size = int(reader.until(b"\r\n").partition(b";")[0], 16)
            if size == 0:
                return body, False
            body += reader.exactly(min(size, limit + 1))
            if size > limit:
                break
            reader.until(b"\r\n")
        return body[:limit], True
    if "content-length" in headers:
        size = int(headers["content-length"])
        return reader.exactly(min(size, limit)), size > limit
    while len(reader.pending) <= limit and reader.more():
        pass
    return reader.pending[:limit], len(reader.pending) > limit


def _open(host: str, port: int, deadline: float, tls: bool) -> socket.socket:
    connection = socket.create_connection((host, port), max(0.001, deadline - time.monotonic()))
    if not tls:
        return connection
    from .tls import client_context

    return client_context().wrap_socket(connection, server_hostname=host)


def fetch(host: str | None, port: int, request: dict[str, Any]) -> dict[str, Any]:
    """One request {method?, path, body?, headers?, timeout_s?, max_bytes?, tls?}.

    -> {status, error, elapsed_s, body, headers, truncated}: `error` is "timeout", "refused" or a text, and
    `status` is null, when no whole answer came. A `body` that is no text is sent as JSON.
    """
    began = time.monotonic()
    result: dict[str, Any] = {"status": None, "error": None, "body": "", "headers": {}, "truncated": False}
    try:
        result.update(
            _exchange(host, port, request, began + float(request.get("timeout_s") or DEFAULT_TIMEOUT_S))
        )
    except socket.timeout:
        result["error"] = "timeout"
    except ConnectionRefusedError:
        result["error"] = "refused"
    except (OSError, ValueError) as error:
        result["error"] = str(error) or type(error).__name__
    return {**result, "elapsed_s": round(time.monotonic() - began, 4)}


def _exchange(host: str | None, port: int, request: dict[str, Any], deadline: float) -> dict[str, Any]:
    address = _ANY.get(host, host) or ""
    body = request.get("body")
    data = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    name = f"[{address}]" if ":" in address else address
    headers = {"Host": f"{name}:{port}", "Connection": "close", "Accept": "*/*"}
    if body is not None:
        headers.update({"Content-Type": "application/json", "Content-Length": str(len(data))})
    headers.update(request.get("headers") or {})
    lines = [f"{request.get('method') or 'GET'} {request['path']} HTTP/1.1"]
    lines += [f"{key}: {value}" for key, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line end in a header or path")
    with _open(address, port, deadline, bool(request.get("tls"))) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        reader = _Reader(connection, deadline)
        status = 100
        while status < 200:  # 1xx comes before the answer
            head = reader.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            protocol, code, *_ = [*head[0].split(" ", 2), ""]
            if not protocol.startswith("HTTP/"):
                raise ValueError("the answer is not HTTP")
            status = int(code)
        pairs = (line.partition(":") for line in head[1:])
        received = {key.strip().lower(): value.strip() for key, _, value in pairs}
        content, truncated = b"", False
        if status not in (204, 304) and request.get("method") != "HEAD":
            content, truncated = _body(reader, received, int(request.get("max_bytes") or BODY_LIMIT))
    text = content.decode("utf-8", "replace")
    return {"status": status, "headers": received, "body": text, "truncated": truncated}


def http(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{port, host, requests: [{name, ...}], tls?} -> {name: fetch()}, all at the same time.

    `host`: where the server listens; null and "any" addresses mean the loopback one of their family.
    """
    port, host = int(params["port"]), params.get("host")
    requests = [{"tls": params.get("tls"), **request} for request in params["requests"]]
    names = [request["name"] for request in requests]
    if len(set(names)) < len(names):
        raise OpError("precondition", "two requests have the same name")
    found: dict[str, Any] = {}

    def ask(request: dict[str, Any]) -> None:
        found[request["name"]] = fetch(host, port, request)

    threads = [threading.Thread(target=ask, args=(request,), daemon=True) for request in requests[1:]]
    for thread in threads:
        thread.start()
    for request in requests[:1]:
        ask(request)
    for thread in threads:
        thread.join()
    return found


OPS = {"http": http, "facts.http": http}
