"""Wait until a boot is ready, or know at once that it will not be.

Ready means all of it: the ready line of this boot's log, our process listening on the port, every
rank alive, and one real generation. Any one of them alone has been seen without the others. Where the log
does not tell of the start at all, /health takes the place of the line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import secrets
from .errors import UnhealthyError
from .intent import endpoint, expected_ranks
from .inventory import Node
from .observe import generate_request
from .pending import Pending
from .picture import generated, outcome
from .reporting import Reporter
from .running import Boot
from .session import Session
from .sglang import failures, progress
from .work import Done

# How much of the log's end is kept to name the first cause of a failure.
KEPT_LOG_CHARS = 4 * 1024 * 1024
# /health costs the server a generation: it is asked rarely while the log tells more (case 046).
HEALTH_EVERY_S = 10.0
# The first generation compiles kernels.
GENERATE_TIMEOUT_S = 60.0
# The node gives up following by itself after this long: only against a lost client.
FOLLOW_LIMIT_S = 7 * 24 * 3600.0


@dataclass
class Watched:
    """What is known of the boot so far: folded from the node's events."""

    state: progress.State = field(default_factory=progress.State)
    log: str = ""
    processes: list[dict[str, Any]] = field(default_factory=list)
    listener_pid: int | None = None
    health: str | None = None
    healthy: bool = False
    dead: str | None = None
    last_progress_s: float = 0.0

    def take(self, event: dict[str, Any], now_s: float) -> None:
        if "log" in event:
            before = self.state.position
            self.state = progress.feed(self.state, event["log"])
            self.log = (self.log + event["log"])[-KEPT_LOG_CHARS:]
            if self.state.position != before:
                self.last_progress_s = now_s
        if "procs" in event:
            self.processes = event["procs"]
        if "listener" in event:
            self.listener_pid = (event["listener"] or {}).get("pid")
        if "health" in event:
            self.health = outcome(event["health"])
            self.healthy = event["health"].get("status") == 200
        if event.get("alive") is False:
            status = event.get("exit")
            self.dead = f"exit status {status}" if status is not None else "it is gone"

    def ranks(self) -> int:
        return sum(1 for p in self.processes if p["role"] == "scheduler" and p["state"] not in ("Z", "X"))

    def ready(self, ranks: int) -> bool:
        """All but the generation, which is asked for once this is true."""
        pids = {process["pid"] for process in self.processes}
        return self._says_so() and self.ranks() >= ranks and self.listener_pid in pids

    def _says_so(self) -> bool:
        """By the ready line. A log that was cut, or that is kept above INFO, has neither it nor the record of
        the arguments: then /health has to do, which answers 503 until the server is ready."""
        if self.state.has_record or self.state.stopping or self.state.failure:
            return self.state.ready
        return self.state.ready or self.healthy


def wait_ready(
    session: Session,
    boot: Boot,
    reporter: Reporter,
    *,
    way_back: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Done:
    """Follow the boot on the node until it is ready; UnhealthyError with the first cause when not.

    Gives up only after `ready_timeout_s` without any progress in the log: loading a model of 1 TB
    takes long, and graph capture of 22 minutes has been reported (case 024). `way_back` is added to the hint.
    """
    node = session.node
    want, limit_s = expected_ranks(node.server), node.server.ready_timeout_s
    started = clock()
    watched = Watched(last_progress_s=started)
    reporter.begin("health", "wait for the ready line, the listener, all ranks and one generation")
    pending = session.helper.submit(
        "watch",
        {
            "pid": boot.pid,
            "starttime_ticks": boot.starttime_ticks,
            "log": boot.log,
            "from_offset": boot.offset,
            **endpoint(node.server),
            "interval_s": 0.25,
            "health_every_s": HEALTH_EVERY_S,
        },
        timeout_s=FOLLOW_LIMIT_S,
        on_event=lambda event: watched.take(event, clock()),
    )
    try:
        while not watched.ready(want):
            ended = pending.poll(0.2)
            reporter.progress(_line(watched, want, clock() - started))
            if ended and not watched.dead:
                # Not the server ended but the watching: a lost connection says nothing about the server.
                session.result(pending)
            if watched.dead or watched.state.failure or ended:
                # The last lines of a dying server explain it: take what the node still sends.
                _drain(pending, clock)
                raise _failed(node, boot, watched, way_back)
            if clock() - watched.last_progress_s > limit_s:
                raise _stuck(node, boot, watched, limit_s)
    finally:
        pending.cancel()
    detail, refused = _generated(session, boot, watched)
    detail = f"ready after {clock() - started:.1f} s: {want} of {want} ranks, {detail}"
    reporter.done("health", detail, changed=False)
    if refused is not None:
        reporter.note(f"next: {refused.remedy}")
    return Done("health", False, detail, known=refused is None)


def _drain(pending: Pending, clock: Callable[[], float], limit_s: float = 3.0) -> None:
    until = clock() + limit_s
    while clock() < until and not pending.poll(0.2):
        pass


def _generated(session: Session, boot: Boot, watched: Watched) -> tuple[str, secrets.Unauthorized | None]:
    """What one generation showed; nothing where the server wants a key that is not here."""
    node = session.node
    reply = session.request(
        "http",
        {
            **endpoint(node.server),
            "requests": [generate_request(secrets.headers(node.server, os.environ), GENERATE_TIMEOUT_S)],
        },
        timeout_s=GENERATE_TIMEOUT_S + 10,
    )["generate"]
    if reply.get("status") == 200:
        tokens = generated(reply) or 0
        if tokens > 0:
            return f"generated {tokens} tokens in {reply['elapsed_s']:.1f} s", None
    refused = secrets.unauthorized(node, reply, os.environ)
    if refused is not None:
        return f"whether it generates is unknown: {refused.why}", refused
    raise UnhealthyError(
        f"{node.name}: the server says that it is ready and does not generate: {outcome(reply)}",
        hint=f"inv logs --errors --node {node.name}",
        node=node.name,
        data={"reason": "no-generation", "boot_id": boot.boot_id, "stage": watched.state.stage},
    )


def _failed(node: Node, boot: Boot, watched: Watched, way_back: str) -> UnhealthyError:
    failure = watched.state.failure or watched.state.suspect or failures.first_cause(watched.log)
    cause = f"{failure.code}: {failure.cause}" if failure else (watched.dead or "no cause in the log")
    how = f" ({watched.dead})" if watched.dead else ""
    return UnhealthyError(
        f"{node.name}: the server did not become ready, it failed while {_stage(watched)}{how}: {cause}",
        hint=f"inv logs --errors --node {node.name}{way_back}",
        node=node.name,
        data={"boot_id": boot.boot_id, "log": boot.log, "failure": failure.code if failure else None},
    )


def _stuck(node: Node, boot: Boot, watched: Watched, limit_s: float) -> UnhealthyError:
    return UnhealthyError(
        f"{node.name}: no progress for {limit_s:.0f} s while {_stage(watched)}"
        f" ({watched.ranks()} ranks alive, /health {watched.health or 'not answered'})",
        hint=f"inv logs --node {node.name}; the server still runs: inv stop --node {node.name}",
        node=node.name,
        data={"boot_id": boot.boot_id, "log": boot.log},
    )


def _stage(watched: Watched) -> str:
    state = watched.state
    return state.stage + (f" {state.percent:.0f} %" if state.percent is not None else "")


def _line(watched: Watched, want: int, elapsed_s: float) -> str:
    detail = f", {watched.state.detail}" if watched.state.detail else ""
    return f"{_stage(watched)}{detail}, {watched.ranks()}/{want} ranks, {elapsed_s:.0f} s"
