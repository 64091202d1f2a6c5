"""Is the draft one that this server can use: its files, architecture, layers, vocabulary, fc width?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..intent import argument
from ..picture import Picture
from ..sglang import draft
from ..sglang.modelconfig import language
from ..sglang.modelpath import same_path
from .config import no_draft_path
from .wired import unread


def fits(picture: Picture) -> Check:
    """What would fail at start, or be served and accept nothing, is found from config and headers alone."""
    id, node = "config.draft", picture.node
    algorithm = argument(node.server, "speculative_algorithm")
    expected = "a draft that fits the target and its layer ids"
    if algorithm is None:
        return skipped(id, expected, "the server speculates not at all")
    path, config = node.server.draft_model_path, picture.config
    fix_it = f"check draft_model_path of server '{node.server_name}' in the inventory"
    if path is None or config is None:
        why = "the server has no draft_model_path"
        return failed(id, expected, why, no_draft_path(node), remedy=fix_it)
    if same_path(path, node.server.model_path):
        why = "the target itself is given as the draft"
        return failed(id, expected, why, Evidence("inventory", path), remedy=fix_it)
    weights = picture.section("weights")
    if not weights["exists"]:
        return failed(id, expected, f"{path}: {weights['problem']}", Evidence(path, "absent"), remedy=fix_it)
    values = picture.draft
    if values is None:
        why = f"{config.path} is no JSON object"
        return unknown(id, expected, why, *unread(picture), remedy=f"inv diagnose --node {node.name}")
    shapes: Mapping[str, Sequence[int]] | None = weights["shapes"]
    found = [
        f"{problem.code}: {problem.text}"
        for problem in draft.problems(
            values,
            algorithm=str(algorithm),
            header=shapes,
            files=weights["files"],
            shards=weights["shards"],
        )
    ]
    width = fc_width(picture, values, shapes)
    if width.problem:
        found.append(width.problem)
    evidence = [Evidence(f"{path}/config.json", f"architectures {values.get('architectures')}")]
    if width.text:
        evidence.append(Evidence(f"{path}/*.safetensors", width.text))
    if found:
        return failed(
            id, expected, found[0], *(Evidence(path, each) for each in found), *evidence, remedy=fix_it
        )
    if shapes is None:
        why = weights["problem"] or "no safetensors file: the shapes cannot be read"
        return unknown(id, expected, why, *evidence, remedy=f"inv diagnose --node {node.name}")
    if "fc.weight" in shapes and not width.text:
        why = "the target's hidden size is not known, which the width of fc depends on"
        return unknown(id, expected, why, *evidence, remedy=f"inv diagnose --node {node.name}")
    return passed(id, expected, width.text or f"{len(shapes)} tensors", *evidence)


@dataclass(frozen=True)
class Width:
    """What the `fc` of an EAGLE-3 draft takes, held against the layer ids: text, and what is wrong."""

    text: str = ""
    problem: str = ""


def fc_width(
    picture: Picture, values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]] | None
) -> Width:
    """`fc.weight` is [hidden, n x target hidden]: n must be the number of layer ids (llama_eagle3.py)."""
    shape = (shapes or {}).get("fc.weight")
    target = _hidden_size(picture.model_config)
    if shape is None or len(shape) != 2 or not target:
        return Width()
    states, rest = divmod(shape[1], target)
    text = f"fc takes {shape[1]} = {states} x {target}"
    if rest:
        return Width(
            text, f"draft-shape: fc takes {shape[1]}, no multiple of the target's hidden size {target}"
        )
    eagle = values.get("eagle_config")
    ids = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None
    if isinstance(ids, list) and len(ids) != states:
        return Width(text, f"draft-shape: {len(ids)} layer ids, and fc takes {states} states")
    return Width(text)


def _hidden_size(model_config: Mapping[str, Any] | None) -> int | None:
    size = language(model_config).get("hidden_size")
    return size if isinstance(size, int) else None
