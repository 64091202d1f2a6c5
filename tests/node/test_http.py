"""HTTP to the server on this machine: real sockets, slow and broken answers, no proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from remote.node import http
from remote.node.base import OpError
from tests.certificates import server_context
from tests.node.kit import Probe
from tests.support import free_port


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket, bytes], None], host: str = "127.0.0.1") -> Iterator[int]:
    """A server that reads a request's head and hands the connection to `answer`; its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.create_server((host, 0), family=family)
    threads: list[threading.Thread] = []

    def serve_one(connection: socket.socket) -> None:
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536)
            with contextlib.suppress(OSError):
                answer(connection, head)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve_one, args=(connection,)))
            threads[-1].start()

    acceptor = threading.Thread(target=serve)
    acceptor.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for thread in [acceptor, *threads]:
            thread.join()


@contextlib.contextmanager
def saying(text: bytes, host: str = "127.0.0.1") -> Iterator[int]:
    with answering(lambda connection, _: connection.sendall(text), host) as port:
        yield port


def get(port: int, **request: Any) -> dict[str, Any]:
    return http.fetch(None, port, {"path": "/x", "timeout_s": 20, **request})


def test_a_real_server_that_keeps_connections_alive(probe: Probe) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

        def do_GET(self) -> None:
            self.reply(200, f'{{"path": "{self.path}"}}'.encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(503, body + b"|" + self.headers["Content-Type"].encode())

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        requests = [
            {"name": "info", "method": "GET", "path": "/server_info", "body": None, "timeout_s": 20},
            {"name": "text", "method": "POST", "path": "/generate", "body": "raw", "timeout_s": 20},
            {"name": "json", "method": "POST", "path": "/generate", "body": {"a": "é"}, "timeout_s": 20},
        ]
        params = {"port": server.server_address[1], "host": "0.0.0.0", "requests": requests}
        found = http.http(params, probe.ctx)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert found["info"]["status"] == 200
    assert found["info"]["body"] == '{"path": "/server_info"}'
    assert found["info"]["error"] is None
    assert found["info"]["headers"]["content-length"] == "24"
    assert found["text"]["status"] == 503
    assert found["text"]["body"] == "raw|application/json"
    assert found["json"]["body"] == '{"a": "\\u00e9"}|application/json'


def test_chunked_answer_as_uvicorn_sends_it() -> None:
    text = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n5;x=y\r\n: 12}\r\n0\r\n\r\n'
    with saying(text) as port:
        assert get(port)["body"] == '{"a": 12}'


def test_answer_until_the_end_of_the_connection() -> None:
    with saying(b"HTTP/1.0 200 OK\r\n\r\nall of it") as port:
        assert get(port)["body"] == "all of it"


def test_continue_comes_before_the_answer() -> None:
    with saying(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as port:
        assert (get(port)["status"], get(port)["body"]) == (200, "ok")


def test_answers_without_a_body() -> None:
    with saying(b"HTTP/1.1 204 No Content\r\n\r\n") as port:
        assert (get(port)["status"], get(port)["body"]) == (204, "")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Length: 200000\r\n", b"x" * 200000),
        (b"", b"x" * 200000),
        (b"Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n" % (70000, b"x" * 70000) * 2 + b"0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\n", b"30d40\r\n" + b"x" * 200000 + b"\r\n0\r\n\r\n"),
    ],
)
def test_long_bodies_are_cut_and_said_so(head: bytes, body: bytes) -> None:
    with saying(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body) as port:
        found = get(port)
        assert (found["status"], len(found["body"]), found["truncated"]) == (200, http.BODY_LIMIT, True)
        if b"chunked" not in head:
            assert get(port, max_bytes=200000)["truncated"] is False


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200",
        b"x" * 300000,
    ],
)
def test_broken_answers_are_no_answers(text: bytes) -> None:
    with saying(text) as port:
        found = get(port)
    assert found["status"] is None
    assert found["error"]


def test_refused() -> None:
    found = get(free_port())
    assert (found["status"], found["error"]) == (None, "refused")


def test_time_limit_is_for_the_whole_answer_even_when_bytes_keep_coming() -> None:
    released = threading.Event()

    def drip(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not released.wait(0.05):
            connection.sendall(b"x")

    with answering(drip) as port:
        found = get(port, timeout_s=0.5)
        released.set()
    assert (found["status"], found["error"]) == (None, "timeout")


def test_requests_go_out_at_the_same_time(probe: Probe) -> None:
    """A hanging /health does not keep the others waiting: each answers only when both have asked."""
    both = threading.Barrier(2)

    def answer(connection: socket.socket, _head: bytes) -> None:
        both.wait(20)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with answering(answer) as port:
        requests = [{"name": name, "path": "/" + name, "timeout_s": 20} for name in ("health", "info")]
        found = http.http({"port": port, "host": None, "requests": requests}, probe.ctx)
    assert [found["health"]["status"], found["info"]["status"]] == [200, 200]


def test_proxy_variables_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 047: a proxy that captures localhost answers 502."""
    with saying(b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as proxy, saying(b"HTTP/1.1 200 OK\r\n\r\nyes") as port:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        assert get(port)["body"] == "yes"


def test_bound_address_and_ipv6() -> None:
    def echo(connection: socket.socket, head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + head)

    with answering(echo, "::1") as port:
        for host in ("::", "::1"):
            found = http.fetch(host, port, {"path": "/x", "headers": {"Authorization": "Bearer k"}})
            assert f"Host: [::1]:{port}\r\n" in found["body"]
            assert "Authorization: Bearer k\r\n" in found["body"]


def test_line_end_cannot_be_smuggled_in() -> None:
    assert "line end" in get(free_port(), headers={"A": "b\r\nC: d"})["error"]


def test_two_requests_of_one_name_are_refused(probe: Probe) -> None:
    with pytest.raises(OpError):
        http.http({"port": 1, "host": None, "requests": [{"name": "a", "path": "/"}] * 2}, probe.ctx)


def test_tls_with_a_certificate_for_another_name(tmp_path: Path) -> None:
    context = server_context(tmp_path)

    def serve() -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True) as secure:
            assert secure.recv(65536).startswith(b"GET /x HTTP/1.1\r\n")
            secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        found = get(listener.getsockname()[1], tls=True)
        thread.join()
    assert (found["error"], found["status"], found["body"]) == (None, 200, "secret")
