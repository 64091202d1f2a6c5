"""What is taken as known about the server: the standard configuration that the wiring is computed for.

One pipeline stage, CUDA, EAGLE3 with a draft of its own, text requests, no context parallelism of the
prefill. An unknown that is in no rule here is tried both ways, and when that changes the wiring the answer is
`unknown`. The texts are those of the installed source's own expressions (SGLang 0.5.5 to 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

# Predicates: the first rule whose pattern is found in the text decides.
_TRUE = (
    r"\.is_(first|last)_rank$",
    r"\.is_(eagle3|eagle|speculative)\(\)$",
    r"\.is_generation$",
    r"\bcurrent_platform\.(support_cuda_graph\(\)|capabilities\.graph_capture)$",
    r"\bspeculative_draft_model_path$",
    r"\bkind is StageKind\.ATTENTION$",
    r"\bget_graph_runner_cls\(\) is None$",
    r"\bpp_stage_needs_embedding\(",
    r"\b_?is_cuda(\(\))?$",
)
_FALSE = (
    r"\bis_draft_worker$",
    r"\.is_(none|standalone|ngram|dflash\w*|dspark|uno|frozen\w*)\(\)$",
    r"\b(dsa|nsa|mla)_use_prefill_cp\(",
    r"\bis_(dsa|nsa|mla)_enable_prefill_cp\(",
    r"\b(dsa|nsa|mla)_enable_prefill_cp$",
    r"\b(use_cp_v1|enable_prefill_cp|is_prefill_context_parallel_enabled|enable_attn_tp_input_scattered)\b",
    r"\bforward_mode\.(is_idle|is_split_prefill|is_mixed)\(\)",
    r"\bcontains_mm_inputs\(\)$",
    r"\.(encoder_only|language_only)$",
    r"\bdisable_cuda_graph$",
    r"\bcheck_cuda_graph_backend\(Phase\.DECODE, Backend\.DISABLED\)$",
    r"\bmodel_impl\.lower\(\) == ",
    r"\bcurrent_platform\.is_out_of_tree\(\)$",
    r"\bis_ep_scale_joiner$",
    r"\b(attn_)?input_scattered$",
    r"\bdisaggregation_mode == ",
    r"\bis_(hip|npu|cpu|xpu|musa|hpu)\(\)$",
    r"\b_?use_aiter\w*\b",
    r"\b_is_(hip|npu|cpu|xpu|gfx95\w*|musa)\b",
    r"SGLANG_USE_AITER",
    r"\bsp_active$|\b_sp_variant is not None$|\bis_cp_v2_active\(",
)
_BY_MODE = {
    r"\bforward_mode\.(is_target_verify|is_cuda_graph)\(\)$": ("graph",),
    r"\bforward_mode\.(is_extend|is_prefill)\(": ("eager", "graph", "overlap"),
    r"\bforward_mode\.is_extend_without_speculative\(": ("eager", "overlap"),
    r"\bforward_mode\.(is_decode|is_decode_or_idle|is_draft_extend\w*)\(": (),
    r"\bcan_run_tbo$": ("overlap",),
}
# Values, by the end of the expression.
_VALUES: dict[str, object] = {
    r"\b(ModelRunner|server_args|get_device\(\))\.device$": "cuda",
    r"pp_group(\(\))?\.world_size$": 1,
    r"pp_group(\(\))?\.rank_in_group$": 0,
    r"\bentry\.input_move$": None,
    r"\bforward_batch\.(mm_inputs|input_embeds|aux_hidden_states_buffer|mm_input_embeds)$": None,
    r"\bconfig\.llama_4_scaling$": None,
}
NOT_KNOWN = object()


@lru_cache(maxsize=4096)
def fact(text: str, mode: str) -> bool | None:
    """Whether the predicate `text` holds in `mode` (`eager`, `graph`, `overlap`); None when not known."""
    if any(re.search(pattern, text) for pattern in _TRUE):
        return True
    if any(re.search(pattern, text) for pattern in _FALSE):
        return False
    for pattern, modes in _BY_MODE.items():
        if re.search(pattern, text):
            return mode in modes
    return None


def settings_of(server_args: Mapping[str, object] | None) -> dict[str, bool]:
    """Facts that the server's own arguments give. Without arguments there are none: both ways are tried."""
    backend = (server_args or {}).get("moe_a2a_backend")
    if not isinstance(backend, str):
        return {}
    kinds = ("none", "deepep", "mooncake", "mori", "nixl", "ascend_fuseep", "flashinfer", "deepep_v2")
    return {f"get_moe_a2a_backend().is_{kind}()": kind == backend for kind in kinds}


@lru_cache(maxsize=8192)
def value_of(path: str) -> object:
    """The value that the expression `path` is known to have, else NOT_KNOWN."""
    for pattern, value in _VALUES.items():
        if re.search(pattern, path):
            return value
    return NOT_KNOWN
