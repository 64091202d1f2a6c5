"""The commands in a hint, completed with what this command was given: they mean the same node. Pure.

Whoever writes a hint names the command, and the node where one is known; `--inventory`, `--fix` and a
node that was typed are added here.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

# As tasks.py has them, which a test holds them against.
WITH_FIX = frozenset(
    {
        *("deploy-fix", "verify", "diagnose", "bench", "report", "status", "rollback", "push-fix"),
        *("purge-pycache", "kill-stale", "free-gpus", "start", "stop", "restart", "health"),
    }
)
WITHOUT_FIX = frozenset({"fixes", "logs", "history", "unlock", "trust"})
# Options without a value: the word behind them is no part of the command.
SWITCHES = frozenset(
    {
        *("json", "yes", "dry-run", "wait", "from-pristine", "bench", "force", "verbose", "anyway", "text"),
        *("watch", "follow", "errors", "args", "replace"),
    }
)
# Keys in the JSON documents whose text is what to type next.
KEYS = frozenset({"hint", "remedy", "next", "command"})

_WORD = r"""'[^']*'|"[^"]*"|[^\s,;:`()'"-][^\s,;:`()'"]*"""
_OPTION = rf" --(?:(?:{'|'.join(sorted(SWITCHES))})\b(?!-)|[a-z-]+(?:[= ](?:{_WORD}))?)"
_COMMAND = re.compile(
    rf"\binv ({'|'.join(sorted(WITH_FIX | WITHOUT_FIX, key=len, reverse=True))})(?![\w.-])((?:{_OPTION})*)"
)
# Its default name stands for the inventory, whichever file that is.
_FILE = re.compile(r"(?<![\w./-])inventory\.yaml\b")


@dataclass(frozen=True)
class Given:
    """What a command was given. `several`: it works on more than one node, also where none was named. `file`:
    the inventory that $FIXOPS_INVENTORY names, which the next command reads too."""

    node: str | None = None
    fix: str | None = None
    inventory: str | None = None
    several: bool = False
    file: str | None = None


def complete(text: str, given: Given, node: str | None = None) -> str:
    """Every `inv COMMAND` in the text with what was given, unless it is there.

    `node`: the one that the text is about.
    """
    about = (node or given.node) if given.node or given.several else None

    def completed(found: re.Match[str]) -> str:
        command, options = found[1], found[2]
        flags = [("--node", about), ("--inventory", given.inventory)]
        if command in WITH_FIX:
            flags.append(("--fix", given.fix))
        added = [
            f" {flag} {shlex.quote(value)}"
            for flag, value in flags
            if value and not re.search(rf"{flag}[ =]", options)
        ]
        return found[0] + "".join(added)

    path = given.inventory or given.file
    if path:
        text = _FILE.sub(lambda _: path, text)
    return _COMMAND.sub(completed, text)


def complete_tree(value: Any, given: Given, node: str | None = None) -> Any:
    """A JSON document with the hints and remedies in it completed, each for the node of its entry."""
    if isinstance(value, dict):
        named = value.get("node")
        about = named if isinstance(named, str) else node
        return {
            key: complete(each, given, about)
            if key in KEYS and isinstance(each, str)
            else complete_tree(each, given, about)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [complete_tree(each, given, node) for each in value]
    return value
