"""A real practice node's server as an entry of an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remote.practice.layout import Layout

FIX = "practice-real-capture"
# From loading on two busy cores; SGLang imports more than a thousand modules in each of three processes.
READY_TIMEOUT_S = 300.0

_ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
_ARGS: dict[str, Any] = {
    "host": "127.0.0.1",
    "device": "cpu",
    "disable-cuda-graph": True,
    "mem-fraction-static": 0.3,
    "max-total-tokens": 4096,
    "grammar-backend": "none",
    "speculative-algorithm": "EAGLE3",
    "speculative-eagle-topk": 1,
    "speculative-num-steps": 5,
    "speculative-num-draft-tokens": 6,
}
# 0.5.9 has EAGLE-3 for its Triton backend only, whose remaining kernels are interpreted here.
_EXTRA: Mapping[str, tuple[dict[str, str], dict[str, Any]]] = {
    "0.5.9": ({"TRITON_INTERPRET": "1"}, {"attention-backend": "triton", "dtype": "float32"}),
    "0.5.23": ({}, {}),
}


def target(layout: Layout) -> Path:
    return layout.root / "models" / "tiny-deepseek-v3"


def server_entry(layout: Layout, *, port: int, version: str) -> dict[str, Any]:
    """The server as an entry of an inventory's `servers:`."""
    env, args = _EXTRA[version]
    return {
        "model_path": str(target(layout)),
        "draft_model_path": str(layout.draft),
        "port": port,
        "log": str(layout.log),
        "fix": FIX,
        "args": {**_ARGS, **args},
        "env": {**_ENV, **env},
        "ready_timeout_s": READY_TIMEOUT_S,
    }
