"""What the tests of the helper share: operations that misbehave, and connections to a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from remote import bootstrap
from remote.practice.ssh_server import SshServer
from remote.ssh import Connection, Target, connect

# Operations for these tests, sent to the node beside the real dispatcher.
TRIAL = """
import os, subprocess, sys, threading
from .base import OpError, changes

def count(params, ctx):
    for n in range(params["to"]):
        ctx.event({"n": n})
    return {"to": params["to"]}

def wait(params, ctx):
    ctx.event({"waiting": True})
    ctx.wait(600)
    ctx.check()
    return {}

def deaf(params, ctx):
    threading.Event().wait(600)

def child(params, ctx):
    process = subprocess.Popen(["sleep", "600"])
    ctx.event({"pid": process.pid})
    process.wait()

def detached(params, ctx):
    shell = "setsid sleep 600 >&2 & echo $!"
    return {"pid": int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE).stdout)}

def refuse(params, ctx):
    raise OpError("precondition", "the file differs", path="/x", sha256="abc")

def crash(params, ctx):
    return {}["missing"]

def text(params, ctx):
    return {"text": params["text"], "size": len(params["text"])}

def chatter(params, ctx):
    print("printed")
    sys.stderr.write("complained\\n")
    os.write(1, b"written" * 1000)
    subprocess.run(["sh", "-c", "echo shouted; cat"])
    return {"quiet": True}

OPS = {"count": count, "wait": wait, "deaf": deaf, "child": child, "detached": detached, "refuse": refuse,
       "crash": crash, "text": text, "chatter": chatter}
"""


def trial_code() -> bytes:
    return bootstrap.pack({**bootstrap.node_sources(), "trial": TRIAL})


def target_of(server: SshServer, **changes: Any) -> Target:
    values: dict[str, Any] = {
        "node": "blackwell",
        "host": server.host,
        "user": server.user,
        "port": server.port,
        "identity_file": str(server.identity_file),
        "known_hosts": str(server.known_hosts),
        "ssh_config": os.devnull,
    }
    return Target(**{**values, **changes})


def linked(server: SshServer, port: int, directory: Path) -> Connection:
    known = directory / "known_hosts"
    known.write_text(server.known_hosts.read_text().replace(f":{server.port} ", f":{port} "))
    return connect(target_of(server, port=port, known_hosts=str(known)))
