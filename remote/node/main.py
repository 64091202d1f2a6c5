"""The helper: reads requests from standard input, runs each in a thread, writes replies to standard output.

A request is one line of JSON: {"id", "op", "params", "deadline_s"?, "journal"?}. A reply is one line: the
byte 0x1e, the nonce, a blank, and JSON {"id", "result"} | {"id", "event"} | {"id", "error": {"kind",
"message", "data"}}. Whatever else stands on standard output was printed by somebody else. The helper ends
with its input, or when nothing was asked of it for `idle_s` seconds; then it kills the processes that it
started, except those that were detached.
"""

from __future__ import annotations

# Before there is a thread: Python 3.13.0 lets one see it half initialised while another imports it (CPython
# issue 125245), and what imports it then fails, as subprocess does.
import collections.abc  # noqa: F401
import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from importlib import import_module

from . import about
from .base import Context, OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Op, StateLike

DEFAULT_DEADLINE_S = 120.0
DEFAULT_IDLE_S = 900.0
OVERDUE_S = 5.0  # an operation that does not stop at its deadline is given up this much later
CLEAN_END_S = 10.0  # what an operation that changes the node may take to end after the connection has
PIECE = 1 << 16


class Job:
    """One request that is being worked on."""

    def __init__(self, identifier: int, ctx: Context) -> None:
        self.id = identifier
        self.ctx = ctx
        self.changes = False
        self.given_up = False
        self.done = threading.Event()


class Service:
    """The requests in progress, the state, and both ends of the connection."""

    def __init__(self, requests_fd: int, replies_fd: int, nonce: str, ops: dict[str, str]) -> None:
        """`ops` names the module of every operation, so that only those in use are imported."""
        self.requests_fd = requests_fd
        self.replies_fd = replies_fd
        self.ops = ops
        self.prefix = b"\x1e" + nonce.encode("ascii") + b" "
        self.jobs: dict[int, Job] = {}
        self.given_up: list[Job] = []  # past their deadline and answered for, but still running
        self.lock = threading.Lock()
        self.write_lock = threading.Lock()
        self.state_lock = threading.Lock()
        self.state_object: StateLike | None = None
        self.state_dir = about.default_state_dir()
        self.idle_s = DEFAULT_IDLE_S
        self.last_asked = time.monotonic()

    def serve(self) -> None:
        """Work until the input ends, the reader of the replies has gone, or nothing is asked any more."""
        pending = bytearray()
        while True:
            ready, _, _ = select.select([self.requests_fd], [], [], self.next_wake_s())
            if ready:
                piece = os.read(self.requests_fd, PIECE)
                if not piece:
                    return
                searched = len(pending)
                pending += piece
                while True:
                    end = pending.find(b"\n", searched)
                    if end < 0:
                        break
                    line = bytes(pending[:end])
                    del pending[: end + 1]
                    searched = 0
                    self.accept(line)
            if self.look_after_deadlines():
                return

    def next_wake_s(self) -> float:
        """Seconds until a deadline or the idle limit has to be looked at."""
        with self.lock:
            deadlines = [job.ctx.deadline for job in self.jobs.values()]
        now = time.monotonic()
        if not deadlines:
            return max(0.0, self.last_asked + self.idle_s - now)
        next_deadline = min([d if d > now else d + OVERDUE_S for d in deadlines])
        return min(self.idle_s, max(0.05, next_deadline - now))

    def look_after_deadlines(self) -> bool:
        """Cancel what is past its deadline, give up what does not react; true when idle for too long."""
        now = time.monotonic()
        with self.lock:
            jobs = list(self.jobs.values())
        for job in jobs:
            if now >= job.ctx.deadline:
                job.ctx.cancel.set()
            if now >= job.ctx.deadline + OVERDUE_S:
                job.given_up = True
                self.given_up.append(job)
                self.forget(job)
                self.reply(
                    {
                        "id": job.id,
                        "error": _error("timeout", "did not end at its deadline; it may still be running"),
                    }
                )
        return not jobs and now - self.last_asked >= self.idle_s

    def accept(self, line: bytes) -> None:
        """Take one request: start its thread, or answer at once what needs none."""
        self.last_asked = time.monotonic()
        identifier = None
        try:
            request = json.loads(line.decode("utf-8"))
            identifier = int(request["id"])
            op = str(request["op"])
            params = request.get("params") or {}
            if op == "cancel":
                result = self.cancel(int(params["id"]))
            elif op == "hello":
                self.state_dir = params.get("state_dir") or self.state_dir
                self.idle_s = float(params.get("idle_s") or self.idle_s)
                result = about.describe(self.state_dir)
            elif op == "ping":
                result = {}
            elif op == "echo":
                result = params
            else:
                self.start_job(identifier, op, params, request)
                return
            self.reply({"id": identifier, "result": result})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.reply({"id": identifier, "error": _error("internal", "not a request: " + repr(error))})

    def cancel(self, identifier: int) -> dict[str, Any]:
        with self.lock:
            job = self.jobs.get(identifier)
        if job is not None:
            job.ctx.cancel.set()
        return {"found": job is not None}

    def start_job(self, identifier: int, op: str, params: dict[str, Any], request: dict[str, Any]) -> None:
        deadline_s = float(request.get("deadline_s") or DEFAULT_DEADLINE_S)
        ctx = Context(
            emit=lambda event: self.reply({"id": identifier, "event": event}),
            state=self.state,
            deadline=time.monotonic() + deadline_s,
        )
        job = Job(identifier, ctx)
        with self.lock:
            if identifier in self.jobs:
                raise ValueError(f"id {identifier} is in use")
            self.jobs[identifier] = job
        threading.Thread(
            target=self.work, args=(job, op, params, request.get("journal")), daemon=True
        ).start()

    def work(self, job: Job, op: str, params: dict[str, Any], journal: dict[str, Any] | None) -> None:
        """One operation from begin to reply, in its own thread."""
        reply: dict[str, Any]
        try:
            reply = {"id": job.id, "result": self.run(job, op, params, journal)}
        except OpError as error:
            kind = error.kind
            if kind == "cancelled" and job.ctx.remaining_s() <= 0:
                kind = "timeout"
            reply = {"id": job.id, "error": _error(kind, error.message, error.data)}
        except Exception as error:  # whatever it is, somebody waits for an answer
            reply = {
                "id": job.id,
                "error": _error("internal", op + ": " + repr(error), {"trace": _trace(error)}),
            }
        try:
            if not job.given_up:
                self.reply(reply)
        except OSError:
            pass  # nobody is left to tell; the end of the input ends the helper
        finally:
            self.forget(job)
            job.done.set()

    def run(
        self, job: Job, op: str, params: dict[str, Any], journal: dict[str, Any] | None
    ) -> dict[str, Any]:
        if op not in self.ops:
            raise OpError("unsupported", "this helper has no operation " + repr(op))
        function: Op = import_module("." + self.ops[op], __package__).OPS[op]
        job.changes = bool(getattr(function, "CHANGES", False))
        # In this order: `finish` cancels first and then waits for what changes something.
        job.ctx.check()
        needs_lock = job.changes and not getattr(function, "NOTES", False)
        if needs_lock and not self.state().holds_lock():
            raise OpError("not-locked", op + " changes the node, and this helper does not hold the lock")
        if journal is None:
            return function(params, job.ctx)
        return self.run_journalled(job, function, params, dict(journal, op=op))

    def run_journalled(
        self, job: Job, function: Op, params: dict[str, Any], entry: dict[str, Any]
    ) -> dict[str, Any]:
        """Not begun unless the beginning is written down; an end that cannot be written down is told."""
        self.state().journal(dict(entry, phase="begin", time=job.ctx.now()))
        try:
            result = function(params, job.ctx)
        except Exception as error:
            end = {"outcome": "error", "kind": "internal", "message": type(error).__name__}
            if isinstance(error, OpError):
                end.update(kind=error.kind, message=error.message)
            with contextlib.suppress(OpError, OSError):  # the operation's own error is what matters
                self.state().journal(dict(entry, phase="end", time=job.ctx.now(), **end))
            raise
        try:
            self.state().journal(dict(entry, phase="end", time=job.ctx.now(), outcome="ok"))
        except OpError as error:
            message = "it was done, but that could not be written to the journal: " + error.message
            raise OpError(error.kind, message, done=True, result=result) from error
        return result

    def state(self) -> StateLike:
        """The one state.State of this helper."""
        with self.state_lock:
            if self.state_object is None:
                state = import_module(".state", __package__)
                self.state_object = state.State(self.state_dir)
            return self.state_object

    def forget(self, job: Job) -> None:
        self.last_asked = time.monotonic()
        with self.lock:
            self.jobs.pop(job.id, None)

    def reply(self, message: dict[str, Any]) -> None:
        """Write one frame, whole. Raises OSError when the connection has gone."""
        try:
            text = json.dumps(message)
        except (TypeError, ValueError) as error:
            text = json.dumps({"id": message["id"], "error": _error("internal", "not JSON: " + repr(error))})
        data = memoryview(self.prefix + text.encode("ascii") + b"\n")
        with self.write_lock:
            while data:
                data = data[os.write(self.replies_fd, data) :]

    def finish(self) -> None:
        """Nobody is there any more: let changes come to a clean end, kill children, release the lock."""
        with self.lock:
            jobs = list(self.jobs.values()) + self.given_up
        for job in jobs:
            job.ctx.cancel.set()
        end = time.monotonic() + CLEAN_END_S
        for job in jobs:
            if job.changes:
                job.done.wait(max(0.0, end - time.monotonic()))
        for pid in about.descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if self.state_object is not None:
            self.state_object.close()


def _error(kind: str, message: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"kind": kind, "message": message, "data": data or {}}


def _trace(error: BaseException) -> list[str]:
    """Where an unexpected error came from: file, line and function, innermost last. No values."""
    places = []
    where = error.__traceback__
    while where is not None:
        code = where.tb_frame.f_code
        places.append(f"{code.co_filename}:{where.tb_lineno} {code.co_name}")
        where = where.tb_next
    return places[-8:]


def _end(*_: object) -> None:
    """SIGTERM: end as when the input ends."""
    raise InterruptedError


def start(nonce: str, ops: dict[str, str]) -> None:
    """Serve on the streams of this process, and end the process. Never returns."""
    requests_fd, replies_fd, errors_fd = os.dup(0), os.dup(1), os.dup(2)  # closed in children (PEP 446)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.stderr = os.fdopen(errors_fd, "w", 1, encoding="utf-8", errors="replace")
    # Handlers, not SIG_IGN: what is ignored stays ignored in the server that an operation starts.
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGTERM, _end)
    service = Service(requests_fd, replies_fd, nonce, ops)
    try:
        service.serve()
    except OSError:
        pass  # the connection has gone in the middle of a reply, or SIGTERM
    finally:
        service.finish()
        os._exit(0)
