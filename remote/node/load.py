"""The load generator: requests to the server on this machine, so that no SSH latency is in any figure.

One thread and one selector for all requests: 64 streams at once cost a fraction of one core, and each time
is taken when the kernel has the bytes. Nothing on the server is changed: prompts are generated from, at
temperature 0; a request that is given up closes its connection, upon which SGLang aborts it.
"""

from __future__ import annotations

import hashlib
import json
import selectors
import time

from . import procfs
from .base import OpError
from .stream import Broken, Stream, request_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

TICK_S = 0.1  # how soon a cancellation is noticed
DEFAULT_REQUEST_TIMEOUT_S = 600.0
DEFAULT_PROGRESS_S = 0.5
# Runs of this many tokens that were there before count as repetition.
NGRAM = 8
# Values of meta_info that are kept: numbers, short texts and short lists. Log probabilities are neither.
_LONGEST = 200


def repetition(tokens: list[Any]) -> float | None:
    """Share of the runs of 8 tokens that occurred before, 0 to 1; None for less than 32 tokens.

    Degenerate text repeats itself, and a draft model guesses it right almost always.
    """
    if len(tokens) < 4 * NGRAM:
        return None
    seen = set()
    repeated = 0
    for at in range(len(tokens) - NGRAM + 1):
        gram = tuple(tokens[at : at + NGRAM])
        repeated += gram in seen
        seen.add(gram)
    return repeated / (len(tokens) - NGRAM + 1)


def _output(reply: dict[str, Any]) -> dict[str, Any]:
    """What the generated text looked like: {repetition, sha256 (16 digits), tokens}; null if unknown."""
    ids = reply.get("output_ids")
    if not isinstance(ids, list) or not ids or len(ids) != reply["meta_info"].get("completion_tokens"):
        # Servers with --stream-output send each piece alone, so that the whole is not in the last event.
        return {"repetition": None, "sha256": None, "tokens": None}
    digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]
    return {"repetition": repetition(ids), "sha256": digest, "tokens": len(ids)}


def _meta(meta: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if len(json.dumps(value)) <= _LONGEST}


def _stream_kind(tls: bool) -> type[Stream]:
    if not tls:
        return Stream
    from .tls import TlsStream

    return TlsStream


class _Run:
    """The requests of one operation: those that wait, run, and have ended."""

    def __init__(self, params: dict[str, Any], ctx: Context) -> None:
        self.ctx = ctx
        self.host = str(params.get("host") or "127.0.0.1")
        self.port = int(params["port"])
        self.kind = _stream_kind(bool(params.get("tls")))
        path, headers = str(params.get("path") or "/generate"), params.get("headers") or {}
        self.requests = [str(name) for name in params["requests"]]
        bodies = {name: json.dumps({**body, "stream": True}) for name, body in params["bodies"].items()}
        missing = sorted(set(self.requests) - set(bodies))
        if missing:
            raise OpError("precondition", f"no body for request {missing[0]!r}")
        self.data = {
            name: request_bytes(self.host, self.port, path, headers, body.encode())
            for name, body in bodies.items()
        }
        self.concurrency = max(1, int(params.get("concurrency") or 1))
        self.timeout_s = float(params.get("request_timeout_s") or DEFAULT_REQUEST_TIMEOUT_S)
        self.limit_s = float(params.get("limit_s") or 0) or None
        self.progress_s = float(params.get("progress_s") or DEFAULT_PROGRESS_S)
        self.next = 0
        self.running: dict[int, Stream] = {}
        self.records: list[dict[str, Any]] = []
        self.tokens = 0
        self.selector = selectors.DefaultSelector()
        self.began = time.monotonic()
        self.told = self.began

    def go(self) -> str:
        """Until all are done: "done", or "cancelled", "limit" with what was running given up."""
        while self.next < len(self.requests) or self.running:
            now = time.monotonic()
            why = self.stop(now)
            if why is not None:
                for index in list(self.running):
                    self.end(index, now, f"given up: {why}")
                return why
            while self.next < len(self.requests) and len(self.running) < self.concurrency:
                self.start(self.next)
                self.next += 1
            for key, _ in self.selector.select(TICK_S):
                self.handle(key.data)
            self.look_after(time.monotonic())
        return "done"

    def stop(self, now: float) -> str | None:
        if self.ctx.cancelled():
            return "limit" if self.ctx.remaining_s() <= 0 else "cancelled"
        late = self.limit_s is not None and now - self.began >= self.limit_s
        return "limit" if late or self.ctx.remaining_s() <= 0 else None

    def start(self, index: int) -> None:
        now = time.monotonic()
        try:
            stream = self.kind(self.host, self.port, self.data[self.requests[index]], now)
        except OSError as error:
            self.records.append({**self.blank(index, now), "error": f"no connection: {error}"})
            return
        self.running[index] = stream
        self.selector.register(stream.sock, stream.awaits, index)

    def handle(self, index: int) -> None:
        stream = self.running[index]
        try:
            if stream.sending:
                stream.send()
                self.selector.modify(stream.sock, stream.awaits, index)
            else:
                stream.receive(time.monotonic())
        except (OSError, Broken) as error:
            self.end(index, time.monotonic(), str(error))
            return
        if stream.done:
            self.end(index, time.monotonic(), None)

    def look_after(self, now: float) -> None:
        """Requests past their time, and the progress."""
        for index, stream in list(self.running.items()):
            if now - stream.began >= self.timeout_s:
                self.end(index, now, f"no whole answer within {self.timeout_s:.0f} s")
        if now - self.told >= self.progress_s:
            self.told = now
            self.ctx.event(self.progress(now))

    def progress(self, now: float) -> dict[str, Any]:
        return {
            "done": len(self.records),
            "failed": sum(1 for record in self.records if record["error"] is not None),
            "of": len(self.requests),
            "running": len(self.running),
            "tokens": self.tokens + sum(stream.tokens_so_far() for stream in self.running.values()),
            "elapsed_s": round(now - self.began, 3),
        }

    def blank(self, index: int, began: float) -> dict[str, Any]:
        return {
            "index": index,
            "name": self.requests[index],
            "began_s": round(began - self.began, 6),
            "error": None,
            "ttft_s": None,
            "e2e_s": None,
            "events": 0,
            "local_port": None,
            "meta": {},
            "output": {},
        }

    def end(self, index: int, now: float, error: str | None) -> None:
        """A request has ended: keep what is known of it."""
        stream = self.running.pop(index)
        self.selector.unregister(stream.sock)
        stream.close()
        record = {
            **self.blank(index, stream.began),
            "events": stream.events,
            "local_port": stream.local_port,
            "error": error,
        }
        if stream.first_at is not None:
            record["ttft_s"] = round(stream.first_at - stream.began, 6)
        if error is None:
            try:
                reply = stream.reply()
            except Broken as broken:
                record["error"] = str(broken)
            else:
                record["meta"], record["output"] = _meta(reply["meta_info"]), _output(reply)
                self.tokens += int(reply["meta_info"].get("completion_tokens") or 0)
                record["e2e_s"] = round((stream.last_at or now) - stream.began, 6)
        self.records.append(record)


def peak_rss_mib() -> int | None:
    """The most memory that this process ever held, in MiB (proc(5), VmHWM); null where it is not told.

    Not getrusage: its maximum counts what the process was before it became this program.
    """
    for line in (procfs.read("/proc/self/status") or b"").split(b"\n"):
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) // 1024
    return None


def bench(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Send requests, at most `concurrency` at a time, each streamed; one measurement or warm-up.

    {port, host?, tls?, path?, headers?, bodies: {name: body of /generate}, requests: [name, in order],
     concurrency, request_timeout_s, limit_s?, progress_s?}
    Events: {done, failed, of, running, tokens, elapsed_s}.
    -> {requests: [{index, name, began_s, error, ttft_s, e2e_s, events, local_port, meta, output}] in the
        order in which they ended, ended: "done|cancelled|limit", began (epoch), elapsed_s,
        cpu_s (this generator's own), cpu_share (of one core), peak_rss_mib (of the whole helper)}
    `e2e_s` from the connection's first byte to the last token; `meta`: the server's meta_info without
    long values. What was not measured when it was cancelled or the limit came has `error` or is absent.
    """
    run = _Run(params, ctx)
    began, cpu = ctx.now(), time.thread_time()
    try:
        ended = run.go()
    finally:
        for stream in run.running.values():
            stream.close()
        run.selector.close()
    elapsed_s = time.monotonic() - run.began
    cpu_s = time.thread_time() - cpu
    return {
        "requests": run.records,
        "ended": ended,
        "began": began,
        "elapsed_s": round(elapsed_s, 6),
        "cpu_s": round(cpu_s, 6),
        "cpu_share": round(cpu_s / elapsed_s, 4) if elapsed_s else 0.0,
        "peak_rss_mib": peak_rss_mib(),
    }


OPS = {"bench": bench}
