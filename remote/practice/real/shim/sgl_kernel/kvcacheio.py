"""Copies between host and device caches: none here. SGLang's scheduler imports this module before any model
or speculation module, which makes it the place where those of 0.5.9 are told of the stand-ins.

0.5.9 binds them for CUDA and ROCm only, and its attention kernels are Triton's, far too slow interpreted.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import absent, attention, tree


def _bind() -> None:
    eagle: Any = importlib.import_module("sglang.srt.speculative.eagle_utils")
    if hasattr(eagle, "sgl_build_tree_kernel_efficient") or not hasattr(eagle, "_is_hip"):
        return  # a version that knows the CPU
    eagle.sgl_build_tree_kernel_efficient = tree.build
    eagle._is_hip = True  # "use sgl_kernel", in this module
    triton = "sglang.srt.layers.attention.triton_ops"
    decode: Any = importlib.import_module(f"{triton}.decode_attention")
    extend: Any = importlib.import_module(f"{triton}.extend_attention")
    decode.decode_attention_fwd, extend.extend_attention_fwd = attention.decode, attention.extend


_bind()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return absent(f"sgl_kernel.kvcacheio.{name}")
