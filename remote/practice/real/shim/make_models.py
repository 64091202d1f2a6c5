"""Make a target and an EAGLE-3 draft whose acceptance depends on which hidden states the draft is given.

Runs in the practice node's environment (torch, safetensors, tokenizers): make_models.py TARGET DRAFT IDS.

The language is one cycle through the 256 bytes: after byte t comes next(t). A token at place k of the cycle
has the embedding E_k, a point on 31 circles of different speeds, so that one fixed rotation R takes E_k to
E_{k+1}.

Target: DeepSeek-V3 with MLA and 6 layers. The MLPs of layers 0 to 2 are linear and each turn the state by an
orthogonal matrix of its own; layers 3 to 5 are experts, small and random, as all attention is. So `embed` is
E, and what enters layer 2, 3, 4, 5 is E turned in ways that a reader of E cannot undo. The head reads layer
5's output and says next(t).

Draft: `fc` takes the FIRST of its three states and hardly looks at the others; one attention head turns it by
R, so that each further step is one place further on the cycle. It is wrong after every 7th byte, as a real
draft is now and then. Given [embed, ...] first it is right otherwise; given [in:2, ...] it reads noise, for
LEAK of it is E, and is right seldom.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Tensor = Any
Weights = dict[str, Tensor]

CYCLE, VOCAB, WIDTH, LAYERS, HEADS, DENSE = 256, 300, 64, 6, 4, 3
TURNING = WIDTH - 2  # the last two numbers of a state are the constant 1
INNER, EXPERT_INNER, EXPERTS = 128, 32, 8
LEAK = 0.35
WRONG_EVERY = 7
BOS, EOS = 256, 257
NEXT = [(5 * byte + 7) % CYCLE for byte in range(CYCLE)]


def common() -> dict[str, Any]:
    """What both config.json say."""
    return {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
    }


def target_config() -> dict[str, Any]:
    return {
        **common(),
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": LAYERS,
        "first_k_dense_replace": DENSE,
        "moe_intermediate_size": EXPERT_INNER,
        "moe_layer_freq": 1,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "kv_lora_rank": 32,
        "q_lora_rank": 48,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "num_nextn_predict_layers": 0,
        "attention_bias": False,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 512,
        },
    }


def draft_config(layer_ids: list[int]) -> dict[str, Any]:
    return {
        **common(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": VOCAB,
        "target_hidden_size": WIDTH,
        "head_dim": WIDTH // HEADS,
        "num_hidden_layers": 1,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layer_ids, "use_aux_hidden_state": True},
    }


def speeds(random: torch.Generator) -> Tensor:
    """How many times each circle is gone round in one cycle: those of 300 draws that keep the embeddings of
    different places the least alike."""
    apart = torch.arange(1, CYCLE) / CYCLE * 2 * math.pi
    draws = [torch.randperm(CYCLE // 2 - 1, generator=random)[: TURNING // 2] + 1 for _ in range(300)]
    return min(draws, key=lambda each: float(torch.cos(apart[:, None] * each).mean(1).abs().max()))


def language(random: torch.Generator) -> tuple[Tensor, Tensor]:
    """E [VOCAB, WIDTH], each of mean square 1, and R [WIDTH, WIDTH] with R E[t] = E[next(t)]."""
    place, byte = [0] * CYCLE, 0
    for step in range(CYCLE):
        place[byte] = step
        byte = NEXT[byte]
    turn = 2 * math.pi * speeds(random).double() / CYCLE
    phase = 2 * math.pi * torch.rand(TURNING // 2, generator=random, dtype=torch.float64)
    angle = torch.tensor(place).double()[:, None] * turn + phase
    embedding = torch.ones(VOCAB, WIDTH, dtype=torch.float64)
    embedding[:CYCLE, 0:TURNING:2] = math.sqrt(2) * torch.cos(angle)
    embedding[:CYCLE, 1:TURNING:2] = math.sqrt(2) * torch.sin(angle)
    embedding[CYCLE:] = embedding[: VOCAB - CYCLE]
    rotation = torch.eye(WIDTH, dtype=torch.float64)
    for circle, by in enumerate(turn.tolist()):
        x, y = 2 * circle, 2 * circle + 1
        rotation[x, x] = rotation[y, y] = math.cos(by)
        rotation[x, y], rotation[y, x] = -math.sin(by), math.sin(by)
    return embedding, rotation


def turns(random: torch.Generator) -> list[Tensor]:
    """The orthogonal matrices of layers 0 to 2. The first two together are LEAK times the identity plus a
    part that is at right angles to every vector."""

    def orthogonal() -> Tensor:
        return torch.linalg.qr(
            torch.randn(TURNING, TURNING, generator=random, dtype=torch.float64)
        ).Q.contiguous()

    quarter = torch.zeros(TURNING, TURNING, dtype=torch.float64)
    for x in range(0, TURNING, 2):
        quarter[x, x + 1], quarter[x + 1, x] = -1, 1
    basis, first, third = orthogonal(), orthogonal(), orthogonal()
    both = LEAK * torch.eye(TURNING) + math.sqrt(1 - LEAK**2) * basis @ quarter @ basis.T
    found = []
    for part in (first, both @ first.T, third):
        whole = torch.eye(WIDTH, dtype=torch.float64)
        whole[:TURNING, :TURNING] = part
        found.append(whole)
    return found


def target_weights(embedding: Tensor, by_layer: list[Tensor], random: torch.Generator) -> Weights:
    def noise(*shape: int, size: float = 0.05) -> Tensor:
        return torch.randn(*shape, generator=random) * size

    config = target_config()
    rope, plain, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    query, cache = config["q_lora_rank"], config["kv_lora_rank"]
    head = torch.zeros(VOCAB, WIDTH, dtype=torch.float64)
    head[NEXT, :TURNING] = (embedding[:CYCLE] @ (by_layer[2] @ by_layer[1] @ by_layer[0]).T)[:, :TURNING]
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(WIDTH),
        "lm_head.weight": head,
    }
    for layer in range(LAYERS):
        attention = {
            "q_a_proj": noise(query, WIDTH),
            "q_a_layernorm": torch.ones(query),
            "q_b_proj": noise(HEADS * (plain + rope), query),
            "kv_a_proj_with_mqa": noise(cache + rope, WIDTH),
            "kv_a_layernorm": torch.ones(cache),
            "kv_b_proj": noise(HEADS * (plain + value), cache),
            "o_proj": noise(WIDTH, HEADS * value, size=0.02),
        }
        parts = {f"self_attn.{name}": weight for name, weight in attention.items()}
        parts |= {"input_layernorm": torch.ones(WIDTH), "post_attention_layernorm": torch.ones(WIDTH)}
        if layer < DENSE:
            # The gate sees the two constants only: silu(20) is 20, so that down(gate x up) is linear.
            gate, up = noise(INNER, WIDTH), noise(INNER, WIDTH)
            down = noise(WIDTH, INNER, size=0.02)
            gate[:WIDTH] = 0
            gate[:WIDTH, TURNING:] = 10
            up[:WIDTH] = (by_layer[layer] - torch.eye(WIDTH)).float()
            down[:, :WIDTH] = torch.eye(WIDTH) / 20
            parts |= {"mlp.gate_proj": gate, "mlp.up_proj": up, "mlp.down_proj": down}
        else:
            parts["mlp.gate"] = noise(EXPERTS, WIDTH)
            for expert in [*(f"experts.{number}" for number in range(EXPERTS)), "shared_experts"]:
                parts[f"mlp.{expert}.gate_proj"] = noise(EXPERT_INNER, WIDTH)
                parts[f"mlp.{expert}.up_proj"] = noise(EXPERT_INNER, WIDTH)
                parts[f"mlp.{expert}.down_proj"] = noise(WIDTH, EXPERT_INNER)
            weights[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] = torch.zeros(EXPERTS)
        weights |= {f"model.layers.{layer}.{name}.weight": weight for name, weight in parts.items()}
    return weights


def draft_weights(embedding: Tensor, rotation: Tensor, random: torch.Generator) -> Weights:
    """A position attends to itself (query and key are 8 times its state), and is turned by R."""
    identity, nothing = torch.eye(WIDTH), torch.zeros(WIDTH, WIDTH)
    small = torch.randn(WIDTH, 2 * WIDTH, generator=random) * 0.005
    look = torch.cat([nothing, 8 * identity], 1)
    head = torch.zeros(VOCAB, WIDTH, dtype=torch.float64)
    for byte in range(CYCLE):
        said = NEXT[byte] if byte % WRONG_EVERY else (NEXT[byte] + 1) % CYCLE
        head[said, :TURNING] += embedding[byte, :TURNING]
    layer = {
        "self_attn.q_proj": look,
        "self_attn.k_proj": look.clone(),
        "self_attn.v_proj": torch.cat([nothing, (rotation - torch.eye(WIDTH)).float()], 1),
        "self_attn.o_proj": identity,
        "mlp.gate_proj": torch.randn(INNER, WIDTH, generator=random) * 0.05,
        "mlp.up_proj": torch.randn(INNER, WIDTH, generator=random) * 0.05,
        "mlp.down_proj": torch.randn(WIDTH, INNER, generator=random) * 0.005,
        "input_layernorm": torch.ones(WIDTH),
        "hidden_norm": torch.ones(WIDTH),
        "post_attention_layernorm": torch.ones(WIDTH),
    }
    return {
        "fc.weight": torch.cat([identity, small], 1),
        "norm.weight": torch.ones(WIDTH),
        "lm_head.weight": head,
        **{f"midlayer.{name}.weight": weight for name, weight in layer.items()},
        "d2t": torch.zeros(VOCAB, dtype=torch.int64),
        "t2d": torch.ones(VOCAB, dtype=torch.bool),
    }


def tokenizer() -> Tokenizer:
    """One token a byte: no merges, nothing fetched."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<bos>", special=True), AddedToken("<eos>", special=True)])
    return made


def write(folder: Path, config: dict[str, Any], weights: Weights) -> None:
    folder.mkdir(parents=True)
    # Floating-point weights as bfloat16, except where SGLang wants float32.
    stored = {
        name: (
            weight.bfloat16() if weight.is_floating_point() and "bias" not in name else weight
        ).contiguous()
        for name, weight in weights.items()
    }
    save_file(stored, str(folder / "model.safetensors"), metadata={"format": "pt"})
    folder.joinpath("config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer().save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "model_max_length": 2048,
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
    }
    folder.joinpath("tokenizer_config.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def main(target: str, draft: str, layer_ids: str) -> None:
    random = torch.Generator().manual_seed(0)
    embedding, rotation = language(random)
    write(Path(target), target_config(), target_weights(embedding, turns(random), random))
    write(Path(draft), draft_config(json.loads(layer_ids)), draft_weights(embedding, rotation, random))


if __name__ == "__main__":
    main(*sys.argv[1:])
