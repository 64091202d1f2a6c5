"""What else went on at the server while it was measured: its processes, its log, its own account."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .. import running, secrets
from ..intent import endpoint
from ..pending import Pending
from ..picture import Picture, Unreadable
from ..session import Session
from ..sglang import decode, metrics, patterns
from ..sglang.decode import Sample
from ..sglang.lines import entries
from ..sglang.metrics import ServerInfo

# Beyond the end of any log: asks for its size alone.
END = 1 << 60
INFO_TIMEOUT_S = 25.0
# SGLang's web server writes one line per request, with the client's port (uvicorn, access log).
ACCESS = r'"POST /(?:generate|v1/)'
_CLIENT = re.compile(r'(?P<client>\S+):(?P<port>\d+) - "POST (?P<path>/\S+) HTTP')
# Makes speculation accept a set number of tokens (srt/speculative/spec_utils.py, 0.5.5 to 0.5.23).
PRETENDED = "SGLANG_SIMULATE_ACC_LEN"


@dataclass(frozen=True)
class Launcher:
    """The server's first process: another one is another boot."""

    pid: int
    starttime_ticks: int


@dataclass(frozen=True)
class Mark:
    """A place in the server's log: which file, and how far it went. None where there is no log."""

    real_path: str | None
    inode: int | None
    size: int | None


@dataclass(frozen=True)
class Meanwhile:
    """`samples`: the decode lines of the run. `strangers`: generation requests that were not ours.
    `boots`: starts of a server that the log shows within the run. None: not known. `other_log`: why the log
    is not known to be the measured server's; nothing of it is used then. `silent`: why it no
    longer answers."""

    before: Launcher | None
    after: Launcher | None
    log_same: bool | None
    samples: tuple[Sample, ...] | None
    strangers: tuple[str, ...] | None
    boots: int | None
    info: ServerInfo | None
    model_path: str | None
    pretended: str | None
    other_log: str | None = None
    silent: str | None = None


def launcher_of(picture: Picture) -> Launcher | None:
    found = running.launcher(picture)
    return Launcher(found.pid, found.starttime_ticks) if found else None


def other_log(picture: Picture) -> str | None:
    """Why the log is not known to be the running server's; None where it is."""
    try:
        found = running.not_its_own(picture)
    except Unreadable as reason:
        return reason.message
    return found.text if found else None


def ask_mark(session: Session) -> Pending:
    """Ask for the end of the log: travels together with the measurement."""
    server = session.node.server
    return session.submit("log", {"path": server.log, "boot": {"offset": END}, "count_lines": False})


def mark(reply: Mapping[str, Any]) -> Mark:
    return Mark(reply.get("real_path"), reply.get("inode"), reply.get("size"))


def look(session: Session, picture: Picture, start: Mark, ports: frozenset[int]) -> Meanwhile:
    """Read the node once more after the run. What cannot be read is None. `picture`: as it was before."""
    server = session.node.server
    key = secrets.headers(server, os.environ)
    get = {
        "method": "GET",
        "body": None,
        "headers": key,
        "timeout_s": INFO_TIMEOUT_S,
        "max_bytes": 1 << 20,
    }
    facts = session.request(
        "observe",
        {
            "sections": {
                "procs": {"port": server.port, "command": server.command},
                "log": {
                    "path": server.log,
                    "patterns": [*patterns.DECODE, ACCESS],
                    "boot": {"offset": start.size or 0},
                    "count_lines": False,
                    "max_matches": 20_000,
                },
                "http": {
                    **endpoint(server),
                    "requests": [{"name": name, "path": f"/{name}", **get} for name in metrics.INFO_NAMES],
                },
            }
        },
    )
    return assemble(facts, launcher_of(picture), start, ports, other_log(picture))


def assemble(
    facts: Mapping[str, Any],
    before: Launcher | None,
    start: Mark,
    ports: frozenset[int],
    other_log: str | None = None,
) -> Meanwhile:
    """What follows from the facts. Pure."""
    log = facts.get("log") or {}
    readable = other_log is None and "error" not in log and bool(log.get("exists")) and start.size is not None
    same = (log.get("real_path"), log.get("inode")) == (start.real_path, start.inode) if readable else None
    lines = [(place, each["text"]) for place, each in enumerate(log.get("matches", []), start=1)]
    replies = facts.get("http") or {}
    raw = metrics.told(replies)
    return Meanwhile(
        before=before,
        after=_listening_launcher(facts.get("procs") or {}),
        log_same=same,
        samples=tuple(decode.read(entries(lines))) if same else None,
        strangers=strangers([text for _, text in lines], ports) if same else None,
        boots=len(log.get("boots", [])) if same else None,
        info=metrics.server_info(raw) if raw is not None else None,
        model_path=str(raw["model_path"]) if raw is not None and raw.get("model_path") else None,
        pretended=_pretended(facts.get("procs") or {}),
        other_log=other_log,
        silent=_silent(replies),
    )


def _silent(replies: Mapping[str, Any]) -> str | None:
    """What came of asking where no request got an answer, not even one that refuses."""
    asked = [replies[name] for name in metrics.INFO_NAMES if name in replies]
    if not asked or any(reply.get("status") is not None for reply in asked):
        return None
    return str(asked[0].get("error"))


def strangers(lines: Sequence[str], ports: frozenset[int]) -> tuple[str, ...] | None:
    """Generation requests in the log of which no end is ours: "client path". None if not even ours are there
    (the access log is off, or goes elsewhere)."""
    found, ours = [], 0
    for line in lines:
        match = _CLIENT.search(line)
        if match is None:
            continue
        if int(match["port"]) in ports:
            ours += 1
        else:
            found.append(f"{match['client']} {match['path']}")
    return tuple(found) if ours or not ports else None


def _listening_launcher(procs: Mapping[str, Any]) -> Launcher | None:
    """The launcher above whatever listens on the port now, or the listener itself."""
    by_pid = {process["pid"]: process for process in procs.get("processes", [])}
    for listener in procs.get("listeners", []):
        process = by_pid.get(listener.get("pid"))
        seen: set[int] = set()
        while process is not None and process["role"] != "launcher" and process["pid"] not in seen:
            seen.add(process["pid"])
            parent = by_pid.get(process["ppid"])
            if parent is None or parent["role"] is None:
                break
            process = parent
        if process is not None:
            return Launcher(process["pid"], process["starttime_ticks"])
    return None


def _pretended(procs: Mapping[str, Any]) -> str | None:
    """The accept length that the server's environment sets, if it does."""
    for process in procs.get("processes", []):
        value = (process.get("env") or {}).get(PRETENDED)
        if process.get("role") and value and not value.startswith("-"):
            return str(value)
    return None


def other_boot(found: Meanwhile) -> bool:
    """Was the server another one at the end, or the log another file, or did a server start in it?"""
    return found.before != found.after or found.log_same is False or bool(found.boots)


def not_used(found: Meanwhile) -> str | None:
    """Why nothing of the log is used; None where it is the measured server's own."""
    return None if found.other_log is None else f"the log is not used: {found.other_log}"


def logged(samples: Sequence[Sample] | None) -> dict[str, Any] | None:
    """What the server logged during the run. `accept_rate`: by the definition of its version."""
    summary = decode.summarise(samples or ())
    if summary is None:
        return None
    rates = [s.accept_rate_logged for s in samples or () if s.accept_rate_logged is not None]
    return {
        "samples": summary.samples,
        "accept_len": summary.accept_len,
        "gen_tok_s": summary.gen_tok_s,
        "graph_share": summary.graph_share,
        "accept_rate": median(rates) if rates else None,
    }
