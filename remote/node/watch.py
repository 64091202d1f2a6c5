"""Watch a server that starts or runs: its log, processes, port and health, as events on change."""

from __future__ import annotations

import threading
import time

from . import procfs, procs, sockets
from .follow import FIRST_NAP_S, Follower
from .fsio import absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

# A look at all processes costs milliseconds, so it is taken less often than the log is read.
LOOK_EVERY_S = 0.5
# SGLang's /health generates a token and may take 20 s; asking more often than it answers harms the server
# (sglang issue 35884), and so does giving up before it does.
HEALTH_EVERY_S = 10.0
HEALTH_TIMEOUT_S = 25.0


class _Health:
    """Asks /health in a thread of its own, one request at a time, so that nothing else waits for it."""

    def __init__(self, params: dict[str, Any], ctx: Context) -> None:
        self.ctx = ctx
        self.port = int(params["port"])
        self.request = {
            "path": params.get("health_path") or "/health",
            "headers": params.get("headers") or {},
            "timeout_s": float(params.get("health_timeout_s") or HEALTH_TIMEOUT_S),
            "tls": params.get("tls"),
        }
        self.every_s = float(params.get("health_every_s") or HEALTH_EVERY_S)
        self.host: str | None = None
        self.listening = threading.Event()
        self.ended = threading.Event()
        self.last: dict[str, Any] | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        from .http import fetch

        while not self.ended.is_set():
            if not self.listening.wait(0.2):
                continue
            answer = fetch(self.host, self.port, self.request)
            found = {"status": answer["status"], "error": answer["error"]}
            if found != self.last and not self.ended.is_set():
                self.last = found
                try:
                    self.ctx.event({"health": {**found, "elapsed_s": answer["elapsed_s"]}})
                except OSError:
                    return  # nobody listens any more
            self.ended.wait(self.every_s)


def _state(process: dict[str, Any]) -> str:
    """Running, sleeping and waiting for a disk change all the time and mean the same: alive."""
    return process["state"] if process["state"] in ("T", "t", *procfs.DEAD) else "S"


class _Look:
    """What the server's processes and its port looked like last."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.pid = int(params["pid"])
        self.port = params.get("port")
        self.session: int | None = None
        self.processes: list[dict[str, Any]] | None = None
        self.listener: dict[str, Any] | None = None

    def events(self) -> list[dict[str, Any]]:
        everything = procs.table()
        roles = procs.family(everything)
        if self.pid in everything:
            self.session = everything[self.pid]["sid"]
        found = [
            {"pid": pid, "title": procs.title(process), "state": _state(process), "role": roles.get(pid)}
            for pid, process in sorted(everything.items())
            if pid == self.pid or (process["sid"] == self.session and roles.get(pid))
        ]
        listeners, _ = sockets.listeners(self.port, list(roles), list(everything))
        nobody = {"pid": None, "address": None}
        listener = {key: listeners[0][key] for key in nobody} if listeners else nobody
        events: list[dict[str, Any]] = []
        if found != self.processes:
            events.append({"procs": found})
            self.processes = found
        if listener != self.listener:
            events.append({"listener": listener})
            self.listener = listener
        return events


def watch(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Watch until the launcher is gone, or until cancelled, or until the deadline.

    {pid, starttime_ticks, log, from_offset, port, interval_s, health_every_s, health_path?, headers?, tls?}
    Events: {"log", "offset"} (see Follower.piece), {"procs": [{pid, title, state, role}]} of the launcher's
    session, {"listener": {pid, address}}, {"health": {status, error, elapsed_s}}, each when it changes, and
    when the launcher has ended, after the last of its log, {"alive": false, "exit": null}: its exit status
    is told to its parent only. -> {alive, offset, ended: "gone|cancelled|deadline"}.
    """
    pid, ticks = int(params["pid"]), int(params["starttime_ticks"])
    interval_s = float(params.get("interval_s") or 1.0)
    follower = (
        Follower(absolute(params["log"]), int(params.get("from_offset") or 0)) if params.get("log") else None
    )
    look = _Look(params)
    health = _Health(params, ctx) if params.get("port") else None
    if health is not None:
        health.thread.start()
    nap_s = FIRST_NAP_S
    next_look = 0.0
    try:
        while True:
            alive = procfs.alive(pid, ticks)
            event = follower.piece() if follower is not None else None
            if event is not None:
                ctx.event(event)
                nap_s = FIRST_NAP_S
            if time.monotonic() >= next_look or not alive:
                for event_of_look in look.events():
                    ctx.event(event_of_look)
                    nap_s = FIRST_NAP_S
                next_look = time.monotonic() + LOOK_EVERY_S
                if health is not None and look.listener and look.listener["address"]:
                    health.host = look.listener["address"]
                    health.listening.set()
            offset = follower.offset if follower is not None else None
            if not alive and event is None:
                ctx.event({"alive": False, "exit": None})
                return {"alive": False, "offset": offset, "ended": "gone"}
            if ctx.cancelled() or ctx.remaining_s() <= 0:
                ended = "deadline" if ctx.remaining_s() <= 0 else "cancelled"
                return {"alive": alive, "offset": offset, "ended": ended}
            if event is None:
                ctx.wait(nap_s)
                nap_s = min(2 * nap_s, interval_s)
    finally:
        if health is not None:
            health.ended.set()
        if follower is not None:
            follower.close()


OPS = {"watch": watch}
