"""One streamed request to /generate over a socket that never blocks: HTTP/1.1, chunks, server-sent events.

Events are not parsed as they come: SGLang's hold the whole text so far, and only the last one counts. What
is noted of the others is when they came. Tokens are what the server says, never the number of events: with
speculation one event carries several tokens.
"""

from __future__ import annotations

import json
import re
import selectors
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEAD_LIMIT = 64 * 1024
PLAIN_LIMIT = 1 << 24  # a body that is not streamed
SHOWN_ERROR = 300
_SO_FAR = re.compile(rb'"completion_tokens": ?(\d+)')


class Broken(Exception):
    """The answer is no whole answer; the text says why."""


def request_bytes(host: str, port: int, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The request as it goes over the wire; one connection each, as different clients have."""
    name = f"[{host}]" if ":" in host else host
    wanted = {
        "Host": f"{name}:{port}",
        "Connection": "close",
        "Accept": "text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{key}: {value}" for key, value in wanted.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line end in a header or path")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Stream:
    """One request from connect to its end. `done` when the whole answer is there."""

    def __init__(self, host: str, port: int, data: bytes, began: float) -> None:
        self.host = host
        self.began = began
        self.done = False
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.events = 0
        self.last = b""
        self.local_port: int | None = None
        self._out = memoryview(data)
        self._raw = bytearray()
        self._line = bytearray()
        self._status: int | None = None
        self._chunked = self._sse = False
        self._chunk_left = 0
        self._length: int | None = None
        self._plain = bytearray()
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.connect_ex((host, port))  # what came of it shows when the socket is writable

    def close(self) -> None:
        self.sock.close()

    @property
    def sending(self) -> bool:
        return len(self._out) > 0

    @property
    def awaits(self) -> int:
        """What of its socket is waited for, as a selector names it."""
        return selectors.EVENT_WRITE if self.sending else selectors.EVENT_READ

    def send(self) -> None:
        """Send what the socket takes. OSError when there is no connection."""
        if self.local_port is None:
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, "no connection")
            self._connected()
        self._out = self._out[self._put() :]

    def receive(self, now: float) -> None:
        """Take what has come. Broken or OSError when no whole answer can come any more."""
        data = self._get()
        if data is None:
            return
        if not data:
            self._ended()
            return
        self._raw += data
        if self._status is None and not self._head():
            return
        self._body(now)

    def tokens_so_far(self) -> int:
        """What the last event says; 0 before the first."""
        found = _SO_FAR.findall(self.last)
        return int(found[-1]) if found else 0

    def _connected(self) -> None:
        self.local_port = self.sock.getsockname()[1]
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _put(self) -> int:
        """Send what the socket takes; how many bytes that was."""
        try:
            return self.sock.send(self._out)
        except BlockingIOError:
            return 0

    def _get(self) -> bytes | None:
        """What has come: None for nothing yet, empty at the end."""
        try:
            return self.sock.recv(1 << 18)
        except BlockingIOError:
            return None

    def _head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self._raw) > HEAD_LIMIT:
                raise Broken("the answer is not HTTP")
            return False
        lines = self._raw[:end].decode("latin-1").split("\r\n")
        del self._raw[: end + 4]
        protocol, code, *_ = [*lines[0].split(" ", 2), ""]
        if not protocol.startswith("HTTP/") or not code.isdigit():
            raise Broken("the answer is not HTTP")
        if int(code) < 200:  # 1xx comes before the answer
            return self._head()
        headers = {
            key.strip().lower(): value.strip() for key, _, value in (x.partition(":") for x in lines[1:])
        }
        self._status = int(code)
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._sse = headers.get("content-type", "").startswith("text/event-stream")
        if "content-length" in headers:
            self._length = int(headers["content-length"])
        return True

    def _body(self, now: float) -> None:
        if not self._chunked:
            piece = bytes(self._raw)
            self._raw.clear()
            self._take(piece, now)
            if self._length is not None:
                self._length -= len(piece)
                if self._length <= 0:
                    self._finish(now)
            return
        at = 0
        while not self.done:
            if self._chunk_left == 0:
                end = self._raw.find(b"\r\n", at)
                if end < 0:
                    break
                size = bytes(self._raw[at:end]).partition(b";")[0].strip()
                at = end + 2
                if not size:
                    continue  # the line end behind the chunk before
                try:
                    self._chunk_left = int(size, 16)
                except ValueError:
                    raise Broken("the answer's chunks are damaged") from None
                if self._chunk_left == 0:
                    self._finish(now)
                    break
            piece = bytes(self._raw[at : at + self._chunk_left])
            if not piece:
                break
            at += len(piece)
            self._chunk_left -= len(piece)
            self._take(piece, now)
        del self._raw[:at]

    def _take(self, piece: bytes, now: float) -> None:
        if not self._sse or self._status != 200:
            self._plain += piece
            if len(self._plain) > PLAIN_LIMIT:
                raise Broken("the answer is too long")
            return
        searched = len(self._line)
        self._line += piece
        while True:
            end = self._line.find(b"\n", searched)
            if end < 0:
                return
            line = bytes(self._line[:end]).rstrip(b"\r")
            del self._line[: end + 1]
            searched = 0
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        self.events += 1
        self.last, self.last_at = data, now
        if self.first_at is None:
            self.first_at = now

    def _finish(self, now: float) -> None:
        """The answer's body is whole."""
        if not self._sse or self._status != 200:
            self.last, self.last_at = bytes(self._plain), now
            self.done = True
        elif not self.done:
            raise Broken("the stream ended before its end was told")

    def _ended(self) -> None:
        """The server closed the connection."""
        if self._status is None:
            raise Broken("the connection was closed without an answer")
        if self._chunked or (self._length or 0) > 0 or self._sse:
            raise Broken("the connection was closed within the answer")
        self.last, self.last_at, self.done = bytes(self._plain), None, True

    def reply(self) -> dict[str, Any]:
        """The last event or the whole body, parsed. Broken with the server's own words for an error."""
        text = self.last.decode("utf-8", "replace")
        if self._status != 200:
            raise Broken(f"HTTP {self._status}: {text[:SHOWN_ERROR]}")
        try:
            value = json.loads(text)
        except ValueError:
            raise Broken("the reply is not JSON") from None
        if isinstance(value, dict) and value.get("error"):
            error = value["error"]
            raise Broken(str(error.get("message") if isinstance(error, dict) else error)[:SHOWN_ERROR])
        if not isinstance(value, dict) or not isinstance(value.get("meta_info"), dict):
            raise Broken("the reply is not one of /generate")
        reason = value["meta_info"].get("finish_reason")
        if not isinstance(reason, dict):
            raise Broken("the stream ended before the generation did")
        if reason.get("type") == "abort":
            raise Broken(f"aborted by the server: {reason.get('message') or 'no reason told'}"[:SHOWN_ERROR])
        return value
