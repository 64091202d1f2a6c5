"""Drives the commands as a user does: `inv` as a process, in the project's root, on a practice node."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support import wait_until

PROJECT = Path(__file__).resolve().parents[2]
INV = Path(sys.executable).with_name("inv")
TIMEOUT_S = 180.0
# Of the simulated server's own pace: a start takes a fraction of a second, and has all of its stages.
QUICK = 0.05

DEEPSEEK = "sglang/srt/models/deepseek_v2.py"
GRAPH_RUNNER = "sglang/srt/model_executor/cuda_graph_runner.py"
MODEL_RUNNER = "sglang/srt/model_executor/model_runner.py"
KIMI = "sglang/srt/models/kimi_k25.py"
FIXED = (DEEPSEEK, GRAPH_RUNNER, MODEL_RUNNER, KIMI)


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What stdout holds, which must be one JSON document and nothing else."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def entry(self) -> dict[str, Any]:
        """What the document says of the only node."""
        (found,) = self.document["nodes"]
        assert isinstance(found, dict)
        return found

    @property
    def actions(self) -> dict[str, dict[str, Any]]:
        return {action["id"]: action for action in self.entry["actions"]}

    @property
    def checks(self) -> dict[str, dict[str, Any]]:
        return {check["id"]: check for check in self.entry["checks"]}

    @property
    def verdicts(self) -> dict[str, str]:
        return {id: check["verdict"] for id, check in self.checks.items()}

    def is_(self, code: int) -> Ran:
        """The same, once it is seen that it ended with this exit code."""
        assert self.code == code, f"inv {' '.join(self.words)} ended with {self.code}, not {code}:\n{self}"
        return self

    def refuses(self, code: int, *words: str) -> Ran:
        """One short message that holds these words, and what to do next; nothing else that looks like one."""
        self.is_(code)
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1, f"one error line is wanted:\n{self}"
        assert len(errors[0]) < 700, f"the message is too long:\n{self}"
        assert [line for line in lines if line.startswith("next:  ")], f"no next line:\n{self}"
        for word in words:
            assert word.lower() in self.err.lower(), f"{word!r} is not in the message:\n{self}"
        if self.out.startswith("{"):
            assert self.document["error"]["message"] in self.err
        return self

    def __str__(self) -> str:
        return f"--- inv {' '.join(self.words)}: {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def environment(**changes: str) -> dict[str, str]:
    """This process's own, without what would lead the commands elsewhere or have them compiled each time."""
    dropped = ("FIXOPS_INV", "INVOKE_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return {**kept, **changes}


@contextlib.contextmanager
def begun(*words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """`inv WORDS...` while it runs; killed at the end if it still does."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    more.setdefault("cwd", PROJECT)
    more.setdefault("preexec_fn", _hear_signals)
    with subprocess.Popen([str(INV), *words], text=True, **more) as process:
        try:
            yield process
        finally:
            process.kill()


def _hear_signals() -> None:
    """Tests that were started in the background have these ignored, and what they start inherits that."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def at_terminal(terminal: int) -> dict[str, Any]:
    """For `begun`: a session of its own, with this as its terminal, from which signals come."""

    def own_it() -> None:
        _hear_signals()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    ends = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    return {**ends, "start_new_session": True, "preexec_fn": own_it}


def run(*words: str, env: Mapping[str, str]) -> Ran:
    """`inv WORDS...` to its end."""
    with begun(*words, env=env) as process:
        return finish(process)


def finish(process: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> Ran:
    """Wait for a command's end. Whatever it meets, it must not end in a traceback."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args!r} did not end within {timeout_s} s\n{out}\n{err}") from None
    assert isinstance(process.args, list)
    ran = Ran(tuple(str(word) for word in process.args[1:]), process.returncode, out, err)
    assert "Traceback" not in err, ran
    return ran


@dataclass(frozen=True)
class Practice:
    """A practice node that is up, seen from outside."""

    root: Path
    env: Mapping[str, str]

    def begun(self, *words: str, **more: Any) -> AbstractContextManager[subprocess.Popen[str]]:
        return begun(*words, **{"env": self.env, **more})

    def inv(self, *words: str, env: Mapping[str, str] | None = None) -> Ran:
        return run(*words, env={**self.env, **(env or {})})

    def deploy(self, *words: str) -> Ran:
        """A deploy that must be a success."""
        return self.inv("deploy-fix", "--yes", "--json", *words).is_(0)

    def undo(self) -> None:
        """Roll back every deploy that is in place, without a question."""
        while any(self.in_place()):
            self.inv("rollback", "--yes", "--force", "--json").is_(0)

    def in_place(self) -> Iterator[str]:
        """The deploys whose files have not been put back."""
        for path in self.state.glob("deploys/*/manifest.json"):
            stored = json.loads(path.read_text())
            if stored["files"] and not stored.get("restored"):
                yield path.parent.name

    @property
    def record(self) -> dict[str, Any]:
        found = json.loads((self.root / "node.json").read_text())
        assert isinstance(found, dict)
        return found

    @property
    def site_packages(self) -> Path:
        (found,) = self.root.glob("python/lib/python*/site-packages")
        return found

    @property
    def draft(self) -> Path:
        return self.root / "eagle3" / "draft" / "config.json"

    @property
    def log(self) -> Path:
        return self.root / "logs" / "sglang_eagle3_fixed.log"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def ssh_port(self) -> int:
        return int(self.record["port"])

    @property
    def server_port(self) -> int:
        return int(self.record["server"]["port"])

    def source(self, name: str) -> Path:
        return self.site_packages / name

    def settings(self, **changes: Any) -> None:
        """How servers that are started from now on behave: remote/practice/simulator/settings.py."""
        content = {
            "gpus_dir": str(self.root / "gpus" / "holders"),
            "speed": QUICK,
            "health_s": QUICK,
            **changes,
        }
        (self.root / "simulator.json").write_text(json.dumps(content))

    def inventory(self, path: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> str:
        """The node's entry in an inventory file of one's own, changed; returns the file's name."""
        content = yaml.safe_load((self.root / "inventory.yaml").read_text())
        content["defaults"]["fix"] = "eagle3-embedding-capture"
        change(content)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return str(path)

    def through(self, port: int, folder: Path) -> str:
        """An inventory in which the node is reached by another port, its host key known there."""
        known = folder / f"known_hosts.{port}"
        kind, key, *_ = (self.root / "ssh" / "host_key.pub").read_text().split()
        known.write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
        where = {"port": port, "known_hosts": str(known)}
        return self.inventory(folder / f"{port}.yaml", lambda each: each["nodes"]["practice"].update(where))

    def server_pid(self) -> int:
        """The process that listens on the server's port."""
        (found,) = listeners(self.server_port)
        return found

    def sglang(self) -> dict[int, str]:
        """What lives on this node besides its SSH server: title by pid."""
        found = living(self.root).items()
        return {pid: title for pid, title in found if "sshd" not in title and "asyncssh_server" not in title}

    def everything(self) -> dict[str, str]:
        """All that a command could have changed: the node's files and the processes on it."""
        found = {f"file {name}": seen for name, seen in tree(self.root, skip=VOLATILE).items()}
        found.update({f"process {pid}": title for pid, title in self.sglang().items()})
        return found


# What changes by itself while a server serves: logs, and its entry among the GPUs' holders.
VOLATILE = ("logs", "ssh/sshd.log", "gpus/holders")


def tree(root: Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Every entry below `root`: kind, mode, owner, modification time, and the content's hash."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(skip):
            continue
        facts = path.lstat()
        about = f"{stat.filemode(facts.st_mode)} {facts.st_uid}:{facts.st_gid}"
        if path.is_symlink():
            found[name] = f"{about} -> {path.readlink()}"
        elif path.is_dir():
            found[name] = about
        else:
            found[name] = f"{about} {facts.st_mtime_ns} {content(path)}"
    return found


def content(path: Path) -> str:
    """The hash of a file. Looked up where it was made before: no write leaves the change time as it was."""
    facts = path.stat()
    return _content(path, facts.st_ino, facts.st_size, facts.st_ctime_ns)


@functools.lru_cache(maxsize=65536)
def _content(path: Path, *_: int) -> str:
    """Without the gigabytes of nothing of which the practice node's weights consist."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        data_ends = file.seek(0, os.SEEK_HOLE) if size else 0
        file.seek(0)
        return f"{size} {hashlib.sha256(file.read(data_ends)).hexdigest()}"


def living(root: Path) -> dict[int, str]:
    """Every process that has this directory in its command line or environment: title by pid."""
    found = {}
    needle = os.fsencode(root)
    for proc in Path("/proc").iterdir():
        if not proc.name.isdigit() or int(proc.name) == os.getpid():
            continue
        try:
            command = (proc / "cmdline").read_bytes()
            given = (proc / "environ").read_bytes() + b"".join(
                os.fsencode(link.readlink()) for link in (proc / "fd").iterdir() if link.is_symlink()
            )
        except OSError:
            continue
        if command and needle in command + given:
            found[int(proc.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def listeners(port: int) -> set[int]:
    """The pids that listen on this port of the loopback address."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        cells = line.split()
        if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
            inodes.add(f"socket:[{cells[9]}]")
    found = set()
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                links = {str(link.readlink()) for link in (proc / "fd").iterdir()}
            except OSError:
                continue
            if links & inodes:
                found.add(int(proc.name))
    return found


def alive(pid: int) -> bool:
    """Is there such a process, and is it more than a zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def up(root: Path, *words: str, gpus: int = 2) -> Practice:
    """Make a practice node in this directory, which is not there yet."""
    node = Practice(root, environment(FIXOPS_PRACTICE_DIR=str(root)))
    node.inv("practice.up", "--gpus", str(gpus), *words).is_(0)
    node.settings()
    return node


def down(node: Practice) -> None:
    """Take the node away, and see that nothing of it is left."""
    try:
        node.inv("practice.down").is_(0)
        wait_until(lambda: not living(node.root), what=f"the end of everything in {node.root}")
        assert not node.root.exists()
    finally:
        for pid in living(node.root):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(node.root, ignore_errors=True)


def standing(root: Path, *words: str, gpus: int = 2) -> Iterator[Practice]:
    """For a fixture: a practice node for as long as it is wanted, also gone after a failure to make it."""
    node = Practice(root, environment(FIXOPS_PRACTICE_DIR=str(root)))
    try:
        yield up(root, *words, gpus=gpus)
    finally:
        down(node)
