"""Is the embedding that is captured whole on every rank?"""

from __future__ import annotations

import ast

from ..checks import Evidence
from ..picture import Picture
from ..proofs.server_args import arguments
from .base import Cause, Hypothesis, algorithm_of, command, in_inventory

_SCATTER = "enable_attn_tp_input_scattered"
# Where AttnTpContext is: layers/communicator.py to 0.5.20, then layer_boundary.
FILES = (
    "sglang/srt/layers/layer_boundary/adapters/attention.py",
    "sglang/srt/layers/communicator.py",
)


def sharded(cause: Cause, picture: Picture) -> Hypothesis:
    """VocabParallelEmbedding all-reduces its output unless attention-TP input scatter is in use, which SGLang
    does not allow with EAGLE3 (AttnTpContext.init_context, 0.5.5.post3 to 0.5.23)."""
    found = arguments(picture)
    flag = found.get(_SCATTER)
    seen = Evidence(found.source, f"{_SCATTER} = {flag!r}")
    if flag is False:
        return cause.refuted("input scatter is off: the embedding is all-reduced", seen)
    if found.get("tp_size") == 1:
        return cause.refuted("there is one rank, and so one shard", Evidence(found.source, "tp_size = 1"))
    where = _excluded_at(picture)
    if where is not None and algorithm_of(found.values) == "EAGLE3":
        text = 'speculative_algorithm != "EAGLE3" is a condition of input scatter'
        return cause.refuted("SGLang does not use input scatter with EAGLE3", Evidence(where, text), seen)
    known = [path for path in FILES if picture.sources.get(path) is not None]
    if known and not any(b"input_scattered" in (picture.sources[path] or b"") for path in known):
        return cause.refuted("this SGLang has no input scatter", Evidence(known[0], "no input_scattered"))
    if flag is True:
        fix = in_inventory(picture, "take enable-attn-tp-input-scattered out of args")
        return cause.holds(
            "input scatter is on: the embedding is not all-reduced in prefill", seen, remedy=fix
        )
    return cause.unknown(
        "it is not known whether input scatter is on", seen, remedy=command(picture, "logs", "--args")
    )


def _excluded_at(picture: Picture) -> str | None:
    """`path:line` of the condition that keeps input scatter from EAGLE3, in the installed source."""
    for path in FILES:
        try:
            tree = ast.parse(picture.sources.get(path) or b"")
        except (SyntaxError, ValueError):
            continue
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name == "init_context":
                for node in ast.walk(function):
                    line = _excluded_by(node)
                    if line is not None:
                        return f"{path}:{line}"
    return None


def _excluded_by(node: ast.AST) -> int | None:
    """The line of `speculative_algorithm != "EAGLE3"` as a conjunct: it alone decides."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            if (
                isinstance(part, ast.Compare)
                and isinstance(part.ops[0], ast.NotEq)
                and isinstance(part.left, ast.Attribute)
                and part.left.attr == "speculative_algorithm"
                and isinstance(part.comparators[0], ast.Constant)
                and part.comparators[0].value == "EAGLE3"
            ):
                return part.lineno
    return None
