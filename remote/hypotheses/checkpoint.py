"""Can the draft's checkpoint work: from its config.json, its files and its safetensors headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import Evidence
from ..picture import Picture
from ..proofs.draft import fc_width
from ..proofs.server_args import arguments
from ..sglang import draft
from ..sglang.modelconfig import language
from .base import Cause, Hypothesis, algorithm_of, command, in_inventory


def _problems(picture: Picture, *codes: str) -> list[draft.Problem]:
    """What sglang.draft finds wrong, of these kinds. Unreadable where the files could not be looked at."""
    weights = picture.section("weights")
    found = draft.problems(
        picture.draft or {},
        algorithm=algorithm_of(arguments(picture).values),
        header=weights["shapes"],
        files=weights["files"] if weights["exists"] else None,
        shards=weights["shards"],
    )
    return [problem for problem in found if problem.code in codes]


def _config(picture: Picture, key: str) -> Evidence:
    path = picture.config.path if picture.config else "config.json"
    return Evidence(path, f"{key} = {(picture.draft or {}).get(key)!r}")


def _replace(picture: Picture) -> str:
    return in_inventory(picture, "set draft_model_path to a draft that fits")


def _unread(cause: Cause, picture: Picture) -> Hypothesis:
    return cause.unknown("the draft's config.json could not be read", remedy=command(picture, "verify"))


def weights(cause: Cause, picture: Picture) -> Hypothesis:
    found = picture.section("weights")
    where = Evidence(picture.node.server.draft_model_path or "", ", ".join(sorted(found["files"])) or "empty")
    if not found["exists"]:
        return cause.unknown(str(found["problem"]), where, remedy=_replace(picture))
    wrong = _problems(picture, "weights-missing")
    if wrong:
        return cause.holds(wrong[0].text, where, remedy=_replace(picture))
    if found["problem"]:
        return cause.holds(f"a file is damaged: {found['problem']}", where, remedy=_replace(picture))
    return cause.refuted(f"{len(found['files'])} files, none missing", where)


def architecture(cause: Cause, picture: Picture) -> Hypothesis:
    if picture.draft is None:
        return _unread(cause, picture)
    seen = _config(picture, "architectures")
    wrong = draft.architecture_problem(picture.draft)
    if wrong:
        return cause.holds(wrong, seen, remedy=_replace(picture))
    return cause.refuted(seen.text, seen)


def layers(cause: Cause, picture: Picture) -> Hypothesis:
    if picture.draft is None:
        return _unread(cause, picture)
    seen = _config(picture, "num_hidden_layers")
    wrong = _problems(picture, "draft-layers")
    if wrong:
        return cause.holds(wrong[0].text, seen, remedy=_replace(picture))
    if not isinstance(picture.draft.get("num_hidden_layers"), int):
        return cause.unknown("its config.json names no layer count", seen, remedy=command(picture, "verify"))
    return cause.refuted(seen.text, seen)


def width(cause: Cause, picture: Picture) -> Hypothesis:
    """`fc` takes as many target states as there are layer ids (models/llama_eagle3.py)."""
    if picture.draft is None:
        return _unread(cause, picture)
    found = fc_width(picture, picture.draft, picture.section("weights")["shapes"])
    where = f"{picture.node.server.draft_model_path}/*.safetensors"
    if found.problem:
        return cause.holds(
            found.problem, Evidence(where, found.text or found.problem), remedy=_replace(picture)
        )
    if not found.text:
        says = "no safetensors header tells the shape of fc.weight, or the target's hidden size is not known"
        return cause.unknown(says, remedy=command(picture, "verify"))
    return cause.refuted(found.text, Evidence(where, found.text))


def vocabulary(cause: Cause, picture: Picture) -> Hypothesis:
    """lm_head and d2t have draft_vocab_size rows; a smaller vocabulary needs d2t to name the target's tokens
    (models/llama_eagle3.py, load_weights: without it the draft's ids are taken for the target's)."""
    if picture.draft is None:
        return _unread(cause, picture)
    shapes: Mapping[str, Sequence[int]] | None = picture.section("weights")["shapes"]
    if shapes is None:
        return cause.unknown("no safetensors header could be read", remedy=command(picture, "verify"))
    where = f"{picture.node.server.draft_model_path}/*.safetensors"
    seen = [
        Evidence(where, f"{name} {list(shape)}")
        for name, shape in shapes.items()
        if name.rsplit(".", 1)[-1] == "d2t" or "lm_head" in name
    ]
    seen.append(_config(picture, "draft_vocab_size"))
    wrong = [problem.text for problem in _problems(picture, "draft-vocab", "draft-head")]
    wrong += _no_map(picture.draft, picture.model_config, shapes)
    if wrong:
        return cause.holds(wrong[0], *seen, remedy=_replace(picture))
    return cause.refuted(", ".join(each.text for each in seen), *seen)


def _no_map(
    values: Mapping[str, Any], model_config: Mapping[str, Any] | None, shapes: Mapping[str, Sequence[int]]
) -> list[str]:
    target = language(model_config)
    own, full = values.get("draft_vocab_size"), values.get("vocab_size") or target.get("vocab_size")
    mapped = any(name.rsplit(".", 1)[-1] == "d2t" for name in shapes)
    if isinstance(own, int) and isinstance(full, int) and own < full and not mapped:
        return [f"its vocabulary has {own} of {full} tokens, and no d2t says which"]
    return []
