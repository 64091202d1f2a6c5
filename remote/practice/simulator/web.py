"""The HTTP server: threads instead of Uvicorn's event loop, with Uvicorn's log lines."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from . import logs
from .endpoints import Endpoints, Reply


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoints: Endpoints
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        """Access lines are written when the reply starts, as Uvicorn does."""

    def _serve(self) -> None:
        body: Any = {}
        with contextlib.suppress(ValueError):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
        path = self.path.partition("?")[0]
        if not isinstance(body, dict):
            body = {}
        reply = self.endpoints.answer(self.command, path, body, self.headers.get("Authorization"))
        try:
            self._send(reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            if reply.stream is not None and hasattr(reply.stream, "close"):
                reply.stream.close()

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _send(self, reply: Reply) -> None:
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        logs.access(client, self.requestline, f"{reply.status} {HTTPStatus(reply.status).phrase}")
        head = [
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
            f"date: {formatdate(usegmt=True)}",
            "server: uvicorn (simulated)",
        ]
        if reply.stream is None:
            head += [f"content-length: {len(reply.body)}"]
            if reply.body:
                head += [f"content-type: {reply.kind}"]
            self.wfile.write("\r\n".join([*head, "", ""]).encode() + reply.body)
            return
        head += [f"content-type: {reply.kind}", "transfer-encoding: chunked"]
        self.wfile.write("\r\n".join([*head, "", ""]).encode())
        for piece in reply.stream:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class WebServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens on `host`:`port`. Raises OSError when the port is taken."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 2048

    def __init__(self, host: str, port: int, endpoints: Endpoints) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        handler = type("Handler", (_Handler,), {"endpoints": endpoints})
        super().__init__((host, port), handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""
