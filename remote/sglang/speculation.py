"""What SGLang makes of the speculative arguments, predicted before anything is started.

Sources: server_args.py, `_handle_speculative_decoding`, of 0.5.3 to 0.5.12; arg_groups/speculative_hook.py
of 0.5.15 to 0.5.23; runs of 0.5.9 and 0.5.23. The case that this exists for: with topk 1 the number of
draft tokens is set to steps + 1, whatever was asked for, with one line in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import versions
from .adjustments import Adjusted, canonical, same

_EAGLE_FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
_STEPS, _TOPK, _DRAFT = "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"
_PATH = "speculative_draft_model_path"
# Unset together, they are chosen by the architecture of the target; (3, 1, 4) for most.
_CHOSEN = {"LlamaForCausalLM": (5, 4, 8), "Grok1ForCausalLM": (5, 4, 8), "Grok1VForCausalLM": (5, 4, 8)}
_CHOSEN_3_1_4_BEFORE_0_5_6 = (
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV2ForCausalLM",
    "GptOssForCausalLM",
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
)


@dataclass(frozen=True)
class Request:
    """The speculative arguments as asked for. None: not given."""

    version: str
    algorithm: str | None
    steps: int | None
    topk: int | None
    draft_tokens: int | None
    args: Mapping[str, object]
    env: Mapping[str, str]
    architecture: str | None = None

    def since(self, version: str) -> bool:
        return versions.at_least(self.version, version)


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else None


def _request(
    version: str, args: Mapping[str, object], env: Mapping[str, str], architecture: str | None
) -> Request:
    plain = {canonical(name): value for name, value in args.items()}
    algorithm = plain.get("speculative_algorithm")
    name = str(algorithm) if algorithm is not None else None
    if name is not None and versions.at_least(version, "0.5.12"):
        name = name.upper()
    return Request(
        version,
        "EAGLE" if name == "NEXTN" else name,
        _whole(plain.get(_STEPS)),
        _whole(plain.get(_TOPK)),
        _whole(plain.get(_DRAFT)),
        plain,
        env,
        architecture,
    )


def chosen(version: str, architecture: str | None) -> tuple[int, int, int]:
    """(steps, topk, draft tokens) that SGLang chooses when none of them is given."""
    if architecture in _CHOSEN:
        return _CHOSEN[architecture]
    if not versions.at_least(version, "0.5.6") and architecture not in _CHOSEN_3_1_4_BEFORE_0_5_6:
        return 5, 4, 8
    return 3, 1, 4


def _fatal(name: str, requested: object, why: str) -> Adjusted:
    return Adjusted(name, requested, None, f"the server exits: {why}", fatal=True)


def _algorithm(request: Request) -> Iterator[Adjusted]:
    """Names that the version does not know."""
    name = request.algorithm
    known = {*_EAGLE_FAMILY, "NGRAM"}
    if request.since("0.5.11"):
        known.add("DFLASH")
    if request.since("0.5.12"):
        known.add("FROZEN_KV_MTP")
    if request.since("0.5.20"):
        known |= {"DSPARK", "UNO"}
    if name is not None and name not in known:
        asked = request.args.get("speculative_algorithm")
        yield _fatal(
            "speculative_algorithm", asked, f"this version knows {', '.join(sorted(known))} and NEXTN"
        )


def _whole_numbers(request: Request) -> Iterator[Adjusted]:
    for name in (_STEPS, _TOPK, _DRAFT):
        value = request.args.get(name)
        if value is not None and _whole(value) is None:
            yield _fatal(name, value, "it must be a whole number")


def _numbers(request: Request) -> Iterator[Adjusted]:
    """The three numbers of the EAGLE family against each other."""
    steps, topk, draft = request.steps, request.topk, request.draft_tokens
    if steps is None:
        for name, value in ((_TOPK, topk), (_DRAFT, draft)):
            if value is not None:
                yield _fatal(
                    name, value, "without --speculative-num-steps neither of the others may be given"
                )
        if topk is None and draft is None and request.architecture and request.algorithm != "STANDALONE":
            steps, topk, draft = chosen(request.version, request.architecture)
            yield from _tree(request, steps, topk, draft) if topk > 1 else ()
        return
    if topk is None:
        yield _fatal(_TOPK, None, "with --speculative-num-steps, --speculative-eagle-topk is needed too")
    elif topk == 1:
        if draft is not None and draft != steps + 1:
            yield Adjusted(_DRAFT, draft, steps + 1, "with topk 1 it is always num_steps + 1")
    elif draft is None:
        yield _fatal(_DRAFT, None, "with topk above 1, --speculative-num-draft-tokens is needed too")
    else:
        yield from _tree(request, steps, topk, draft)


def _tree(request: Request, steps: int, topk: int, draft: int) -> Iterator[Adjusted]:
    """Limits of a tree, that is of topk above 1."""
    # speculative/eagle_utils.py, organize_draft_results: the best draft - 1 of this many candidates.
    candidates = topk + max(steps - 1, 0) * topk * topk
    if draft - 1 > candidates:
        yield _fatal(_DRAFT, draft, f"topk {topk} and {steps} steps offer only {candidates} draft tokens")
    backends = {str(request.args.get(name)) for name in _BACKENDS if request.args.get(name) is not None}
    if "trtllm_mha" in backends:
        yield _fatal(_TOPK, topk, "the trtllm_mha attention backend only supports topk 1")
    v2 = request.env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in ("1", "true", "yes", "y", "on")
    if v2 and request.topk is not None and request.since("0.5.7") and not request.since("0.5.11"):
        yield _fatal(_TOPK, topk, "spec v2 (SGLANG_ENABLE_SPEC_V2) only supports topk 1")
    page, backend = _whole(request.args.get("page_size")), request.args.get("attention_backend")
    allowed = ["flashinfer"]
    allowed += ["fa3"] if request.since("0.5.6") else []
    allowed += ["triton"] if request.since("0.5.15") else []
    if page is not None and page > 1 and backend is not None and backend not in allowed:
        yield _fatal(_TOPK, topk, f"topk above 1 with page_size {page} only works on {', '.join(allowed)}")


_BACKENDS = ("attention_backend", "decode_attention_backend", "prefill_attention_backend")


def _paths(request: Request) -> Iterator[Adjusted]:
    """A draft of its own, where the algorithm needs one."""
    path, target = request.args.get(_PATH), request.args.get("model_path")
    if request.algorithm == "EAGLE3" and (path is None or same(_PATH, path, target)):
        yield _fatal(_PATH, path, "EAGLE3 needs a draft of its own; the target would be loaded as the draft")
    if request.algorithm in ("DFLASH", "STANDALONE") and path is None:
        yield _fatal(_PATH, None, f"{request.algorithm} needs --speculative-draft-model-path")
    if request.algorithm == "STANDALONE" and request.args.get("enable_dp_attention"):
        yield _fatal("enable_dp_attention", True, "STANDALONE does not support DP attention")
    if request.algorithm == "NGRAM" and request.args.get("enable_dp_attention"):
        yield _fatal("enable_dp_attention", True, "NGRAM does not support DP attention")


def _others(request: Request) -> Iterator[Adjusted]:
    """Algorithms that overwrite the numbers of the EAGLE family."""
    if request.algorithm == "DFLASH":
        for name, value in ((_STEPS, request.steps), (_TOPK, request.topk)):
            if value is not None and value != 1:
                yield Adjusted(name, value, 1, "DFLASH sets it to 1")
        block = _whole(request.args.get("speculative_dflash_block_size"))
        if block is not None and request.draft_tokens not in (None, block):
            yield _fatal(_DRAFT, request.draft_tokens, f"DFLASH wants it equal to the block size {block}")
    if request.algorithm == "NGRAM" and request.topk is not None:
        breadth = _whole(request.args.get("speculative_ngram_max_bfs_breadth")) or 10
        if request.topk != breadth:
            yield Adjusted(_TOPK, request.topk, breadth, "NGRAM sets it to speculative_ngram_max_bfs_breadth")


def normalise(
    version: str,
    args: Mapping[str, object],
    *,
    env: Mapping[str, str] | None = None,
    architecture: str | None = None,
    draft_architectures: Sequence[str] = (),
) -> list[Adjusted]:
    """The speculative arguments that SGLang `version` would change although they were given, and those on
    which it would exit (`fatal`), the latter also when one is missing. `args` by any spelling of their
    names. Empty if it runs as asked. NEXTN for EAGLE is another name, no change; numbers that were left
    to SGLang are no change either: see `effective`. `architecture`, `draft_architectures`: of the
    target's and the draft's config.json, where known. ValueError for what is no version."""
    request = _request(version, args, env or {}, architecture)
    if request.algorithm is None:
        return []
    found = [*_algorithm(request), *_paths(request), *_whole_numbers(request)]
    # Adaptive speculation (0.5.12 and newer) chooses the numbers by a configuration file.
    if request.algorithm in _EAGLE_FAMILY and not request.args.get("speculative_adaptive"):
        found += _numbers(request)
    found += _others(request)
    if request.algorithm == "EAGLE" and any("eagle3" in name.lower() for name in draft_architectures):
        # Nothing fails then, and nothing is accepted either (sglang PR 21272).
        asked = request.args.get("speculative_algorithm")
        found.append(
            Adjusted("speculative_algorithm", asked, asked, "an EAGLE-3 draft needs EAGLE3", fatal=True)
        )
    return found


def effective(
    version: str, args: Mapping[str, object], *, architecture: str | None = None
) -> dict[str, object]:
    """The values that `speculative_algorithm` and the three numbers will have; {} without speculation.
    Only meaningful where `normalise` finds nothing fatal. `architecture`: the target's."""
    request = _request(version, args, {}, architecture)
    if request.algorithm is None:
        return {}
    steps, topk, draft = request.steps, request.topk, request.draft_tokens
    if request.algorithm in _EAGLE_FAMILY:
        if steps is None:
            standalone = request.algorithm == "STANDALONE"
            steps, topk, draft = (3, 1, 4) if standalone else chosen(version, architecture)
        if topk == 1:
            draft = steps + 1
    for change in normalise(version, args):
        if not change.fatal and change.name in (_STEPS, _TOPK):
            steps, topk = (1, topk) if change.name == _STEPS else (steps, _whole(change.effective))
    return {"speculative_algorithm": request.algorithm, _STEPS: steps, _TOPK: topk, _DRAFT: draft}
