"""A stand-in for SGLang's compiled kernels on a machine without a GPU, in plain PyTorch.

The package index has `sgl-kernel` for CUDA only. SGLang imports these names under SGLANG_USE_CPU_ENGINE=1;
what it calls with a small EAGLE-3 model is here, slow and exact. Everything else can be imported, and says so
when it is called. SGLang's own files stay as released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from . import attention, pool, tree

__version__ = "0.4.10+fixops.cpu"

attention.register()

# The names of the CUDA build (0.5.9), and those of the CPU build (0.5.23).
build_tree_kernel_efficient = build_tree_kernel_efficient_cpu = tree.build
verify_tree_greedy = verify_tree_greedy_cpu = tree.verify_greedy
assign_req_to_token_pool_cpu = pool.assign_req_to_token
assign_extend_cache_locs_cpu = pool.assign_extend_locations
assign_draft_cache_locs_contiguous_cpu = pool.assign_draft_locations
build_draft_decode_metadata_cpu = pool.draft_decode_metadata
copy_all_layer_kv_cache_cpu = pool.copy_rows
fill_accept_out_cache_loc_cpu = pool.accepted_locations
fill_bonus_tokens_cpu = pool.bonus_tokens
rotate_input_ids_cpu = pool.rotate_input_ids


def _nothing(*_: object, **__: object) -> None:
    """SGLang waits for a device in places where none was asked for."""


if not torch.cuda.is_available():
    torch.cuda.synchronize = _nothing


def absent(name: str) -> Callable[..., Any]:
    """A kernel that nothing on this node needs: importable, and an error that names it when called."""

    def call(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"{name} is not part of the practice node's CPU stand-in for sgl_kernel")

    return call


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return absent(f"sgl_kernel.{name}")
