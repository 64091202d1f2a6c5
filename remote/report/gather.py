"""`inv report` on one node: read it once, as verify does, and its journal; find the runs that were kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..bench import baselines
from ..bundles import Bundle
from ..cache import Contents
from ..diagnose import conclude
from ..observe import observe
from ..picture import Picture
from ..proofs import prove
from ..session import Session
from ..verify import wiring_json
from . import deploys, runs
from .files import replaced
from .missing import missing
from .model import Brought, Deploy, Report

# Journal entries and manifests that are read: years of deploys.
LIMIT = 5000


def report(
    session: Session, bundle: Bundle, asked: str | None, clock: Callable[[], float] = time.time
) -> Report:
    """`asked`: a deploy's id, None for the last one. RefusedError when there is none of that id."""
    waiting = session.submit("history", {"limit": LIMIT})
    picture = observe(session, bundle)
    history = session.result(waiting)
    journal, manifests = history["journal"], history["deploys"]
    id = deploys.choose(session.node.name, deploys.known(journal, manifests), asked)
    documents = runs.kept(baselines.directory() / "bench" / session.node.name)
    found = runs.brought(runs.all_runs(journal, documents), *deploys.window(id, journal))
    return assemble(session, picture, _deploy(session, picture, history, id), found, clock())


def _deploy(session: Session, picture: Picture, history: dict[str, Any], id: str | None) -> Deploy | None:
    if id is None:
        return None
    manifest = next((each for each in history["deploys"] if each["id"] == id), None)
    files = replaced(session, picture, manifest, Contents()) if manifest else []
    return deploys.read(id, history["journal"], manifest, files)


def assemble(
    session: Session, picture: Picture, deploy: Deploy | None, brought: Brought, now_s: float
) -> Report:
    """The report on what was read."""
    checks = tuple(prove(picture))
    diagnosis = conclude(picture)
    measured = [run.summary for run in (brought.before, brought.after) if run]
    told = bool((picture.effective or {}).get("simulated"))
    bundle, contract = picture.bundle, picture.contract
    return Report(
        node=session.node.name,
        host=session.node.host,
        time=now_s,
        who=session.who,
        simulated=told or any(each.simulated for each in measured),
        version=picture.version,
        fix=bundle.name,
        fix_title=bundle.title,
        fix_why=bundle.why,
        fix_state=picture.fix.state if picture.fix else None,
        deploy=deploy,
        checks=checks,
        contract=tuple(contract) if contract is not None else None,
        wiring=wiring_json(picture),
        modes=diagnosis.modes,
        answer=diagnosis.answer if any(check.verdict == "fail" for check in checks) else None,
        brought=brought,
        missing=tuple(missing(session.node.name, deploy, checks, brought)),
    )
