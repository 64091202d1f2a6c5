"""`inv fixes`: every fix bundle, held against the files of the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import bundles
from .errors import ExitCode
from .observe import observe
from .session import Session


@dataclass(frozen=True)
class Row:
    """`state` is the contract's fix state, or `uncovered`, or `unknown` where no SGLang was found."""

    name: str
    title: str
    sglang: str
    state: str
    local_changes: bool | None
    problem: str | None


@dataclass(frozen=True)
class Fitting:
    node: str
    version: str | None
    rows: tuple[Row, ...]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "version": self.version, "fixes": [vars(row) for row in self.rows]}


def fitting(session: Session) -> Fitting:
    rows, version = [], None
    for bundle in bundles.list_bundles():
        picture = observe(session, bundle, probe=False)
        version = picture.version
        fix = picture.fix
        rows.append(
            Row(
                name=bundle.name,
                title=bundle.title,
                sglang=str(bundle.sglang),
                state=fix.state if fix else "unknown",
                local_changes=fix.local_changes if fix else None,
                problem=fix.problem if fix else "no SGLang was found",
            )
        )
    return Fitting(session.node.name, version, tuple(rows))
