"""The picture of a node: what was read there, and what follows from it. Pure data.

Facts keep the shapes in which the node reports them (remote/node/): plain mappings. A section that
could not be read is `{"error": {"kind", "message"}}`; asking it for a value gives `Unreadable`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .bundles import Bundle
from .errors import RefusedError
from .fixes import ConfigState, FixState
from .inventory import Node
from .ownership import Ownership
from .sglang.boots import Boot
from .sglang.modelconfig import architectures, json_object
from .wiring import Wiring

Facts = Mapping[str, Any]


class Unreadable(RefusedError):
    """A section of the observation that the node could not give, and why: nothing is planned on it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="inv status shows what can be read there")


def outcome(reply: Facts) -> str:
    """What came of an HTTP request (node/http.py), in a few words."""
    elapsed_s = reply.get("elapsed_s") or 0.0
    if reply.get("status") is not None:
        return f"{reply['status']} after {elapsed_s:.1f} s"
    if reply.get("error") == "timeout":
        return f"no answer within {elapsed_s:.0f} s"
    return str(reply.get("error") or "no answer")


def generated(reply: Facts) -> int | None:
    """How many tokens a reply of /generate says came back; None where it is not one of /generate."""
    try:
        tokens = json.loads(reply["body"])["meta_info"]["completion_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None


@dataclass(frozen=True)
class ConfigFile:
    """The edited configuration file: the draft model's config.json."""

    path: str
    facts: Facts
    text: bytes | None
    state: ConfigState | None

    @property
    def problem(self) -> str:
        """Why there is no text of it."""
        if self.facts.get("exists") is False:
            return "does not exist"
        why = (self.facts.get("error") or {}).get("message") or self.facts.get("problem")
        return "could not be read" + (f": {why}" if why else "")


@dataclass(frozen=True)
class Picture:
    node: Node
    bundle: Bundle
    facts: Facts
    version: str | None
    root: str | None
    # Why the fix could not be held against the files, None when it could.
    problem: str | None
    sources: Mapping[str, bytes | None]
    compile_errors: Mapping[str, Any]
    fix: FixState | None
    config: ConfigFile | None
    model_config: Mapping[str, Any] | None
    wiring: Wiring | None
    # The same with the draft configuration that the bundle sets: a claim about the source alone.
    meant: Wiring | None
    ownership: Ownership | None
    boot: Boot | None
    effective: Mapping[str, Any] | None

    def section(self, name: str) -> Facts:
        """One section of the observation, or Unreadable with the node's reason."""
        found = self.facts.get(name)
        if found is None:
            raise Unreadable(f"{name}: the node did not report it")
        if set(found) == {"error"}:
            raise Unreadable(f"{name}: {found['error'].get('message', found['error'])}")
        return dict(found)

    @property
    def contract(self) -> list[str] | None:
        """What the draft was trained with, None where the bundle claims nothing about it."""
        contract = self.bundle.contract
        return [str(layer) for layer in contract.draft_input] if contract else None

    @property
    def draft(self) -> Mapping[str, Any] | None:
        """The draft's config.json, None where it could not be read or is no JSON object."""
        return json_object(self.config.text) if self.config else None

    @property
    def draft_architectures(self) -> tuple[str, ...]:
        return architectures(self.draft)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The end of the node's journal when it was read; empty where it could not be."""
        return list((self.facts.get("state") or {}).get("journal_tail") or [])

    def short(self, path: str) -> str:
        """A path as a line of text has room for it: the package's files relative to its root."""
        return path[len(self.root) + 1 :] if self.root and path.startswith(f"{self.root}/") else path

    def path_of(self, relative: str) -> str:
        return f"{self.root}/{relative}" if self.root else relative
