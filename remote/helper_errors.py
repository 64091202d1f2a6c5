"""What it means when the helper did not start or is heard no more, and what to type next."""

from __future__ import annotations

import re

from .errors import ConnectError
from .sglang.redact import redact_text


def start_failure(
    node: str, python: str, *, sudo: bool, status: int | None, stdout: bytes, stderr: bytes
) -> ConnectError:
    """Why the helper did not start, from the exit status and what was printed instead of its greeting."""
    said = (stderr + b"\n" + stdout).decode("utf-8", "replace")
    data = {"python": python, "exit_status": status, "output": _last_lines(said, 20)}

    def failure(message: str, hint: str) -> ConnectError:
        return ConnectError(message, hint=hint, node=node, data=data)

    absolute = (
        f"set `python:` of node {node} in inventory.yaml to the absolute path of the interpreter that runs "
        "SGLang (login files are not read, so an activated environment does not count)"
    )
    if old := re.search(r"fixops: Python (\d+\.\d+) is too old", said):
        return failure(f"{python} on {node} is Python {old[1]}; at least 3.8 is needed", absolute)
    if sudo and (problem := _sudo_problem(said)):
        return failure(
            f"sudo on {node} refuses: {problem}",
            f"allow {python} without a password in sudoers (NOPASSWD), or set `sudo: false` and log in as a "
            "user that may do it",
        )
    if re.search(r"[Nn]o such file|not found|[Uu]nknown command", said) and (status == 127 or python in said):
        return failure(f"there is no {python} on {node}", absolute)
    if re.search(r"[Pp]ermission denied|cannot execute", said) and (status == 126 or python in said):
        return failure(f"{python} on {node} cannot be executed (permission, or not a program)", absolute)
    if status is None:
        return failure(
            f"the connection to {node} ended before Python answered{_quoted(said)}",
            f"try on the node: {python} -V",
        )
    return failure(
        f"{python} on {node} ended with status {status} before it answered{_quoted(said)}",
        f"try on the node: {python} -V",
    )


def start_timeout(node: str, python: str, timeout_s: float, stdout: bytes, stderr: bytes) -> ConnectError:
    """Nothing came back: a login file that waits for input, a file system that hangs."""
    said = (stderr + b"\n" + stdout).decode("utf-8", "replace")
    return ConnectError(
        f"{python} on {node} did not answer within {timeout_s:g} s{_quoted(said)}",
        hint=f"does `{python} -V` come back over ssh? A login file that waits for input hangs it",
        node=node,
        data={"python": python, "output": _last_lines(said, 20)},
    )


def lost(node: str, running: list[str], why: str, stderr: bytes) -> ConnectError:
    """The connection went after the helper had answered; `running` are the operations that were awaited."""
    during = f" while {', '.join(running)} ran" if running else ""
    return ConnectError(
        f"the connection to {node} was lost{during}: {why}",
        hint="a server that was started goes on; what else was being done is in doubt: "
        f"inv status --node {node}, then the command again",
        node=node,
        data={"running": running, "stderr": _last_lines(stderr.decode("utf-8", "replace"), 5)},
    )


def _sudo_problem(said: str) -> str | None:
    """What sudo (or the shell, if there is no sudo) says; noise may stand before it in the same line."""
    refusals = (
        r"sudo: .*(?:password|tty|terminal|askpass|not allowed).*",
        r"[\w.@+-]+ is not in the sudoers file.*",
        r"[\w.@+-]+ may not run sudo.*",
        r"sudo: (?:command )?not found.*",
        r"sudo: No such file.*",
    )
    found = re.search("|".join(refusals), said)
    return redact_text(found[0].strip()) if found else None


def _last_lines(text: str, count: int) -> list[str]:
    printable = (re.sub(r"[^\x20-\x7e\xa0-\uffff]+", " ", line).strip() for line in text.splitlines())
    return [redact_text(line)[:300] for line in printable if line][-count:]


def _quoted(said: str) -> str:
    lines = _last_lines(said, 3)
    return "; it printed: " + " | ".join(lines) if lines else ""
