"""What EAGLE-3 needs of the models: hooks on the target's class, a draft that can be loaded; the real errors
if not.
"""

from __future__ import annotations

import os
import re

from .failures import GRAPH_FRAMES, LOAD_FRAMES
from .models import Model
from .rank import Server
from .registry import MODELS
from .tracebacks import SCHEDULER_FRAMES, Frame, SimulatedError

_RUNNER = "sglang/srt/model_executor/model_runner.py"
_WORKER = "sglang/srt/speculative/eagle_worker.py"
# Classes of the Transformers library that stand in for a DeepSeek model without an implementation.
_IN_TRANSFORMERS = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "LlamaForCausalLM")
_KNOWN_DRAFTS = re.compile(r"Eagle3?|NextN|MTP")


def fallback(target: Model) -> str:
    """The line with which a target without an implementation becomes TransformersForCausalLM.

    Raises SimulatedError where Transformers does not know it either (model_loader/utils.py:
    resolve_transformers_arch).
    """
    name = target.architecture
    frames = (
        *LOAD_FRAMES,
        ("sglang/srt/model_loader/utils.py", "resolve_transformers_arch", "raise ValueError("),
    )
    if name in _IN_TRANSFORMERS:
        return (
            f"{name} has no SGLang implementation, falling back to Transformers implementation. "
            "Some features may not be supported and performance may not be optimal."
        )
    if "AutoModel" in (target.config.get("auto_map") or {}):
        raise SimulatedError(
            frames,
            f"ValueError: {name} has no SGlang implementation and the Transformers implementation "
            "is not compatible with SGLang.",
        )
    raise SimulatedError(
        frames,
        f"ValueError: Cannot find model module. '{name}' is not a registered model in the Transformers "
        "library (only relevant if the model is meant to be in Transformers) and 'AutoModel' is not present "
        "in the model config's 'auto_map' (relevant if the model is custom).",
    )


def _missing(frames: tuple[Frame, ...], owner: str, name: str) -> SimulatedError:
    module = ("torch/nn/modules/module.py", "__getattr__", "raise AttributeError(")
    return SimulatedError((*frames, module), f"AttributeError: '{owner}' object has no attribute '{name}'")


def check_capture_hook(server: Server, owner: str, *, graphs: bool) -> None:
    """Raises SimulatedError if the target's class has no set_eagle3_layers_to_capture, where it is called
    first.
    """
    members = () if server.plan.fallback else server.plan.members
    if not server.eagle3 or members is None or "set_eagle3_layers_to_capture" in members:
        return
    runner = "sglang/srt/model_executor/cuda_graph_runner.py"
    if graphs and server.spoken.number < (0, 5, 11):
        call = "self.model_runner.model.set_eagle3_layers_to_capture()"
        frames: tuple[Frame, ...] = (*GRAPH_FRAMES, (runner, "__init__", call))
    else:
        frames = (*SCHEDULER_FRAMES, (_RUNNER, "initialize", "self.model.set_eagle3_layers_to_capture("))
    raise _missing(frames, owner, "set_eagle3_layers_to_capture")


def check_setting(server: Server, *, graphs: bool) -> None:
    """Raises SimulatedError where setting the layers fails, or capturing the graphs with them.

    `graphs`: just before the capture; else after it, where the model runner sets the draft's ids. An error
    that speaks of tensors is one of the forward pass: at the capture if it is the graphs', else see
    check_forward.
    """
    mode = server.plan.graph if graphs else server.plan.eager
    if not server.eagle3 or mode.error is None or mode.layers is not None:
        return
    in_forward = "tensor" in mode.error.lower()
    early = "cuda_graph_runner" in mode.site
    if graphs and (in_forward or early):
        model = (f"{MODELS}/deepseek_v2.py", "forward", "aux_hidden_states.append(hidden_states + residual)")
        raise SimulatedError((*GRAPH_FRAMES, model), mode.error)
    if not graphs and not in_forward:
        hook = (
            f"{MODELS}/deepseek_v2.py",
            "set_eagle3_layers_to_capture",
            "self.model.layers_to_capture = [val + 1",
        )
        frames = (
            *SCHEDULER_FRAMES,
            (_RUNNER, "initialize", "self.model.set_eagle3_layers_to_capture("),
            hook,
        )
        raise SimulatedError(frames, mode.error)


def no_draft(path: str) -> SimulatedError:
    """The draft's configuration cannot be read: noticed by the ranks, not by the launcher."""
    frames = (
        *SCHEDULER_FRAMES,
        ("sglang/srt/configs/model_config.py", "from_server_args", "return ModelConfig("),
        ("sglang/srt/configs/model_config.py", "__init__", "self.hf_config = get_config("),
    )
    return SimulatedError(frames, no_config(path))


def no_config(path: str) -> str:
    """Transformers' message about a directory without a readable config.json."""
    return (
        f"OSError: Can't load the configuration of '{path}'. If you were trying to load it from "
        "'https://huggingface.co/models', make sure you don't have a local directory with the same name. "
        f"Otherwise, make sure '{path}' is the correct path to a directory containing a config.json file"
    )


def check_draft(server: Server, draft: Model) -> None:
    """Raises SimulatedError if the draft worker could not make its model."""
    loading = ("sglang/srt/model_loader/loader.py", "_initialize_model", "return model_class(**kwargs)")
    if draft.architecture == "LlamaForCausalLMEagle3" and draft.num_layers != 1:
        raise SimulatedError((*LOAD_FRAMES, loading), "ValueError: EAGLE3 currently only supports 1 layer")
    if not _KNOWN_DRAFTS.search(draft.architecture) and draft.architecture != server.target.architecture:
        raise SimulatedError(
            LOAD_FRAMES,
            f"ValueError: Model architectures ['{draft.architecture}'] are not supported for now. "
            f"Supported architectures: dict_keys(['{server.target.architecture}', 'LlamaForCausalLMEagle3'])",
        )
    longest, wanted = draft.config.get("max_position_embeddings"), server.context_length
    if longest and wanted > longest and not os.environ.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"):
        raise SimulatedError(
            (
                *SCHEDULER_FRAMES,
                ("sglang/srt/configs/model_config.py", "_derive_context_length", "raise ValueError("),
            ),
            f"ValueError: Warning: Target model's context_length ({wanted}) is greater than the derived "
            f"context_length ({longest}). This may lead to incorrect model outputs or CUDA errors. Note that "
            "the derived context_length may differ from max_position_embeddings in the model's config. "
            "To allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
        )


def check_sharing(server: Server, owner: str, draft: Model) -> None:
    """Raises SimulatedError where target and draft cannot share embedding and head (EAGLEWorker.__init__)."""
    frames = (
        SCHEDULER_FRAMES[0],
        ("sglang/srt/managers/scheduler.py", "__init__", "self.init_model_worker()"),
    )
    members = () if server.plan.fallback else server.plan.members
    if members is not None and "get_embed_and_head" not in members:
        call = "embed, head = self.target_worker.model_runner.model.get_embed_and_head()"
        raise _missing((*frames, (_WORKER, "__init__", call)), owner, "get_embed_and_head")
    if server.eagle3 and "Eagle3" not in draft.architecture:
        call = "self.draft_model_runner.model.set_embed(embed)"
        raise _missing((*frames, (_WORKER, "__init__", call)), draft.architecture, "set_embed")
