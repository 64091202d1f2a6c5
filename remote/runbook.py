"""The on-call runbook: the page docs/runbook.md by its entries, and which message leads to which of them.

The entries are the page's `##` headings; what a message is led to by stands in the tables here and nowhere
else: a check's id, an error's code or reason, or the code of a failure in a server's log.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import hints
from .errors import FixopsError, UsageError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "runbook.md"

# Decode lines whose accept length is 1.
ACCEPTS_NOTHING = "accept-length-low"

# Codes of failures in a log (remote/sglang/failure_rules.py).
FAILURES = {
    "gpu-oom": "out-of-memory-at-start",
    "kv-pool-too-small": "out-of-memory-at-start",
    "memory-unbalanced": "gpu-memory-not-freed",
    "port-in-use": "port-taken",
    "internal-port-conflict": "port-taken",
    "model-import": "patch-does-not-fit",
    "eagle3-hook-missing": "patch-does-not-fit",
    "rank-died": "health-never-ready",
    "watchdog": "up-but-hanging",
    "nccl": "health-never-ready",
    "model-arch": "health-never-ready",
    "draft-is-target": "health-never-ready",
    "draft-arch": "health-never-ready",
    "draft-vocab": "health-never-ready",
    "draft-shape": "health-never-ready",
    "draft-layers": "health-never-ready",
    "draft-context": "health-never-ready",
    "capture-layers": "health-never-ready",
    "bad-argument": "health-never-ready",
    "weights-missing": "health-never-ready",
    "shm-full": "health-never-ready",
    "warmup": "health-never-ready",
    "unknown": "health-never-ready",
}

# Checks by id (remote/proofs). What a check observed may say more than its id: OBSERVED comes first.
CHECKS = {
    "source.file": "is-what-runs-what-we-meant",
    "source.state": "is-what-runs-what-we-meant",
    "source.compiles": "patch-does-not-fit",
    "source.behaviour": "applied-no-effect",
    "bytecode.fresh": "is-what-runs-what-we-meant",
    "config.values": "is-what-runs-what-we-meant",
    "config.draft": "is-what-runs-what-we-meant",
    "wiring.eager": "applied-no-effect",
    "wiring.graph": "applied-no-effect",
    "wiring.overlap": "applied-no-effect",
    "process.single": "gpu-memory-not-freed",
    "process.owner": "port-taken",
    "process.ranks": "up-but-hanging",
    "process.after_fix": "is-what-runs-what-we-meant",
    "gpu.holders": "gpu-memory-not-freed",
    "args.effective": "is-what-runs-what-we-meant",
    "log.boot": "health-never-ready",
    "log.capture": "applied-no-effect",
    "log.errors": "health-never-ready",
    "health.http": "up-but-hanging",
    "health.generate": "up-but-hanging",
}

OBSERVED: tuple[tuple[re.Pattern[str], str | None], ...] = (
    # A key that is not here is no symptom of the server's: the remedy says all.
    (re.compile(r"^the server (wants|does not accept) (an|its|the) API key"), None),
    # A server that is gone makes most checks fail: they all lead to the entry about that.
    (re.compile(r"no server of ours|no process of ours|nobody listens|^refused"), "health-never-ready"),
    (re.compile(r"^foreign|^\S+ covers SGLang .*, not "), "patch-does-not-fit"),
)

# Errors by code (remote/errors.py); of some codes by their `data["reason"]`, which says more.
ERRORS = {
    "connect": "cannot-connect",
    "locked": "locked",
    "refused": "refused",
    "unhealthy": "health-never-ready",
}

REASONS = {
    "uncovered": "patch-does-not-fit",
    "misfit": "patch-does-not-fit",
    "does-not-import": "patch-does-not-fit",
    "port-foreign": "port-taken",
    "gpu-foreign": "gpu-memory-not-freed",
    "gpu-unseen": "gpu-memory-not-freed",
    "gpu-in-use": "gpu-memory-not-freed",
    "not-ended": "gpu-memory-not-freed",
    "no-generation": "up-but-hanging",
}


# A verdict of bench is no error, and leads somewhere all the same.
INEFFECTIVE = "applied-no-effect"

# States of a server in `inv status`.
STATES = {"down": "health-never-ready", "sick": "up-but-hanging"}

TABLES = (CHECKS, FAILURES, ERRORS, REASONS)


@dataclass(frozen=True)
class Entry:
    """One symptom: its name, what one sees, the entry in Markdown, and the commands that it shows."""

    symptom: str
    title: str
    text: str
    commands: tuple[str, ...]


def page() -> str:
    """The page as a reader sees it, without the comments that say how its blocks are made."""
    return re.sub(r"<!--.*?-->\n*", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def entries(text: str) -> tuple[Entry, ...]:
    """The entries of the page's text in its order: a `##` heading each, its title in the table at the top."""
    titles = dict(re.findall(r"^\| \[([a-z-]+)\]\(#\1\) \| (.+) \|$", text, flags=re.MULTILINE))
    found = []
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]:
        symptom = part.partition("\n")[0].removeprefix("## ")
        commands = tuple(re.findall(r"^\$ (inv .+)$", part, flags=re.MULTILINE))
        found.append(Entry(symptom, titles[symptom], part.strip() + "\n", commands))
    return tuple(found)


def find(name: str, among: Sequence[Entry]) -> Entry:
    """The entry of this symptom, check id, failure code or error code. UsageError names the nearest."""
    by_symptom = {entry.symptom: entry for entry in among}
    symptom = next((table[name] for table in TABLES if name in table), name)
    if symptom in by_symptom:
        return by_symptom[symptom]
    (near,) = difflib.get_close_matches(name, by_symptom, n=1, cutoff=0.0)
    raise UsageError(
        f"the runbook has no entry '{name}', the nearest is '{near}'", hint="inv runbook shows them all"
    )


def aimed(text: str, *, node: str | None, inventory: str | None) -> str:
    """The text with its commands aimed at this node: `--node` and `--inventory` behind each of them."""
    if node:
        text = text.replace(" --node practice", f" --node {node}")
    return hints.complete(text, hints.Given(node, inventory=inventory))


def of_check(id: str, observed: str) -> str | None:
    """The entry for a check that did not pass; None where there is none."""
    code = observed.partition(":")[0]
    if id.startswith("log.") and code in FAILURES:
        return FAILURES[code]
    return next((symptom for pattern, symptom in OBSERVED if pattern.search(observed)), CHECKS.get(id))


def of_state(state: str, *, stale: bool, port_taken: bool = False) -> str | None:
    """The entry for a server in this state. `stale`: processes of an earlier one are there; `port_taken`:
    somebody else's listens on its port."""
    if state == "down" and port_taken:
        return REASONS["port-foreign"]
    return "gpu-memory-not-freed" if stale else STATES.get(state)


def of_error(error: FixopsError) -> str | None:
    """The entry for an error; None for one that says all by itself, such as a mistyped name."""
    for key, table in (("failure", FAILURES), ("reason", REASONS)):
        told = error.data.get(key)
        if isinstance(told, str) and told in table:
            return table[told]
    return ERRORS.get(error.code)
