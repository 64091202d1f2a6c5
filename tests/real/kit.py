"""A practice node with the real SGLang, driven and disturbed from outside."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.kit import Practice, Ran, begun, down, environment, finish

# A command that starts a server, with SGLang's packages to be installed before: generous, for busy machines.
TIMEOUT_S = 1200.0
# Few and short: a token is a byte for this model, and a forward pass takes tens of milliseconds here.
PROMPTS = Path(__file__).with_name("prompts.txt")
BENCH = ("--prompts", str(PROMPTS), "--concurrency", "2", "--max-tokens", "32")


@dataclass(frozen=True)
class Real(Practice):
    """A real practice node that is up. Commands are given time."""

    def inv(self, *words: str, env: Mapping[str, str] | None = None) -> Ran:
        with begun(*words, env={**self.env, **(env or {})}) as process:
            return finish(process, TIMEOUT_S)

    def restart(self) -> Ran:
        return self.inv("restart", "--yes", "--json")

    def bench(self, *words: str) -> Ran:
        return self.inv("bench", "--json", *BENCH, *words)

    def boots(self, *words: str) -> list[dict[str, Any]]:
        found = self.inv("logs", "--json", *words).is_(0).entry["boots"]
        assert isinstance(found, list)
        return found

    def child(self, title: str) -> int:
        """The server's child process whose title starts so."""
        server = self.server_pid()
        (found,) = (pid for pid in children(server) if title_of(pid).startswith(title))
        return found

    def started_by_hand(self, log: Path, replaced: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """The running server's own command line with some words replaced, as an engineer starts it beside."""
        proc = Path(f"/proc/{self.server_pid()}")
        words = [os.fsdecode(word) for word in proc.joinpath("cmdline").read_bytes().split(b"\0")[:-1]]
        for name, value in replaced.items():
            words[words.index(name) + 1] = value
        given = [os.fsdecode(each) for each in proc.joinpath("environ").read_bytes().split(b"\0") if each]
        with log.open("wb") as file:
            return subprocess.Popen(
                words,
                env=dict(each.split("=", 1) for each in given),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )


def standing(root: Path, version: str) -> Iterator[Real]:
    """For a fixture: the node for as long as it is wanted, and nothing of it afterwards."""
    home = root.parent / f"{root.name}-home"
    node = Real(root, environment(FIXOPS_PRACTICE_DIR=str(root), XDG_STATE_HOME=str(home)))
    try:
        node.inv("practice.up", "--real", "--sglang", version).is_(0)
        yield node
    finally:
        down(node)
        shutil.rmtree(home, ignore_errors=True)


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(each) for each in listed.split()]


def title_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def state_of(pid: int) -> str:
    """R, S, T, Z ...; nothing when the process is gone."""
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except OSError:
        return ""


def ask(port: int, method: str, path: str, body: Any = None, timeout_s: float = 120.0) -> tuple[int, Any]:
    """Status and the decoded body (as text where it is no JSON). ConnectionError when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"content-type": "application/json"} if content else {})
        reply = connection.getresponse()
        text = reply.read().decode()
        try:
            return reply.status, json.loads(text)
        except ValueError:
            return reply.status, text
    finally:
        connection.close()


def generate(port: int, tokens: int, text: str = "Hello") -> dict[str, Any]:
    """What /generate says of `tokens` tokens after `text`."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    status, reply = ask(port, "POST", "/generate", {"text": text, "sampling_params": sampling})
    assert status == 200, reply
    assert isinstance(reply, dict)
    return reply
