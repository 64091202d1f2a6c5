"""The helper process on the node: one channel, JSON lines both ways, any number of requests at once.

The code of remote/node is sent on standard input of one exec request (bootstrap.py) and the first requests
right behind it, without waiting for anything: the first answer comes one round trip after the channel is
open. A further request costs one round trip plus the node's work. A thread reads the replies; whoever
asked gets them, and the events, in its own thread.

A connection can die without a word (a laptop that slept, a NAT that forgot), and no limit of SSH's notices
soon. So after `heartbeat_s` of silence the helper is pinged, which its main thread answers at once whatever
the operations do; silence of `lost_after_s` is a lost connection.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import bootstrap, helper_errors
from .errors import ConnectError
from .frames import FrameReader
from .pending import OnEvent, Pending

if TYPE_CHECKING:
    from types import TracebackType

    import paramiko
    from fabric.connection import Connection

HEARTBEAT_S = 15.0
LOST_AFTER_S = 60.0
START_TIMEOUT_S = 60.0  # Python from a cold network file system can take tens of seconds
IDLE_S = 900.0  # the helper ends when nothing was asked for so long
LATE_S = 20.0  # an answer may be this late after its deadline before it is given up
WINDOW = 1 << 28  # a window of 2 MiB, Paramiko's default, would cap a transfer at that much per round trip
SEND_PIECE = 1 << 17
RECEIVE_PIECE = 1 << 18


@dataclass(frozen=True)
class Stats:
    """What was moved so far, in the helper's own bytes (SSH adds its own)."""

    requests: int
    channels: int
    sent_bytes: int
    received_bytes: int


class Helper:
    """A running helper; a held resource. See open_helper."""

    def __init__(
        self,
        transport: paramiko.Transport,
        channel: paramiko.Channel,
        *,
        node: str,
        python: str,
        sudo: bool,
        nonce: str,
        heartbeat_s: float,
        lost_after_s: float,
        start_timeout_s: float,
    ) -> None:
        self.node = node
        self._channel = channel
        self._transport = transport
        self._python = python
        self._sudo = sudo
        self._frames = FrameReader(nonce)
        self._stderr = b""
        self._heartbeat_s = heartbeat_s
        self._lost_after_s = lost_after_s
        self._start_timeout_s = start_timeout_s
        self._lock = threading.Lock()  # of the next four
        self._pending: dict[int, Pending] = {}
        self._next_id = 1
        self._lost: ConnectError | None = None
        self._closed = False
        self._send_lock = threading.Lock()
        self._answered = False
        self._requests = 0
        self._sent_bytes = 0
        self._received_bytes = 0
        self._hello: Pending | None = None
        self._reader = threading.Thread(target=self._read, name=f"helper-{node}", daemon=True)

    def begin(self, code: bytes, hello: dict[str, Any]) -> None:
        """Send the code and the greeting, start reading."""
        self._channel.settimeout(self._heartbeat_s)
        self._hello = self._register("hello", self._start_timeout_s + LATE_S, None)
        line = _line({"id": self._hello.id, "op": "hello", "params": hello})
        self._reader.start()
        self._write(code + line)

    @property
    def hello(self) -> dict[str, Any]:
        """Who and where the helper is: python, version, pid, start_time, starttime_ticks, boot_id, uid, user,
        hostname, state_dir, pycache_prefix. Waits for it when first asked."""
        if not hasattr(self, "_greeting"):
            assert self._hello is not None
            self._greeting: dict[str, Any] = self._hello.result()
        return self._greeting

    @property
    def alive(self) -> bool:
        """Can it still be asked, as far as is known here?"""
        return self._lost is None and not self._closed

    @property
    def stats(self) -> Stats:
        return Stats(self._requests, 1, self._sent_bytes, self._received_bytes)

    def request(
        self,
        op: str,
        params: dict[str, Any],
        *,
        timeout_s: float,
        on_event: OnEvent | None = None,
        journal: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask and wait. Errors: see Pending.result."""
        pending = self.submit(op, params, timeout_s=timeout_s, on_event=on_event, journal=journal)
        return pending.result()

    def submit(
        self,
        op: str,
        params: dict[str, Any],
        *,
        timeout_s: float,
        on_event: OnEvent | None = None,
        journal: dict[str, Any] | None = None,
    ) -> Pending:
        """Ask without waiting. `timeout_s` becomes the operation's own deadline on the node."""
        first = 0.0 if self._answered else self._start_timeout_s
        pending = self._register(op, timeout_s + LATE_S + first, on_event)
        request: dict[str, Any] = {"id": pending.id, "op": op, "params": params, "deadline_s": timeout_s}
        if journal is not None:
            request["journal"] = journal
        self._write(_line(request))
        return pending

    def send(self, message: dict[str, Any]) -> None:
        """Send a request whose answer nobody waits for."""
        with self._lock:
            identifier = self._next_id
            self._next_id += 1
        self._write(_line({"id": identifier, **message}))

    def forget(self, identifier: int) -> None:
        """What still comes for this request goes nowhere."""
        with self._lock:
            self._pending.pop(identifier, None)

    def close(self) -> None:
        """End the helper: its input ends, and with it everything that it runs and that was not detached."""
        with self._lock:
            self._closed = True
        self._channel.close()
        self._reader.join(timeout=self._heartbeat_s)

    def __enter__(self) -> Helper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _register(self, op: str, wait_s: float, on_event: OnEvent | None) -> Pending:
        with self._lock:
            if self._lost is not None:
                raise self._lost
            if self._closed:
                raise ConnectError(f"the helper on {self.node} was closed", node=self.node)
            pending = Pending(self, self._next_id, op, wait_s, on_event)
            self._pending[pending.id] = pending
            self._next_id += 1
            self._requests += 1
        return pending

    def _write(self, data: bytes) -> None:
        """Send all of `data`. If the connection goes meanwhile, whoever waits for an answer is told."""
        view = memoryview(data)
        with self._send_lock:
            while view:
                try:
                    count = self._channel.send(bytes(view[:SEND_PIECE]))
                except TimeoutError:  # the window is full; the reading thread tells whether anybody is there
                    if self._lost is not None or self._channel.closed:
                        return
                    continue
                except OSError:
                    return
                self._sent_bytes += count
                view = view[count:]

    def _read(self) -> None:
        """The reading thread, until the channel ends or falls silent."""
        try:
            self._fail(self._read_frames())
        except Exception as error:  # nobody may wait for ever because of a bug here
            self._fail(ConnectError(f"reading from {self.node} failed: {error!r}", node=self.node))

    def _read_frames(self) -> ConnectError:
        """Hand out replies; returns why there will be no more."""
        heard = time.monotonic()
        begun = heard
        while True:
            try:
                piece = self._channel.recv(RECEIVE_PIECE)
            except TimeoutError:
                silence_s = time.monotonic() - heard
                if not self._answered and time.monotonic() - begun >= self._start_timeout_s:
                    return helper_errors.start_timeout(
                        self.node,
                        self._python,
                        self._start_timeout_s,
                        self._frames.noise,
                        self._drain_stderr(),
                    )
                if self._answered and silence_s >= self._lost_after_s:
                    error = self._gone(f"nothing was heard of it for {silence_s:.0f} s")
                    # Not the channel: its close message could wait for ever on a connection that is dead.
                    self._transport.close()
                    return error
                if self._answered:
                    self._ping()
                continue
            self._drain_stderr()
            if not piece:
                return self._ended()
            heard = time.monotonic()
            self._received_bytes += len(piece)
            for frame in self._frames.feed(piece):
                self._answered = True
                self._deliver(frame)

    def _ping(self) -> None:
        """Ask for a sign of life, unless a request that cannot be sent already waits for the same."""
        if self._send_lock.acquire(blocking=False):
            self._send_lock.release()
            threading.Thread(target=self.send, args=({"op": "ping"},), daemon=True).start()

    def _deliver(self, frame: bytes) -> None:
        message = json.loads(frame)
        with self._lock:
            last = "event" not in message
            identifier = message.get("id")
            pending = self._pending.pop(identifier, None) if last else self._pending.get(identifier)
        if pending is not None:
            pending.put(message)

    def _ended(self) -> ConnectError:
        """The channel has ended: why?"""
        self._channel.status_event.wait(2.0)
        alive = self._transport.is_active()
        status = self._channel.exit_status if self._channel.status_event.is_set() else -1
        if self._answered:
            return self._gone("the helper ended" if alive else "the connection ended")
        return helper_errors.start_failure(
            self.node,
            self._python,
            sudo=self._sudo,
            status=status if status >= 0 else None,
            stdout=self._frames.noise,
            stderr=self._drain_stderr(),
        )

    def _gone(self, why: str) -> ConnectError:
        with self._lock:
            running = sorted({pending.op for pending in self._pending.values()})
        return helper_errors.lost(self.node, running, why, self._drain_stderr())

    def _drain_stderr(self) -> bytes:
        """The last of what came on standard error; reading it keeps the window open."""
        while self._channel.recv_stderr_ready():
            piece = self._channel.recv_stderr(RECEIVE_PIECE)
            self._stderr = (self._stderr + piece)[-4096:]
        return self._stderr

    def _fail(self, error: ConnectError) -> None:
        """No more replies: tell everybody who waits."""
        with self._lock:
            self._lost = error
            waiting = list(self._pending.values())
            self._pending.clear()
        for pending in waiting:
            pending.put(error)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode("ascii") + b"\n"


def open_helper(
    connection: Connection,
    python: str,
    *,
    sudo: bool = False,
    state_dir: str | None = None,
    node: str,
    heartbeat_s: float = HEARTBEAT_S,
    lost_after_s: float = LOST_AFTER_S,
    start_timeout_s: float = START_TIMEOUT_S,
    idle_s: float = IDLE_S,
    code: bytes | None = None,
) -> Helper:
    """Start the helper with the node's interpreter `python` over an open connection; close it when done.

    Returns before the node has answered: the first request, or `hello`, raises ConnectError if there is
    no usable Python there. `state_dir` None is the default for the node's user (node/about.py), `code` None
    that of remote/node.
    """
    import paramiko

    transport = connection.transport
    if transport is None:
        raise ConnectError(f"there is no open connection to {node}", node=node)
    code = code or bootstrap.payload()
    nonce = secrets.token_hex(8)
    try:
        channel = transport.open_session(window_size=WINDOW, timeout=start_timeout_s)
        bootstrap.start(channel, bootstrap.command(python, sudo=sudo, length=len(code), nonce=nonce))
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise ConnectError(f"cannot run a command on {node}: {error}", node=node) from error
    helper = Helper(
        transport,
        channel,
        node=node,
        python=python,
        sudo=sudo,
        nonce=nonce,
        heartbeat_s=heartbeat_s,
        lost_after_s=lost_after_s,
        start_timeout_s=start_timeout_s,
    )
    helper.begin(code, {"state_dir": state_dir, "idle_s": idle_s})
    return helper
