"""The Invoke collection `practice`: parse and call, no logic. Printing is the caller's: see `collection`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from remote.errors import UsageError

# Runs a command's body and shows its answer: (context, command, as_json, body) where the body is given a
# function for progress messages, and returns what the node's entry in the JSON document holds and the lines
# for a person. Invoke's context goes along: `inv --dry` is refused where every other command refuses it.
Body = Callable[[Callable[[str], None]], tuple[dict[str, Any], list[str]]]
Show = Callable[[Context, str, bool, Body], None]

SSH_KINDS = ("openssh", "asyncssh")


def positional_if_given(
    command: str, name: str, argv: Sequence[str], *, valued: Sequence[str] = ()
) -> list[str]:
    """For @task(positional=...): an argument that may be given without its flag, or be left out.

    Invoke knows only positional arguments that must be there (and that swallow `--help`), so the argument is
    made one exactly when the command line has a word for it. `valued` are the flags that take a word.
    """
    if command not in argv:
        return []
    after = argv[argv.index(command) + 1 :]
    words = [word for before, word in zip(["", *after], after, strict=False) if before not in valued]
    return [name] if any(not word.startswith("-") for word in words) else []


def collection(show: Show, argv: Sequence[str] = sys.argv) -> Collection:
    """`practice.up`, `.down`, `.break`, `.heal`; `argv` is the command line that Invoke will parse."""

    @task(
        auto_shortflags=False,
        help={
            "sglang": "version of SGLang to practise on (default 0.5.9)",
            "ssh": "SSH server: openssh or asyncssh (default: openssh where it is installed)",
            "gpus": "number of simulated GPUs (default 8)",
            "real": "SGLang itself on the CPU, tiny models (Python 3.11, 2 GB of disk and of memory)",
            "json": "one JSON document on stdout",
        },
    )
    def up(
        context: Context,
        sglang: str = "",
        ssh: str = "",
        gpus: int = 0,
        real: bool = False,
        json: bool = False,
    ) -> None:
        """Make the practice node: SSH server, SGLang, simulated GPUs, in the state of the incident."""
        from remote.practice import report

        def body(say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
            if ssh and ssh not in SSH_KINDS:
                raise UsageError(f"--ssh {ssh}: there is no such SSH server", hint="openssh or asyncssh")
            return report.up(sglang or None, ssh or None, gpus or None, say, real=real)  # type: ignore[arg-type]

        show(context, "practice.up", json, body)

    @task(auto_shortflags=False, help={"json": "one JSON document on stdout"})
    def down(context: Context, json: bool = False) -> None:
        """End the practice node's processes and remove its directory."""
        from remote.practice import report

        show(context, "practice.down", json, report.down)

    @task(
        name="break",
        auto_shortflags=False,
        positional=positional_if_given("practice.break", "fault", argv),
        help={
            "fault": "name of the fault; without it, all are listed",
            "json": "one JSON document on stdout",
        },
    )
    def break_(context: Context, fault: str | None = None, json: bool = False) -> None:
        """Bring a fault about on the practice node; without a name, list the faults."""
        from remote.practice import report

        show(context, "practice.break", json, lambda say: report.break_(fault or "", say))

    @task(auto_shortflags=False, help={"fault": "heal only this one", "json": "one JSON document on stdout"})
    def heal(context: Context, fault: str = "", json: bool = False) -> None:
        """Put back what the faults on the practice node changed."""
        from remote.practice import report

        show(context, "practice.heal", json, lambda say: report.heal(fault, say))

    return Collection("practice", up, down, heal, break_)
