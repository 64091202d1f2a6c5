"""From command line to effective server arguments, as ServerArgs.__post_init__ makes them on GPUs of 96 GB.

Sources: server_args.py 0.5.5 to 0.5.12, methods _handle_missing_default_values, _handle_gpu_memory_settings
and _handle_speculative_decoding. Texts and line numbers of warnings are read from the installed file.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .dialect import version_tuple
from .models import Model
from .tracebacks import MAIN_FRAMES, SimulatedError

_MTP = (
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Glm4MoeForCausalLM",
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
)
_SPECULATIVE = ("EAGLE", "EAGLE3", "STANDALONE")
_METHOD = ("sglang/srt/server_args.py", "_handle_speculative_decoding")
_FRAMES = (
    *MAIN_FRAMES,
    ("sglang/srt/server_args.py", "__post_init__", "self._handle_speculative_decoding()"),
)
Warn = Callable[..., None]  # beginnings of the warning's text, as the versions have it


@dataclass(frozen=True)
class Warned:
    """A warning before the logger is configured; `where` as "server_args.py:2364"."""

    message: str
    where: str


@dataclass(frozen=True)
class Effective:
    """Field name -> value in the order of the dataclass, and what was warned on the way."""

    values: dict[str, Any]
    warnings: tuple[Warned, ...]


def warnings_in(source: str) -> list[tuple[str, int]]:
    """Text and line of every logger call in server_args.py; formatted parts are `{}`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if ast.unparse(node.func.value) != "logger":
            continue
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            found.append((first.value, node.lineno))
        elif isinstance(first, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in first.values]
            found.append(("".join(parts), node.lineno))
    return found


def _graph_sizes(limit: int, speculative: bool, no_padding: bool) -> list[int]:
    """_generate_cuda_graph_batch_sizes."""
    if no_padding:
        return list(range(1, limit + 1))
    if speculative:
        sizes = [
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, limit + 1, 16),
        ]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, limit + 1, 32)]
    return [size for size in sizes if size <= limit]


def _piecewise_tokens(limit: int) -> list[int]:
    """_generate_piecewise_cuda_graph_tokens."""
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
    ]
    return [size for size in [*sizes, *range(4608, limit + 1, 512)] if size <= limit]


def _vision_factor(config: Mapping[str, Any]) -> float:
    """adjust_mem_fraction_for_vlm: what is left of mem_fraction_static beside the vision tower."""
    vision = config.get("vision_config")
    if not vision:
        return 1.0
    layers, hidden = vision.get("num_hidden_layers", 24), vision.get("hidden_size", 1024)
    ratio = layers * hidden**2 / (24 * 1024**2)
    return float(0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0))))


def _fill(values: dict[str, Any], target: Model, gpu_mem_mib: int) -> None:
    def default(name: str, value: Any) -> None:
        if name in values and values[name] is None:
            values[name] = value

    default("tokenizer_path", values["model_path"])
    default("served_model_name", values["model_path"])
    default("device", "cuda")
    default("random_seed", random.randint(0, 1 << 30))
    default("mm_process_config", {})
    default("chunked_prefill_size", 8192)
    default("cuda_graph_max_bs", 512 if values["tp_size"] >= 4 else 256)
    speculative = values["speculative_algorithm"] is not None
    if values["cuda_graph_bs"] is None:
        no_padding = bool(values.get("disable_cuda_graph_padding"))
        values["cuda_graph_bs"] = _graph_sizes(values["cuda_graph_max_bs"], speculative, no_padding)
    else:
        values["cuda_graph_max_bs"] = max(values["cuda_graph_bs"])
    default("piecewise_cuda_graph_max_tokens", 2048)
    if "piecewise_cuda_graph_tokens" in values:
        default("piecewise_cuda_graph_tokens", _piecewise_tokens(values["piecewise_cuda_graph_max_tokens"]))
    if values["mem_fraction_static"] is None:
        reserved = 512 + max(values["chunked_prefill_size"], 2048) * 1.5 + values["cuda_graph_max_bs"] * 2
        reserved = max(reserved + values["tp_size"] * values["pp_size"] / 8 * 1024, 10 * 1024)
        reserved += 2048 if speculative else 0
        fraction = round((gpu_mem_mib - reserved) / gpu_mem_mib, 3)
        values["mem_fraction_static"] = fraction * _vision_factor(target.config)
    default("attention_backend", "triton")
    default("sampling_backend", "flashinfer")
    default("grammar_backend", "xgrammar")
    default("page_size", 1)
    default("custom_weight_loader", [])
    default("expert_distribution_recorder_buffer_size", values.get("eplb_rebalance_num_iterations"))
    if values.get("mamba_scheduler_strategy") == "auto":
        values["mamba_scheduler_strategy"] = "no_buffer"
    if values.get("load_balance_method") == "auto":
        values["load_balance_method"] = "round_robin"


def _speculative(
    values: dict[str, Any], target: Model, version: str, spec_v2: bool | None, warn: Warn
) -> None:
    """_handle_speculative_decoding, for the algorithms with a draft model."""
    if values["speculative_draft_model_path"] is not None and "speculative_draft_model_revision" in values:
        values["speculative_draft_model_revision"] = values["speculative_draft_model_revision"] or "main"
    if values.get("speculative_moe_runner_backend", "") is None:
        values["speculative_moe_runner_backend"] = values["moe_runner_backend"]
    if values["speculative_algorithm"] == "NEXTN":
        values["speculative_algorithm"] = "EAGLE"
    if values["speculative_algorithm"] not in _SPECULATIVE:
        return
    if values["max_running_requests"] is None:
        values["max_running_requests"] = 48
        warn("Max running requests is reset to 48")
    _overlap(values, version_tuple(version)[:3] >= (0, 5, 11), spec_v2, warn)
    if target.architecture in _MTP:
        if values["speculative_draft_model_path"] is None:
            values["speculative_draft_model_path"] = values["model_path"]
        else:
            warn("DeepSeek MTP does not require")
    _draft_tokens(values, target, warn)


def _overlap(values: dict[str, Any], newer: bool, spec_v2: bool | None, warn: Warn) -> None:
    """Spec v2 is on by default from 0.5.11 (environ.py); there a tree or no overlap turns it off."""
    on = newer if spec_v2 is None else spec_v2
    if newer:
        on = on and (values["speculative_eagle_topk"] or 0) <= 1 and not values["disable_overlap_schedule"]
    values["disable_overlap_schedule"] = not on
    if on:
        warn("Spec v2 is enabled by default", "Spec v2 is enabled for eagle/", "Beta spec is enabled")
        return
    old = ("Overlap scheduler is disabled when spec v2", "Overlap scheduler is disabled because of")
    warn("Spec v1 is used", *old)


def _draft_tokens(values: dict[str, Any], target: Model, warn: Warn) -> None:
    """Steps, tree width and draft tokens. Raises SimulatedError for what ends the real launcher."""
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if values["speculative_num_steps"] is None:
        if any(values[name] is not None for name in names):
            raise SimulatedError(
                [*_FRAMES, (*_METHOD, "self.speculative_eagle_topk is None")], "AssertionError"
            )
        chosen = (5, 4, 8) if target.architecture in ("LlamaForCausalLM", "Grok1ForCausalLM") else (3, 1, 4)
        values.update(zip(names, chosen, strict=True))
    steps, topk, tokens = (values[name] for name in names)
    if topk == 1 and tokens != steps + 1:
        warn("speculative_num_draft_tokens is adjusted")
        values["speculative_num_draft_tokens"] = steps + 1
    if topk is None:
        last = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"
        raise SimulatedError([*_FRAMES, (*_METHOD, "self.speculative_eagle_topk > 1")], last)


def normalise(
    values: dict[str, Any],
    target: Model,
    *,
    version: str,
    source: str,
    gpu_mem_mib: int,
    spec_v2: bool | None = None,
) -> Effective:
    """The effective arguments.

    `source` is the text of the installed server_args.py; `spec_v2` SGLANG_ENABLE_SPEC_V2.

    Raises SimulatedError where the real one would.
    """
    values = dict(values)
    known = warnings_in(source)
    said: list[Warned] = []

    def warn(*beginnings: str) -> None:
        for text, line in known:
            if text.startswith(beginnings):
                said.append(
                    Warned(text.replace("%s", "overlap schedule is disabled"), f"server_args.py:{line}")
                )
                return

    _fill(values, target, gpu_mem_mib)
    _speculative(values, target, version, spec_v2, warn)
    return Effective(values, tuple(said))


def record(values: Mapping[str, Any]) -> str:
    """The repr of the dataclass, as in the line `server_args=ServerArgs(...)`."""
    return "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in values.items()) + ")"
