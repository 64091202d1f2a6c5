"""Which states reach the draft, and what keeps the right ones from it: from the installed files' wiring."""

from __future__ import annotations

import json
import re

from .. import wiring
from ..checks import Evidence
from ..intent import wanted_args
from ..observe import wiring_of
from ..picture import Picture
from ..proofs import prove
from ..proofs.server_args import Arguments, arguments
from ..sglang.modelconfig import architectures
from ..wiring import ModeResult
from .base import Cause, Hypothesis, command, deploy, in_inventory
from .mending import mending_command

_IDS = "eagle_aux_hidden_state_layer_ids"
# What an EAGLE-3 target must have: model_runner.py, eagle_worker.py (0.5.5 to 0.5.23).
_METHODS = "set_eagle3_layers_to_capture|get_embed_and_head|set_embed_and_head"
_LACKS = re.compile(rf"has no attribute '({_METHODS})'|does not implement")


def listed(layers: object) -> str:
    return (
        f"[{', '.join(str(layer) for layer in layers)}]" if isinstance(layers, list | tuple) else str(layers)
    )


def outcome(result: ModeResult) -> str:
    """One mode in a few words."""
    if result.error is not None:
        return f"dies with {result.error}"
    if result.unknown is not None or result.layers is None:
        return f"not known: {result.unknown}"
    return listed(result.layers) if result.layers else "nothing"


def _seen(result: ModeResult) -> Evidence:
    where = result.call_site or "installed source"
    return Evidence(where, result.explain.removesuffix(f", set by {where}"))


def _no_wiring(cause: Cause, picture: Picture) -> Hypothesis:
    why = "the bundle promises no wiring"
    if picture.contract is not None:
        why = picture.problem or "the model's or the draft's config.json, or the source, could not be read"
    return cause.unknown(why, remedy=command(picture, "verify"))


def source(cause: Cause, picture: Picture) -> Hypothesis:
    """With the ids that the bundle sets, does the imported source capture the contract in prefill?"""
    broken = _broken(cause, picture)
    if broken is not None:
        return broken
    contract = picture.contract
    if picture.meant is None or contract is None:
        return _no_wiring(cause, picture)
    result = picture.meant.eager
    state = picture.fix.state if picture.fix else "unknown"
    seen = [_seen(result), Evidence(picture.bundle.name, f"state of the fix: {state}")]
    match wiring.compare(result, contract):
        case "match":
            return cause.refuted(f"the fix is {state}, and can give {listed(contract)}", *seen)
        case "unknown":
            return cause.unknown(outcome(result), *seen, remedy=command(picture, "fixes"))
        case _:
            says = f"the fix is {state}; with its ids prefill {_gives(result)}"
            return cause.holds(says, *seen, remedy=mending_command(picture))


def _broken(cause: Cause, picture: Picture) -> Hypothesis | None:
    """A file of the fix is gone or does not compile: whatever it would give, no server starts with it."""
    remedy = command(picture, "deploy-fix", "--fix", picture.bundle.name, "--from-pristine")
    (check,) = prove(picture, ["source.compiles"])
    if check.verdict == "fail":
        return cause.holds(check.observed, *check.evidence, remedy=remedy)
    gone = [
        file.path
        for file in (picture.fix.files if picture.fix else ())
        if not picture.sources.get(file.path)  # absent, or empty
    ]
    if gone:
        return cause.holds(
            f"{gone[0]} is empty or not there", *(Evidence(path, "nothing") for path in gone), remedy=remedy
        )
    return None


def _gives(result: ModeResult) -> str:
    return outcome(result) if result.error is not None else f"gives {outcome(result)}"


def wrapper(cause: Cause, picture: Picture) -> Hypothesis:
    """A multimodal wrapper without the hook, or without the embedding and head that the draft shares."""
    if picture.wiring is None:
        return _no_wiring(cause, picture)
    name = next(iter(architectures(picture.model_config)), "?")
    results = [picture.wiring.mode(mode) for mode in wiring.MODES]
    lacking = next((r for r in results if r.error is not None and _LACKS.search(r.error)), None)
    if lacking is not None:
        return cause.holds(f"{lacking.error}", _seen(lacking), remedy=mending_command(picture))
    # Whatever the configured ids do, with the default ones it starts where the class is complete.
    plain = wiring_of(picture.version, picture.sources, picture.model_config, b"{}")
    if any(result.layers for result in (*results, *((plain.eager,) if plain else ()))):
        return cause.refuted(
            f"{name} has them", Evidence(name, f"none of {_METHODS.replace('|', ', ')} is missing")
        )
    eager = results[0]
    return cause.unknown(outcome(eager), _seen(eager), remedy=command(picture, "verify"))


def ids(cause: Cause, picture: Picture) -> Hypothesis:
    """The configured ids do not mean the contract's layers in this version, and others would."""
    contract, config = picture.contract, picture.config
    if contract is None or config is None or config.state is None:
        return _no_wiring(cause, picture)
    if picture.wiring is None:
        if config.state.state != "misfit":
            return _no_wiring(cause, picture)
        return _misfit(cause, picture, config.path, config.state.problem)
    result = picture.wiring.eager
    eagle = (picture.draft or {}).get("eagle_config")
    configured = json.dumps(eagle.get(_IDS) if isinstance(eagle, dict) else None)
    meaning = f"SGLang {picture.version}: {_IDS} {configured} {_gives(result)}"
    seen = [Evidence(config.path, meaning), _seen(result)]
    if wiring.compare(result, contract) == "match":
        return cause.refuted(f"{configured} means {listed(contract)} here", *seen)
    if config.state.state == "misfit":
        return _misfit(cause, picture, config.path, config.state.problem, *seen)
    if config.state.changes:
        key, _, after = config.state.changes[0]
        says = f"{configured} {_gives(result)}; {key.rpartition('.')[2]} should be {json.dumps(after)}"
        return cause.holds(says, *seen, remedy=mending_command(picture))
    if result.unknown is not None:
        return cause.unknown(outcome(result), *seen, remedy=command(picture, "verify"))
    return cause.refuted(f"{configured} is what the fix sets", *seen)


def _misfit(cause: Cause, picture: Picture, path: str, problem: str | None, *seen: Evidence) -> Hypothesis:
    remedy = f"mend {path} by hand, then: {deploy(picture)}"
    return cause.holds(f"{path} cannot be edited: {problem}", *seen, remedy=remedy)


def graph(cause: Cause, picture: Picture) -> Hypothesis:
    """Decode replays CUDA graphs that were captured with other layers than the configured (to 0.5.10)."""
    contract = picture.contract
    found = arguments(picture)
    if _applies("graph", found) is False:
        return cause.refuted("CUDA graphs are off", Evidence(found.source, "no graphs in decode"))
    if picture.wiring is None or contract is None:
        return _no_wiring(cause, picture)
    result, eager = picture.wiring.graph, picture.wiring.eager
    verdict = wiring.compare(result, contract)
    if verdict == "unknown":
        return cause.unknown(outcome(result), _seen(result), remedy=command(picture, "verify"))
    if verdict == "match":
        return cause.refuted(f"decode gets {outcome(result)}", _seen(result))
    seen = [_seen(result), _seen(eager)]
    if (result.layers, result.error) == (eager.layers, eager.error):
        return cause.refuted("decode gets what prefill gets", *seen)
    says = f"decode {_gets(result)}, set by {result.call_site or 'nobody'}"
    return cause.holds(says, *seen, remedy=mending_command(picture))


def _gets(result: ModeResult) -> str:
    return outcome(result) if result.error is not None else f"gets {outcome(result)}"


def _applies(mode: str, found: Arguments) -> bool | None:
    return None if found.values is None else wiring.applies(mode, found.values)


def overlap(cause: Cause, picture: Picture) -> Hypothesis:
    """From layer first_k_dense_replace on, two-batch overlap captures nothing (models/deepseek_v2.py)."""
    contract = picture.contract
    found = arguments(picture)
    if _applies("overlap", found) is False:
        return cause.refuted("it is off", Evidence(found.source, "enable_two_batch_overlap = False"))
    if picture.wiring is None or contract is None:
        return _no_wiring(cause, picture)
    result = picture.wiring.overlap
    verdict = wiring.compare(result, contract)
    if verdict == "match":
        return cause.refuted(f"it captures {outcome(result)}", _seen(result))
    if verdict == "unknown":
        return cause.unknown(outcome(result), _seen(result), remedy=command(picture, "verify"))
    if _applies("overlap", found) is None:
        says = "it is not known whether it is on"
        return cause.unknown(says, _seen(result), remedy=command(picture, "logs", "--args"))
    on = Evidence(found.source, "enable_two_batch_overlap = True")
    remedy = command(picture, "restart")
    if wanted_args(picture.node.server).get("enable_two_batch_overlap"):
        remedy = in_inventory(picture, "take enable-two-batch-overlap out of args")
    return cause.holds(f"it is on, and {_gives(result)}", on, _seen(result), remedy=remedy)


def residual(cause: Cause, picture: Picture) -> Hypothesis:
    """A layer's input is hidden states plus residual: not normalised, and neither of them alone."""
    if picture.wiring is None:
        return _no_wiring(cause, picture)
    found = arguments(picture)
    results = [picture.wiring.mode(mode) for mode in wiring.MODES if _applies(mode, found) is not False]
    for result in results:
        odd = [layer for layer in result.layers or () if not re.fullmatch(r"embed|in:\d+", layer)]
        if odd:
            says = f"the draft gets {odd[0]}, which is no layer's input"
            return cause.holds(says, _seen(result), remedy=mending_command(picture))
    eager = picture.wiring.eager
    if eager.layers:
        return cause.refuted("each state is a layer's input, hidden states plus residual", _seen(eager))
    return cause.unknown(outcome(eager), _seen(eager), remedy=command(picture, "verify"))
