"""Which hidden states reach the draft, in every forward mode? Computed from the installed source."""

from __future__ import annotations

from .. import wiring
from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..intent import draft_config_path, model_config_path
from ..picture import Picture
from .server_args import arguments

_NAMES = {
    "eager": "prefill and extend",
    "graph": "decode and target verify, replayed from CUDA graphs",
    "overlap": "two-batch overlap",
}


def eager(picture: Picture) -> Check:
    return _mode(picture, "eager")


def graph(picture: Picture) -> Check:
    return _mode(picture, "graph")


def overlap(picture: Picture) -> Check:
    return _mode(picture, "overlap")


def _mode(picture: Picture, mode: str) -> Check:
    id = f"wiring.{mode}"
    contract = picture.contract
    if contract is None:
        return skipped(id, _NAMES[mode], "the bundle promises no wiring")
    expected = f"{_NAMES[mode]}: [{', '.join(contract)}]"
    diagnose = f"inv diagnose --node {picture.node.name}"
    values = arguments(picture).values
    applies = wiring.applies(mode, dict(values)) if values is not None else None
    result: wiring.ModeResult | None = getattr(picture.wiring, mode, None)
    seen = () if result is None else (Evidence(result.call_site or "installed source", result.explain),)
    if applies is False:
        return skipped(id, expected, "this mode is off on this server", *seen)
    if result is None:
        why = "the model's or the draft's config.json, or the source, could not be read"
        return unknown(id, expected, why, *unread(picture), remedy=diagnose)
    match wiring.compare(result, contract):
        case "match":
            return passed(id, expected, f"[{', '.join(result.layers or ())}]", *seen)
        case "unknown":
            return unknown(id, expected, result.unknown or "not computed", *seen, remedy=diagnose)
        case _ if applies is None and mode == "overlap":
            # Off unless asked for: without the server's arguments a wrong wiring here is no claim.
            why = "it is not known whether two-batch overlap is on"
            return unknown(id, expected, why, *seen, remedy=diagnose)
        case _:
            observed = result.error or f"[{', '.join(result.layers or ())}]"
            return failed(id, expected, observed, *seen, remedy=diagnose)


def unread(picture: Picture) -> list[Evidence]:
    """Which of the files that the wiring is computed from tell nothing, and why."""
    server = picture.node.server
    parsed = {draft_config_path(server): picture.draft, model_config_path(server): picture.model_config}
    found = [
        Evidence(path, _why(picture, path)) for path, values in parsed.items() if path and values is None
    ]
    problem = picture.problem or ("SGLang's version is not known" if picture.version is None else None)
    return [*found, Evidence("installed source", problem)] if problem else found


def _why(picture: Picture, path: str) -> str:
    configs = picture.facts.get("configs", {})
    facts = configs.get(path, configs)
    if "error" in facts:
        return str(facts["error"]["message"])
    return facts.get("problem") or ("no JSON object" if facts.get("exists") else "absent")
