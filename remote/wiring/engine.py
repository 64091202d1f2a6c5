"""`compute` and what is built on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .facts import settings_of
from .needs import DRAFT_FILE, TARGETS
from .results import MODES, ModeResult, Verdict, Wiring, compare
from .scenario import Outcome, Scenario, Target, play

_MAX_FLIPS = 80
_MAX_STEPS = 1_000_000
_IDS = "eagle_aux_hidden_state_layer_ids"


def compute(
    sources: Mapping[str, str],
    *,
    version: str,
    architecture: str,
    num_layers: int,
    first_k_dense_replace: int,
    draft_config: Mapping[str, object],
    fc_inputs: int | None = None,
    server_args: Mapping[str, object] | None = None,
    log: Callable[[str, str], None] | None = None,
) -> Wiring:
    """The wiring of every mode, from the text of the installed files (`needed_files`).

    `draft_config`: the draft's config.json. `fc_inputs`: how many states the draft's `fc` weight takes, when
    that is known from the checkpoint; otherwise what the installed draft class derives from the config. `log`
    is called with level and message for what the installed code logs while it sets the layers. `server_args`:
    effective arguments (`moe_a2a_backend` is used); without them an answer that depends on them is unknown.
    Never raises for what the sources hold: that gives `unknown` with the reason.
    """
    target = Target(architecture, num_layers, first_k_dense_replace, draft_config, settings_of(server_args))
    if architecture not in TARGETS and not any(f"class {architecture}" in text for text in sources.values()):
        unknown = ModeResult(None, None, f"{architecture} is not known", None, f"{architecture} is not known")
        return Wiring(unknown, unknown, unknown)
    base = play(sources, target, log=log)
    doubts = _doubts(sources, target, base)
    width = fc_inputs if fc_inputs is not None else _fc_inputs(sources, draft_config)
    results = {
        mode: _result(mode, base.outcomes[mode], doubts.get(mode), width, version, draft_config)
        for mode in MODES
    }
    return Wiring(results["eager"], results["graph"], results["overlap"])


def _doubts(sources: Mapping[str, str], target: Target, base: Scenario) -> dict[str, str]:
    """Modes whose outcome changes when an undecided predicate is taken the other way, with the reason.

    One at a time, and with it each that only comes up then.
    """
    found: dict[str, str] = {}
    if all(outcome.unknown is not None for outcome in base.outcomes.values()):
        return found
    pending = [(frozenset((text,)), text, where) for text, where in base.undecided.items()]
    seen = set(base.undecided)
    steps = 0
    for count, (flips, text, where) in enumerate(pending):
        if count >= _MAX_FLIPS or steps > _MAX_STEPS:
            return dict.fromkeys(MODES, f"too much is undecided, from `{text}` at {where} on")
        # What no forward depends on can only change the state of the model: the same state forwards alike.
        known = None if flips & base.decided else base.forwards
        other = play(sources, target, flips, known=known)
        steps += other.steps
        for mode in MODES:
            if mode not in found and not _same(base.outcomes[mode], other.outcomes[mode]):
                found[mode] = f"it depends on `{text}` at {where}, which the source does not tell"
        new = {key: value for key, value in other.undecided.items() if key not in seen}
        seen.update(new)
        base.decided.update(other.decided & set(new))
        pending.extend((flips | {key}, key, value) for key, value in new.items())
    return found


def _same(one: Outcome, other: Outcome) -> bool:
    return (one.layers, one.error, one.unknown) == (other.layers, other.error, other.unknown)


def _result(
    mode: str,
    outcome: Outcome,
    doubt: str | None,
    width: int | None,
    version: str,
    draft_config: Mapping[str, object],
) -> ModeResult:
    if outcome.unknown is not None or doubt is not None:
        reason = outcome.unknown or doubt or ""
        return ModeResult(None, None, reason, outcome.call_site, f"{mode}: not known: {reason}")
    by = f", set by {outcome.call_site}" if outcome.call_site else ", no call of the hook"
    if outcome.error is not None:
        return ModeResult(
            None,
            outcome.error,
            None,
            outcome.call_site,
            f"{mode}: dies with {outcome.error} at {outcome.where}{by}",
        )
    layers = outcome.layers or ()
    told = ", ".join(layers) or "nothing"
    result = ModeResult(layers, None, None, outcome.call_site, f"{mode}: {told} reaches the draft{by}")
    if outcome.nothing:
        return replace(result, explain=f"{mode}: nothing is captured ({outcome.where}){by}")
    if width is None or len(layers) in (0, width):
        return result
    if len(layers) == 1:
        # One state is as wide as the draft's own hidden state, so that its fc is skipped (llama_eagle3.py).
        return replace(result, explain=f"{result.explain}; one state only, the draft skips its fc")
    shapes = f"{len(layers)} states ({told}) reach fc, which takes {width}"
    error = f"RuntimeError: mat1 and mat2 shapes cannot be multiplied: {shapes}"
    return replace(result, error=error, explain=f"{mode}: {error}{_never(draft_config, version)}{by}")


def _never(draft_config: Mapping[str, object], version: str) -> str:
    ids = _configured_ids(draft_config)
    negative = [item for item in ids or () if isinstance(item, int) and item < 0]
    return f"; SGLang {version} captures nothing for id {negative[0]}" if negative else ""


def _configured_ids(draft_config: Mapping[str, object]) -> Sequence[object] | None:
    eagle = draft_config.get("eagle_config")
    ids = eagle.get(_IDS) if isinstance(eagle, Mapping) else None
    return ids if isinstance(ids, list | tuple) else None


def _fc_inputs(sources: Mapping[str, str], draft_config: Mapping[str, object]) -> int | None:
    """States that the draft's `fc` takes: three, or since 0.5.12 what the config says (llama_eagle3.py)."""
    text = sources.get(DRAFT_FILE)
    if text is None:
        return None
    if "num_aux_hidden_states" not in text:
        return 3
    told = draft_config.get("num_aux_hidden_states")
    if isinstance(told, int):
        return told
    return len(_configured_ids(draft_config) or ()) or 3


@dataclass(frozen=True)
class Behaviour:
    """Whether hook and forward deliver the contract in eager mode for the given ids."""

    verdict: Verdict
    layers: tuple[str, ...] | None
    text: str


def behaviour(
    sources: Mapping[str, str],
    *,
    version: str,
    architecture: str,
    num_layers: int,
    first_k_dense_replace: int,
    contract: Sequence[str],
    ids: Sequence[int],
) -> Behaviour:
    """Does the installed source, given the contract's `ids`, deliver the contract in eager mode?"""
    config = {"eagle_config": {_IDS: list(ids), "use_aux_hidden_state": True}}
    result = compute(
        sources,
        version=version,
        architecture=architecture,
        num_layers=num_layers,
        first_k_dense_replace=first_k_dense_replace,
        draft_config=config,
    ).eager
    return Behaviour(compare(result, contract), result.layers, f"ids {list(ids)}: {result.explain}")


def native_ids(
    sources: Mapping[str, str],
    version: str,
    architecture: str,
    num_layers: int,
    contract: Sequence[str],
    first_k_dense_replace: int = 1,
) -> list[int] | None:
    """The draft's ids with which this source delivers the contract in eager and graph mode, None without any.

    Candidates follow the id conventions that SGLang has had: the layer itself or the one before it, the
    embedding as 0 or -1.
    """
    for ids in _candidates(contract):
        wiring = compute(
            sources,
            version=version,
            architecture=architecture,
            num_layers=num_layers,
            first_k_dense_replace=first_k_dense_replace,
            draft_config={"eagle_config": {_IDS: ids, "use_aux_hidden_state": True}},
        )
        if compare(wiring.eager, contract) == compare(wiring.graph, contract) == "match":
            return ids
    return None


def _candidates(contract: Sequence[str]) -> list[list[int]]:
    found: list[list[int]] = []
    for shift in (0, 1):
        for embedding in (0, -1):
            ids = [embedding if name == "embed" else int(name.partition(":")[2]) - shift for name in contract]
            if ids not in found:
                found.append(ids)
    return found
