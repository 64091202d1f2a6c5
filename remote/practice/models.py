"""The practice node's models: real configurations, weights without content.

The target has Kimi-K2.5's published dimensions. The draft is an EAGLE-3 head as SGLang's llama_eagle3.py
loads it, with the incident's wrong layer ids; its weights are a sparse file with a true header, so that what
reads names and shapes finds what a trained draft has.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

WRONG_LAYER_IDS = (2, 30, 58)
HIDDEN = 7168
VOCAB = 163840
DRAFT_VOCAB = 32000
TARGET_SHARDS = 8
_BYTES = {"BF16": 2, "I64": 8, "BOOL": 1}

_TEXT: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 163584,
    "eos_token_id": 163586,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 262144,
    "model_type": "kimi_k2",
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": VOCAB,
}


def target_config(*, wrapped: bool) -> dict[str, Any]:
    """config.json of the target: the multimodal wrapper around the text model, or the text model alone."""
    if not wrapped:
        return {**_TEXT, "model_type": "deepseek_v3"}
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "bos_token_id": 163584,
        "dtype": "bfloat16",
        "eos_token_id": 163586,
        "media_placeholder_token_id": 163605,
        "model_type": "kimi_k25",
        "pad_token_id": 163839,
        "text_config": _TEXT,
        "tie_word_embeddings": False,
        "vision_config": {"model_type": "moonvit3d", "patch_size": 14, "vt_hidden_size": 1152},
    }


def draft_config() -> dict[str, Any]:
    """config.json of the draft, in the state of the incident."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 163584,
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(WRONG_LAYER_IDS),
            "use_aux_hidden_state": True,
        },
        "eos_token_id": 163586,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": 18432,
        "max_position_embeddings": 262144,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 64,
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "pad_token_id": 163839,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 50000.0,
        "target_hidden_size": HIDDEN,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.57.1",
        "use_cache": True,
        "vocab_size": VOCAB,
    }


def draft_tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    """{name: (dtype, shape)} of the draft's checkpoint (names: SGLang 0.5.9 models/llama_eagle3.py)."""
    config = draft_config()
    wide = config["num_attention_heads"] * config["head_dim"]
    narrow = config["num_key_value_heads"] * config["head_dim"]
    inner = config["intermediate_size"]
    weights: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
        "midlayer.hidden_norm.weight": (HIDDEN,),
        "midlayer.input_layernorm.weight": (HIDDEN,),
        "midlayer.mlp.down_proj.weight": (HIDDEN, inner),
        "midlayer.mlp.gate_proj.weight": (inner, HIDDEN),
        "midlayer.mlp.up_proj.weight": (inner, HIDDEN),
        "midlayer.post_attention_layernorm.weight": (HIDDEN,),
        "midlayer.self_attn.k_proj.weight": (narrow, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": (HIDDEN, wide),
        "midlayer.self_attn.q_proj.weight": (wide, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": (narrow, 2 * HIDDEN),
        "norm.weight": (HIDDEN,),
    }
    tensors = {name: ("BF16", shape) for name, shape in weights.items()}
    return {"d2t": ("I64", (DRAFT_VOCAB,)), "t2d": ("BOOL", (VOCAB,)), **tensors}


def write_safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """A true header, and zeros that take no disk space (format: huggingface/safetensors README)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "content": "zeros: fixops practice node"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + _BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write_models(target: Path, draft: Path, *, wrapped: bool) -> None:
    """Both model directories."""
    for folder, config in ((target, target_config(wrapped=wrapped)), (draft, draft_config())):
        folder.mkdir(parents=True)
        folder.joinpath("config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for number in range(1, TARGET_SHARDS + 1):
        write_safetensors(target / f"model-{number:05d}-of-{TARGET_SHARDS:05d}.safetensors", {})
    write_safetensors(draft / "model.safetensors", draft_tensors())
