"""The Invoke collection `practice`: parse and call, no logic. Printing is the caller's: see `collection`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from remote.errors import UsageError


@dataclass(frozen=True)
class Given:
    """What every command takes. `node` and `inventory` are not looked at here: whoever shows the answer holds
    them against the inventory first."""

    node: str | None
    inventory: str | None
    json: bool


# Runs a command's body and shows its answer: (context, command, given, body) where the body is given a
# function for progress messages, and returns what the node's entry in the JSON document holds and the lines
# for a person. Invoke's context goes along: `inv --dry` is refused where every other command refuses it.
Body = Callable[[Callable[[str], None]], tuple[dict[str, Any], list[str]]]
Show = Callable[[Context, str, Given, Body], None]

SSH_KINDS = ("openssh", "asyncssh")
HELP = {
    "node": "the practice node, by its name in the inventory; no other node is taken (default: the only one)",
    "inventory": "the inventory of --node (without both none is read)",
    "json": "one JSON document on stdout",
    "yes": "accepted, not needed: these commands ask nothing, they concern a node on this machine only",
    "dry-run": "tell what it would do and change nothing",
}


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
            "real": "SGLang itself on the CPU, tiny models (Python 3.11, 2.3 GB of disk, 2 GB of memory)",
            **HELP,
        },
    )
    def up(
        context: Context,
        sglang: str = "",
        ssh: str = "",
        gpus: int = 0,
        real: bool = False,
        node: str | None = None,
        inventory: str | None = None,
        json: bool = False,
        yes: bool = False,  # noqa: ARG001 - nothing is asked
        dry_run: bool = False,
    ) -> None:
        """Make the practice node: SSH server, SGLang, simulated GPUs, in the state of the incident."""
        from remote.practice import report

        def body(say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
            if ssh and ssh not in SSH_KINDS:
                raise UsageError(f"--ssh {ssh}: there is no such SSH server", hint="openssh or asyncssh")
            wishes = (sglang or None, ssh or None, gpus or None)
            return report.up(*wishes, say, real=real, dry_run=dry_run)  # type: ignore[arg-type]

        show(context, "practice.up", Given(node, inventory, json), body)

    @task(auto_shortflags=False, help={**HELP})
    def down(
        context: Context,
        node: str | None = None,
        inventory: str | None = None,
        json: bool = False,
        yes: bool = False,  # noqa: ARG001 - nothing is asked
        dry_run: bool = False,
    ) -> None:
        """End the practice node's processes and remove its directory."""
        from remote.practice import report

        def body(say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
            return report.down(say, dry_run=dry_run)

        show(context, "practice.down", Given(node, inventory, json), body)

    @task(
        name="break",
        auto_shortflags=False,
        positional=positional_if_given("practice.break", "fault", argv, valued=("--node", "--inventory")),
        help={"fault": "name of the fault; without it, all are listed", **HELP},
    )
    def break_(
        context: Context,
        fault: str | None = None,
        node: str | None = None,
        inventory: str | None = None,
        json: bool = False,
        yes: bool = False,  # noqa: ARG001 - nothing is asked
        dry_run: bool = False,
    ) -> None:
        """Bring a fault about on the practice node; without a name, list the faults."""
        from remote.practice import report

        def body(say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
            return report.break_(fault or "", say, dry_run=dry_run)

        show(context, "practice.break", Given(node, inventory, json), body)

    @task(auto_shortflags=False, help={"fault": "heal only this one", **HELP})
    def heal(
        context: Context,
        fault: str = "",
        node: str | None = None,
        inventory: str | None = None,
        json: bool = False,
        yes: bool = False,  # noqa: ARG001 - nothing is asked
        dry_run: bool = False,
    ) -> None:
        """Put back what the faults on the practice node changed."""
        from remote.practice import report

        def body(say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
            return report.heal(fault, say, dry_run=dry_run)

        show(context, "practice.heal", Given(node, inventory, json), body)

    return Collection("practice", up, down, heal, break_)
