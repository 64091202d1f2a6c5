"""The contract's JSON documents, as shapes to hold a document against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT, INT, BOOL = str, int, bool
NUMBER = (int, float)


@dataclass(frozen=True)
class Maybe:
    """Absent is an error, null is not."""

    shape: Any


@dataclass(frozen=True)
class OneOf:
    """One of these values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Optional:
    """The key may be absent."""

    shape: Any


ANY = object()


def mismatch(value: Any, shape: Any, at: str = "") -> str | None:
    """Where the value is not of that shape, None if it is. Further keys of a mapping are allowed."""
    if shape is ANY:
        return None
    if isinstance(shape, Maybe):
        return None if value is None else mismatch(value, shape.shape, at)
    if isinstance(shape, OneOf):
        return None if value in shape.values else f"{at}: {value!r} is none of {shape.values}"
    if isinstance(shape, Mapping):
        return _mapping(value, shape, at)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{at}: {value!r} is no list"
        (each,) = shape
        found = (mismatch(item, each, f"{at}[{index}]") for index, item in enumerate(value))
        return next((problem for problem in found if problem), None)
    kinds = shape if isinstance(shape, tuple) else (shape,)
    # A bool is an int to Python, and none to JSON.
    right = isinstance(value, kinds) and (isinstance(value, bool) is (bool in kinds))
    return None if right else f"{at}: {value!r} is no {' or '.join(kind.__name__ for kind in kinds)}"


def _mapping(value: Any, shape: Mapping[str, Any], at: str) -> str | None:
    if not isinstance(value, dict):
        return f"{at}: {value!r} is no object"
    for key, inner in shape.items():
        if key not in value:
            if isinstance(inner, Optional):
                continue
            return f"{at}.{key} is missing"
        wanted = inner.shape if isinstance(inner, Optional) else inner
        problem = mismatch(value[key], wanted, f"{at}.{key}")
        if problem:
            return problem
    return None


ERROR = {"code": TEXT, "message": TEXT, "hint": TEXT}
CHECK = {
    "id": TEXT,
    "verdict": OneOf(("pass", "fail", "unknown", "skip")),
    "expected": TEXT,
    "observed": TEXT,
    "evidence": [{"source": TEXT, "text": TEXT}],
    "remedy": TEXT,
}
PROCESS = {"pid": INT, "title": TEXT, "ended_by": OneOf(("TERM", "KILL", "none"))}
ACTION = {
    "id": TEXT,
    "changed": BOOL,
    "detail": TEXT,
    "processes": Optional([PROCESS]),
    "would_change": Optional(BOOL),
    "diff": Optional(TEXT),
}
MODE = ANY  # a list of layers, or {"error"}: see wiring_mismatch
WIRING = {"contract": Maybe([TEXT]), "eager": MODE, "graph": MODE, "overlap": MODE}
BOOT = {
    "started_at": Maybe(TEXT),
    "version": Maybe(TEXT),
    "args": dict,
    "args_record": OneOf(("complete", "truncated", "absent")),
    "adjusted": [{"name": TEXT, "requested": ANY, "effective": ANY}],
    "state": OneOf(("starting", "ready", "failed", "stopped", "unknown")),
    "ready_at": Maybe(TEXT),
    "stage": OneOf(
        ("starting", "loading-target", "loading-draft", "graph-capture", "warmup", "serving", "stopping")
    ),
    "failure": Maybe({"code": TEXT, "cause": TEXT, "line": Maybe(INT)}),
    "decode": Maybe({"samples": INT, "accept_len": Maybe(NUMBER), "gen_tok_s": Maybe(NUMBER)}),
}
NODES: dict[str, dict[str, Any]] = {
    "verify": {"node": TEXT, "checks": [CHECK], "wiring": WIRING},
    "deploy-fix": {
        "node": TEXT,
        "deploy_id": Maybe(TEXT),
        "actions": [ACTION],
        "checks": [CHECK],
        "wiring": WIRING,
    },
    "rollback": {"node": TEXT, "deploy_id": TEXT, "actions": [ACTION], "checks": [CHECK]},
    "status": {
        "node": TEXT,
        "server": {
            "state": OneOf(("up", "starting", "down", "sick")),
            "pid": Maybe(INT),
            "port": INT,
            "started_at": ANY,
            "boot_id": Maybe(TEXT),
            "ranks": {"expected": INT, "alive": INT},
        },
        "gpus": [
            {
                "index": INT,
                "memory_used_mib": Maybe(INT),
                "memory_total_mib": Maybe(INT),
                "holders": [{"pid": Maybe(INT), "name": Maybe(TEXT), "user": Maybe(TEXT), "ours": BOOL}],
            }
        ],
        "fix": {
            "name": TEXT,
            "state": OneOf(("pristine", "partial", "ours", "native", "foreign")),
            "local_changes": BOOL,
        },
    },
    "logs": {"node": TEXT, "boots": [BOOT]},
    "history": {"node": TEXT, "actions": [{"who": TEXT, "time": ANY, "action": TEXT, "outcome": TEXT}]},
}
CHECK_IDS = (
    *("source.file", "source.state", "source.compiles", "source.behaviour", "bytecode.fresh"),
    *("config.values", "wiring.eager", "wiring.graph", "wiring.overlap", "process.single", "process.owner"),
    *("process.ranks", "process.after_fix", "gpu.holders", "args.effective", "log.boot", "log.capture"),
    *("health.http", "health.generate"),
)
WITHOUT_ERROR = (0, 7, 8, 9)


def _whole(command: str, code: int) -> bool:
    """Does a node's entry tell all that the contract lists? Also where the server did not come up."""
    return code in WITHOUT_ERROR or (code == 6 and command in {"deploy-fix", "rollback"})


def document_mismatch(document: Mapping[str, Any], command: str, code: int) -> str | None:
    """Where a command's document is not as the contract has it; None if it is."""
    problem = mismatch(
        document,
        {
            "schema": OneOf((1,)),
            "command": OneOf((command,)),
            "ok": OneOf((code == 0,)),
            "exit_code": OneOf((code,)),
            "nodes": [NODES[command] if _whole(command, code) else {"node": TEXT}],
            "error": OneOf((None,)) if code in WITHOUT_ERROR else ERROR,
        },
    )
    if problem:
        return problem
    for entry in document["nodes"]:
        problem = _entry_mismatch(entry, command) if _whole(command, code) else None
        if problem:
            return f"{entry['node']}: {problem}"
    return None


def _entry_mismatch(entry: Mapping[str, Any], command: str) -> str | None:
    if command in {"verify", "deploy-fix"}:
        missing = set(CHECK_IDS) - {check["id"] for check in entry["checks"]}
        if missing:
            return f"checks: {', '.join(sorted(missing))} are missing"
    for action in entry["actions"] if command in {"deploy-fix", "rollback"} else ():
        if action["id"] in {"kill-stale", "stop"} and "processes" not in action:
            return f"actions: {action['id']} does not tell its processes"
    wiring = entry.get("wiring") or {}
    found = (mode_mismatch(wiring[mode], f"wiring.{mode}") for mode in wiring if mode != "contract")
    return next((problem for problem in found if problem), None)


def mode_mismatch(mode: Any, at: str) -> str | None:
    """A forward mode is null, a list of layers (null where unknown), or {"error": text}."""
    if mode is None:
        return None
    if isinstance(mode, dict):
        return mismatch(mode, {"error": TEXT}, at)
    return mismatch(mode, [Maybe(TEXT)], at)


def hold(ran: Any, command: str) -> Sequence[str]:
    """The document of a command that ended is as the contract has it; returns its nodes' names."""
    problem = document_mismatch(ran.document, command, ran.code)
    assert problem is None, f"{problem}\n{ran}"
    return [entry["node"] for entry in ran.document["nodes"]]
