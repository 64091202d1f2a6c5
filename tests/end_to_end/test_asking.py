"""Nothing is changed without a yes."""

from __future__ import annotations

import contextlib
import os
import pty

import pytest

from tests.end_to_end.kit import Practice, Ran, at_terminal
from tests.support import wait_until

CHANGING = (
    *("deploy-fix", "rollback", "push-fix", "purge-pycache", "kill-stale", "free-gpus"),
    *("start", "stop", "restart"),
)


@pytest.mark.parametrize("command", CHANGING)
def test_without_a_terminal_nobody_can_be_asked(incident: Practice, command: str) -> None:
    incident.inv(command, "--json").refuses(2, "terminal", "--yes", "--dry-run")


def test_what_is_to_be_typed_then_is_for_the_same_node(incident: Practice) -> None:
    mine = str(incident.root / "inventory.yaml")
    words = ("--node", "practice", "--inventory", mine, "--force", "--fix", "eagle3-embedding-capture")
    ran = incident.inv("rollback", *words, "--json").refuses(2, "changes practice")
    meant = f"inv rollback --force --yes --node practice --inventory {mine} --fix eagle3-embedding-capture"
    assert ran.document["error"]["hint"].startswith(f"{meant}, or --dry-run")
    assert f"next:  {meant}, or --dry-run" in ran.err


@pytest.mark.parametrize("command", ["deploy-fix", "verify", "stop", "status"])
def test_invokes_own_dry_run_is_refused(incident: Practice, command: str) -> None:
    words = ["--yes"] if command in CHANGING else []
    incident.inv("--dry", command, *words, "--json").refuses(2, "--dry", "--dry-run")


def answered(practice: Practice, answer: str, *words: str) -> Ran:
    """A command at a terminal, whose question is answered."""
    master, terminal = pty.openpty()
    os.set_blocking(master, False)
    shown = b""

    def asked() -> bool:
        nonlocal shown
        with contextlib.suppress(OSError):
            shown += os.read(master, 65536)
        return b"[y/N]" in shown or process.poll() is not None

    with practice.begun(*words, **at_terminal(terminal)) as process:
        os.close(terminal)
        wait_until(asked, 60, what="the question")
        os.write(master, answer.encode())
        wait_until(lambda: asked() and process.poll() is not None, 60, what="the command's end")
        os.close(master)
    return Ran(words, process.returncode, shown.decode(), "")


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04"])
def test_all_but_yes_is_a_no(incident: Practice, answer: str) -> None:
    ran = answered(incident, answer, "deploy-fix").is_(5)
    assert "nothing was changed" in ran.out
    assert "capture_embedding_for_eagle3" in ran.out
    assert "Traceback" not in ran.out
    assert "inv deploy-fix --dry-run shows the plan, inv deploy-fix --yes carries it out" in ran.out


def test_ctrl_c_at_the_question(incident: Practice) -> None:
    ran = answered(incident, "\x03", "stop")
    assert "Traceback" not in ran.out
    assert ran.code == 130
