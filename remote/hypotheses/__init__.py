"""Every known cause of "applied but not effective", each with its answer. One file per group.

The order is that of reasoning, and the first one that holds is the answer:

1. Is it our server and our SGLang that is looked at, and is the acceptance real? Else all else is idle.
2. Would it work if it were started now: draft, source, wiring? A restart does not help where it would not.
3. Is what runs what would be started: bytecode, process, arguments?
4. Does it run at all?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..picture import Picture, Unreadable
from . import checkpoint, scatter, speculation, what_runs, wired
from .base import Cause, Hypothesis, command

__all__ = ["HYPOTHESES", "Cause", "Hypothesis", "first_cause", "weigh"]

Weigh = Callable[[Cause, Picture], Hypothesis]

HYPOTHESES: dict[Cause, Weigh] = {
    # Is it real?
    Cause("wrong-server", "another server answers on the port"): what_runs.wrong_server,
    Cause(
        "two-installs", "the server runs another SGLang than the one that was patched"
    ): what_runs.two_installs,
    Cause(
        "simulated-acceptance", "the acceptance is not measured but drawn (SGLANG_SIMULATE_ACC_LEN)"
    ): speculation.simulated,
    # Would it work?
    Cause("draft-path", "the draft is missing, or the server reads another one"): speculation.draft_path,
    Cause("draft-is-target", "the draft is the target itself"): speculation.draft_is_target,
    Cause("draft-weights", "the draft's weights are not all there"): checkpoint.weights,
    Cause("draft-architecture", "the draft is no EAGLE-3 draft"): checkpoint.architecture,
    Cause("draft-layers", "the draft's layer count is not that of its checkpoint"): checkpoint.layers,
    Cause(
        "draft-vocabulary", "the draft's lm_head or d2t does not match its vocabulary"
    ): checkpoint.vocabulary,
    Cause("wrapper-class", "the target's class lacks methods that EAGLE-3 needs"): wired.wrapper,
    Cause("missing-residual", "a captured state lacks its residual, or is normalised"): wired.residual,
    Cause("fix-incomplete", "the imported source does not capture what the fix promises"): wired.source,
    Cause("layer-ids", "the draft's layer ids do not mean the trained layers in this version"): wired.ids,
    Cause(
        "draft-fc-width", "the draft's fc takes another number of states than there are layer ids"
    ): checkpoint.width,
    Cause(
        "graph-capture", "the CUDA graphs that decode replays were captured with other layers"
    ): wired.graph,
    Cause("two-batch-overlap", "two-batch overlap is on, and captures other layers"): wired.overlap,
    Cause(
        "tp-sharded-embedding", "each rank captures only its shard of the embedding (input scatter)"
    ): scatter.sharded,
    # Is it what runs?
    Cause(
        "stale-bytecode", "Python runs bytecode that is not from the patched source"
    ): what_runs.stale_bytecode,
    Cause("stale-process", "the server was started before the fix was put in place"): what_runs.stale_process,
    Cause("speculation-off", "the server does not speculate at all"): speculation.off,
    Cause(
        "algorithm-alias", "the algorithm is another one than EAGLE3, under an alias or by mistake"
    ): speculation.alias,
    Cause(
        "draft-tokens-adjusted", "the server changed the speculative numbers that were asked for"
    ): speculation.adjusted,
    # Does it run?
    Cause("not-serving", "the server does not run, or does not generate"): what_runs.not_serving,
}


def weigh(picture: Picture) -> list[Hypothesis]:
    """One answer per hypothesis, in the order of reasoning. What the node could not tell is `unknown`."""
    return [_one(cause, picture) for cause in HYPOTHESES]


def _one(cause: Cause, picture: Picture) -> Hypothesis:
    try:
        return HYPOTHESES[cause](cause, picture)
    except Unreadable as reason:
        return cause.unknown(str(reason), remedy=command(picture, "verify"))


def first_cause(found: Sequence[Hypothesis]) -> Hypothesis | None:
    """The first that holds, None where none does."""
    return next((each for each in found if each.verdict == "holds"), None)
