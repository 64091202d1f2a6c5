"""`inv verify`: every claim about the node, with its evidence. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import checks
from .bundles import Bundle
from .checks import Check
from .errors import ExitCode
from .observe import observe
from .picture import Picture
from .proofs import prove
from .session import Session
from .wiring import to_json


@dataclass(frozen=True)
class Verified:
    node: str
    checks: tuple[Check, ...]
    picture: Picture

    @property
    def exit_code(self) -> ExitCode:
        return checks.exit_code(self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            **proven_json(self.checks, self.picture),
        }


def verify(session: Session, bundle: Bundle) -> Verified:
    """Read the node once, and judge. Nothing is written there, the state directory included."""
    picture = observe(session, bundle)
    return Verified(session.node.name, tuple(prove(picture)), picture)


def proven_json(found: Sequence[Check], picture: Picture) -> dict[str, Any]:
    """The contract's `checks`, and the `wiring` beside them."""
    return {"checks": [check.to_json() for check in found], "wiring": wiring_json(picture)}


def wiring_json(picture: Picture) -> dict[str, Any]:
    """The contract's `wiring`: what the draft is meant to get, and gets, by forward mode."""
    contract = picture.contract
    if picture.wiring is None:
        return {"contract": contract, "eager": None, "graph": None, "overlap": None}
    return to_json(picture.wiring, contract or [])
