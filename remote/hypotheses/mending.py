"""Which fix would give the draft what it was trained on: tried on the node's files, in memory."""

from __future__ import annotations

from .. import bundles, fixes, wiring
from ..bundles import Bundle
from ..observe import wiring_of
from ..picture import Picture
from .base import command


def mends(picture: Picture, bundle: Bundle) -> bool:
    """Whether prefill and decode get the contract once this bundle's code and configuration are in place."""
    contract = picture.contract
    if picture.version is None or contract is None or picture.config is None or picture.config.text is None:
        return False
    state = fixes.evaluate(bundle, picture.version, picture.sources, {})
    config = fixes.evaluate_config(bundle, picture.config.text, picture.version)
    if state.state in ("foreign", "uncovered") or config.state == "misfit":
        return False
    sources = dict(picture.sources)
    sources.update({file.path: file.new_text for file in state.files if file.new_text is not None})
    draft = config.new_text or picture.config.text
    found = wiring_of(picture.version, sources, picture.model_config, draft)
    return found is not None and all(
        wiring.compare(found.mode(mode), contract) == "match" for mode in ("eager", "graph")
    )


def mending_command(picture: Picture) -> str:
    """The deploy that makes it right, or how to see what there is where none does."""
    contract = picture.bundle.contract
    others = [
        bundle
        for bundle in bundles.list_bundles()
        if bundle.name != picture.bundle.name
        and bundle.contract is not None
        and contract is not None
        and bundle.contract.draft_input == contract.draft_input
    ]
    for bundle in [picture.bundle, *others]:
        if mends(picture, bundle):
            return command(picture, "deploy-fix", "--fix", bundle.name)
    return command(picture, "fixes")
