"""Steps that bring a practice node into a symptom: commands, and what no command does."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml

from remote import inventory
from remote.session import open_session
from tests.end_to_end import kit
from tests.end_to_end.kit import INV, PROJECT, Practice
from tests.runbook.page import Block, Script, shown
from tests.support import free_port, wait_until

# The page is read on a terminal of 80 columns, indented by two.
COLUMNS = "78"
COMMAND_TIMEOUT_S = 240.0


@dataclass
class Stage:
    """A held resource: a practice node with the fix on it, and what a script holds on it."""

    node: Practice | None = None
    lock: ExitStack = field(default_factory=ExitStack)
    # What an entry's commands are given besides: another inventory.
    env: dict[str, str] = field(default_factory=dict)

    def up(self) -> Practice:
        """The node, made when it is first wanted."""
        if self.node is None:
            node = Practice(Path(tempfile.mkdtemp(prefix="rb-")) / "p", {})
            try:
                self.node = kit.up(node.root)
                self.node.deploy()
            except BaseException:
                self.node = self.node or node
                self.down()
                raise
        return self.node

    def down(self) -> None:
        self.lock.close()
        node, self.node = self.node, None
        if node is not None:
            kit.down(node)
            node.root.parent.rmdir()


@dataclass(frozen=True)
class Printed:
    """What a block's command printed, as the page shows it."""

    block: Block
    exit: int
    output: str


def play(stage: Stage, script: Script) -> list[Printed]:
    """Run an entry from its first step to its last. Afterwards the node is as before, or there is none."""
    node = stage.up()
    printed, healed = [], False
    try:
        for item in script.items:
            if isinstance(item, Block):
                printed.append(run(node, item, stage.env))
            else:
                step(stage, item)
        stage.env.clear()
        _quiet(node)
        for item in script.undo:
            step(stage, item)
        healed = True
    finally:
        if not healed:
            stage.down()
    return printed


def run(node: Practice, block: Block, env: Mapping[str, str] = MappingProxyType({})) -> Printed:
    done = subprocess.run(
        [str(INV), *shlex.split(block.command)],
        cwd=PROJECT,
        env={**node.env, "COLUMNS": COLUMNS, "XDG_STATE_HOME": f"{node.root}/you", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_S,
    )
    return Printed(block, done.returncode, stand_ins(node, shown(done.stdout)))


def stand_ins(node: Practice, text: str) -> str:
    """The text without what belongs to this machine: its user and name, the node's directory and ports."""
    user = getpass.getuser()
    for found, put in (
        (f"{node.root}/you", "~/.local/state"),
        (str(node.root), "/srv/practice"),
        (f"{user}@{socket.gethostname()}", "you@laptop"),
    ):
        text = text.replace(found, put)
    for pattern, put in (
        (rf"\b{node.server_port}\b", "8000"),
        (rf"\b{node.ssh_port}\b", "2222"),
        (rf"\b{re.escape(user)}\b", "root"),
    ):
        text = re.sub(pattern, put, text)
    return text


def step(stage: Stage, text: str) -> None:
    """One `do` or `undo` of the page. ValueError for one that nobody knows."""
    for pattern, does in STEPS:
        found = re.fullmatch(pattern, text)
        if found:
            does(stage, *found.groups())
            with suppress(AssertionError):  # where init reaps nothing, they are there for ever
                wait_until(_no_zombies, 5.0)
            return
    raise ValueError(f"there is no step {text!r}")


def _no_zombies() -> bool:
    """Nothing that init has not reaped yet: for a moment, a server's end leaves some behind."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stats.append(path.read_text().rpartition(")")[2].split()[:2])
    return ["Z", "1"] not in stats


def _command(stage: Stage, words: str, exit: str | None) -> None:
    stage.up().inv(*shlex.split(words)).is_(int(exit or 0))


def _requests(stage: Stage, count: str) -> None:
    """Requests at once, each of 600 tokens: some decode lines in the log, which come every 40 steps."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    address = f"http://127.0.0.1:{stage.up().server_port}/generate"

    def one(number: int) -> None:
        sampling = {"max_new_tokens": 600, "temperature": 0, "ignore_eos": True}
        body = json.dumps({"text": f"request {number}", "sampling_params": sampling}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with opener.open(request, timeout=120) as reply:
            reply.read()

    with ThreadPoolExecutor(int(count)) as pool:
        list(pool.map(one, range(int(count))))


def _simulator(stage: Stage, settings: str) -> None:
    stage.up().settings(**json.loads(settings))


def _ready_timeout(stage: Stage, seconds: str) -> None:
    path = stage.up().root / "inventory.yaml"
    text, count = re.subn(r"ready_timeout_s: \S+", f"ready_timeout_s: {seconds}", path.read_text())
    assert count == 1, path
    path.write_text(text)


def _version(stage: Stage, version: str) -> None:
    """The installed package's metadata says so, as after an upgrade."""
    (metadata,) = stage.up().site_packages.glob("sglang-*.dist-info/METADATA")
    text = re.sub(r"^Version: .*$", f"Version: {version}", metadata.read_text(), count=1, flags=re.MULTILINE)
    metadata.write_text(text)


def _sshd_ended(stage: Stage) -> None:
    pid = int(stage.up().record["ssh"]["pid"])
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not kit.alive(pid), what="the end of the SSH server")


def _lock_held(stage: Stage, who: str, command: str) -> None:
    found = inventory.load(str(stage.up().root / "inventory.yaml"))
    session = stage.lock.enter_context(open_session(found.select(None)[0]))
    session.request("lock", {"who": who, "command": command, "deploy_id": "theirs", "wait_s": 0.0})


def _fleet(stage: Stage) -> None:
    """A group of three: the node, the same machine with a server that does not run, and one that is down."""
    node = stage.up()
    content = yaml.safe_load((node.root / "inventory.yaml").read_text())
    entry, server = content["nodes"].pop("practice"), content["servers"]["practice-eagle3"]
    content["servers"]["other"] = {**server, "port": free_port()}
    content["nodes"] = {"gpu1": entry, "gpu2": {**entry, "server": "other"}, "gpu3": {**entry, "port": 1}}
    content["groups"], content["defaults"]["node"] = {"fleet": [*content["nodes"]]}, "fleet"
    path = node.root / "fleet.yaml"
    path.write_text(yaml.safe_dump(content))
    stage.env["FIXOPS_INVENTORY"] = str(path)


def _lock_released(stage: Stage) -> None:
    stage.lock.close()


def _quiet(node: Practice) -> None:
    """What the steps set for servers to come is set back."""
    node.settings()
    path = node.root / "inventory.yaml"
    path.write_text(re.sub(r"ready_timeout_s: \S+", "ready_timeout_s: 60", path.read_text()))


STEPS: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"inv (.+?)(?: \(exit (\d+)\))?", _command),
    (r"(\d+) requests", _requests),
    (r"simulator (\{.+\})", _simulator),
    (r"ready timeout (\d+) s", _ready_timeout),
    (r"version (\S+)", _version),
    (r"sshd ended", _sshd_ended),
    (r"lock held by (\S+) for (\S+)", _lock_held),
    (r"lock released", _lock_released),
    (r"fleet", _fleet),
)
