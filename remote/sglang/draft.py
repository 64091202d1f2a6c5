"""An EAGLE-3 draft looked at before it is loaded: what SGLang says late, badly, or never.

A missing `lm_head` leaves the draft's head at random values without a word (sglang PR 27908); a wrong
vocabulary is a bare AssertionError; an LFS pointer in place of weights is found after CUDA is up. Reads
the header of a safetensors file, never weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# A Git LFS pointer has about 130 bytes.
SMALLEST_WEIGHTS_BYTES = 1_000
_WEIGHTS = (".safetensors", ".bin", ".pt")
_HEADS = ("lm_head.weight", "model.lm_head.weight")


@dataclass(frozen=True)
class Problem:
    """`code` as of a failure: what the server would fail with, or "draft-head" where it would serve and
    accept nothing. `text`: for people."""

    code: str
    text: str


def _files(files: Mapping[str, int], shards: Sequence[str]) -> Iterator[Problem]:
    """`files`: size in bytes by name. `shards`: the names in the index, if there is one."""
    weights = {name: size for name, size in files.items() if name.endswith(_WEIGHTS)}
    missing = [name for name in shards if name not in files]
    if missing:
        yield Problem("weights-missing", f"the index names {len(missing)} absent files, {missing[0]} first")
    elif not weights:
        yield Problem("weights-missing", "the directory has no weights")
    for name, size in weights.items():
        if size < SMALLEST_WEIGHTS_BYTES:
            yield Problem("weights-missing", f"{name} has {size} bytes: a Git LFS pointer, not weights")


def loaded(files: Iterable[str], shards: Sequence[str]) -> list[str]:
    """The weight files that a server loads: those of the index, else all of the first kind that is there
    (`_prepare_weights` of model_loader/loader.py, 0.5.5 to 0.5.23)."""
    kinds = ([name for name in files if name.endswith(kind)] for kind in _WEIGHTS)
    return list(shards) or next(filter(None, kinds), [])


def _layers(config: Mapping[str, object], names: Sequence[str]) -> Iterator[Problem]:
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers == 1:
        return
    blocks = {name.split(".")[1] for name in names if name.startswith(("midlayer.", "layers."))}
    numbered = {block for block in blocks if block.isdigit()}
    if len(numbered) != layers:
        yield Problem(
            "draft-layers",
            f"num_hidden_layers is {layers}: that is the target's; an EAGLE-3 draft has 1 layer",
        )


def _vocabulary(config: Mapping[str, object], header: Mapping[str, Sequence[int]]) -> Iterator[Problem]:
    size = config.get("draft_vocab_size") or config.get("vocab_size")
    tied = config.get("tie_word_embeddings", False)
    head = next((header[name] for name in _HEADS if name in header), None)
    if head is None and not tied and config.get("draft_vocab_size") is not None:
        yield Problem(
            "draft-head", "there is no lm_head in the weights, and it would be left at random values"
        )
    rows = {"lm_head.weight": head[0] if head else None}
    rows["d2t"] = next((shape[0] for name, shape in header.items() if name.rsplit(".", 1)[-1] == "d2t"), None)
    for name, count in rows.items():
        if count is not None and isinstance(size, int) and count != size:
            yield Problem("draft-vocab", f"{name} has {count} rows and the config says {size}")


def architecture_problem(config: Mapping[str, object]) -> str | None:
    """Why a draft's class is none of EAGLE-3; None if it may be one.

    SGLang's have it in their names: LlamaForCausalLMEagle3, Eagle3DeepseekV2ForCausalLM, and
    MistralLarge3ForCausalLMEagle (models/*eagle*.py of 0.5.5 to 0.5.23). Any other class loads none of the
    draft's weights, or does not take the target's states.
    """
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return "its config.json names no architecture"
    if not any("eagle" in str(name).lower() for name in names):
        return f"its architecture is {names[0]}, which is no EAGLE-3 draft"
    return None


def problems(
    config: Mapping[str, object],
    *,
    algorithm: str | None = None,
    header: Mapping[str, Sequence[int]] | None = None,
    files: Mapping[str, int] | None = None,
    shards: Sequence[str] = (),
) -> list[Problem]:
    """What is wrong with a draft. `config`: its config.json. `algorithm`: the requested one. `header`:
    shape by tensor name, of all its safetensors files; None where unknown, then nothing is said about it.
    `files`: bytes by name of its directory; `shards`: the files that its index names."""
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    found: list[Problem] = []
    if algorithm == "EAGLE" and any("eagle3" in str(name).lower() for name in names):
        found.append(Problem("draft-arch", f"{names[0]} is an EAGLE-3 draft: the algorithm must be EAGLE3"))
    stranger = architecture_problem(config) if algorithm == "EAGLE3" else None
    if stranger is not None:
        found.append(Problem("draft-arch", stranger))
    found += _layers(config, list(header or ()))
    found += _vocabulary(config, header) if header is not None else ()
    found += _files(files, shards) if files is not None else ()
    return found
