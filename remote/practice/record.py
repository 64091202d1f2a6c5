"""What is written down about the practice node: node.json, and the same as an ordinary inventory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from remote.errors import LockedError, RefusedError
from remote.practice.layout import Layout
from remote.practice.processes import Known, alive, known
from remote.practice.real import entry as real_entry
from remote.practice.ssh_server import SshServer

SCHEMA = 1
NODE = "practice"
SERVER = "practice-eagle3"


@dataclass(frozen=True)
class Record:
    """One finished practice node. `processes` are those that `up` started, by what they are.

    A `real` one has no GPUs, and SGLang itself in place of the simulated server.
    """

    version: str
    gpus: int
    server_port: int
    ssh: SshServer
    processes: Mapping[str, Known]
    real: bool = False


def server_entry(layout: Layout, *, port: int, gpus: int) -> dict[str, Any]:
    """The server as an entry of an inventory's `servers:`."""
    return {
        "model_path": str(layout.target),
        "draft_model_path": str(layout.draft),
        "port": port,
        "log": str(layout.log),
        "args": {
            "host": "127.0.0.1",
            "tp-size": gpus,
            "trust-remote-code": True,
            "speculative-algorithm": "EAGLE3",
            "speculative-eagle-topk": 1,
            "speculative-num-steps": 5,
            "speculative-num-draft-tokens": 6,
        },
        "command": [str(layout.python), str(layout.launcher)],
        "ready_timeout_s": 60,
        "expect": {"accept_len": 3.4},
    }


def node_entry(layout: Layout, ssh: SshServer) -> dict[str, Any]:
    """The node as an entry of an inventory's `nodes:`."""
    return {
        "host": ssh.host,
        "port": ssh.port,
        "user": ssh.user,
        "identity_file": str(ssh.identity_file),
        "known_hosts": str(ssh.known_hosts),
        "python": str(layout.python),
        "server": SERVER,
        "state_dir": str(layout.state_dir),
    }


def claim(layout: Layout) -> None:
    """Make the directory ours to build in; RefusedError if it holds something else."""
    layout.root.mkdir(parents=True, exist_ok=True)
    foreign = _foreign(layout)
    try:
        with layout.node_json.open("x", encoding="utf-8") as file:
            if not foreign:
                maker = known(os.getpid())
                json.dump({"schema": SCHEMA, "state": "making", "maker": maker and asdict(maker)}, file)
    except FileExistsError:
        raise _being_made(layout) from None
    if foreign:
        layout.node_json.unlink()
        raise _not_ours(layout, foreign)


def may_claim(layout: Layout) -> None:
    """Raises what `claim` would raise, and makes nothing."""
    foreign = _foreign(layout)
    if layout.node_json.exists():
        raise _being_made(layout)
    if foreign:
        raise _not_ours(layout, foreign)


def _foreign(layout: Layout) -> list[str]:
    """What the directory holds besides a node's record."""
    if not layout.root.exists():
        return []
    return sorted(path.name for path in layout.root.iterdir() if path != layout.node_json)


def _not_ours(layout: Layout, foreign: list[str]) -> RefusedError:
    return RefusedError(
        f"{layout.root} is not empty and not a practice node (it holds {foreign[0]})",
        hint="name another directory in FIXOPS_PRACTICE_DIR",
    )


def write(layout: Layout, record: Record) -> None:
    """The inventory first: node.json with state "up" says that all the rest is there."""
    if record.real:
        server = real_entry.server_entry(layout, port=record.server_port, version=record.version)
    else:
        server = server_entry(layout, port=record.server_port, gpus=record.gpus)
    node = node_entry(layout, record.ssh)
    inventory = {"defaults": {"node": NODE}, "nodes": {NODE: node}, "servers": {SERVER: server}}
    text = "# Written by `inv practice.up`: the practice node as an ordinary node.\n"
    _replace(layout.inventory, text + yaml.safe_dump(inventory, sort_keys=False))
    stored = {
        "schema": SCHEMA,
        "state": "up",
        "version": record.version,
        "gpus": record.gpus,
        "real": record.real,
        **node,
        "server": {"name": SERVER, **server},
        "ssh": {**asdict(record.ssh), "identity_file": None, "known_hosts": None, "log": None},
        "processes": [
            {"role": role, "pid": process.pid, "starttime_ticks": process.starttime_ticks}
            for role, process in record.processes.items()
        ],
    }
    stored["ssh"].update(
        {key: str(getattr(record.ssh, key)) for key in ("identity_file", "known_hosts", "log")}
    )
    _replace(layout.node_json, json.dumps(stored, indent=2) + "\n")


def read(layout: Layout) -> Record | None:
    """The node's record, None if there is no practice node.

    Raises LockedError while another command makes it, RefusedError if it was never finished.
    """
    try:
        stored = json.loads(layout.node_json.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        stored = {}
    try:
        if stored.get("state") == "making" and alive(Known(**stored["maker"])):
            raise _being_made(layout)
        ssh = dict(stored["ssh"])
        ssh.update({key: Path(ssh[key]) for key in ("identity_file", "known_hosts", "log")})
        return Record(
            version=stored["version"],
            gpus=stored["gpus"],
            server_port=stored["server"]["port"],
            ssh=SshServer(**ssh),
            processes={p["role"]: Known(p["pid"], p["starttime_ticks"]) for p in stored["processes"]},
            real=stored["real"],
        )
    except (KeyError, TypeError, AttributeError):
        raise RefusedError(
            f"the practice node in {layout.root} was not finished",
            hint="inv practice.down, then inv practice.up",
        ) from None


def require(layout: Layout) -> Record:
    """The node's record; RefusedError if there is no practice node."""
    there = read(layout)
    if there is None:
        raise RefusedError("the practice node is not up", hint="inv practice.up")
    return there


def _being_made(layout: Layout) -> LockedError:
    return LockedError(
        f"the practice node in {layout.root} is being made by another command",
        hint="wait until that is done, then see what is there with inv practice.up",
    )


def ssh_alive(record: Record) -> bool:
    return alive(Known(record.ssh.pid, record.ssh.starttime_ticks))


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
