"""What the inventory's server entry means: paths, ranks, GPUs, arguments by SGLang's own names."""

from __future__ import annotations

import os
from typing import Any

from .inventory import ArgValue, Node, ServerEntry
from .secrets import environment_of, expand
from .sglang.adjustments import canonical
from .sglang.modelpath import tidy


def wanted_args(server: ServerEntry) -> dict[str, ArgValue]:
    """The arguments that the inventory asks for, keyed as SGLang spells them (`tp_size`)."""
    args: dict[str, ArgValue] = {"model_path": server.model_path, "port": server.port}
    if server.draft_model_path is not None:
        args["speculative_draft_model_path"] = server.draft_model_path
    for key, value in server.args.items():
        args[canonical(key)] = value
    return args


def argument(server: ServerEntry, name: str) -> ArgValue:
    """An argument that is reckoned with here, a reference in it replaced. InventoryError where the variable
    is not set: nothing true could be said without it."""
    value = wanted_args(server).get(name)
    return expand(value, os.environ) if isinstance(value, str) else value


def speculative_args(server: ServerEntry) -> dict[str, ArgValue]:
    """`wanted_args`, the references in those of speculation replaced: what SGLang makes of them depends on
    their values. InventoryError where a variable is not set."""
    return {
        name: argument(server, name) if name.startswith("speculative_") else value
        for name, value in wanted_args(server).items()
    }


def draft_config_path(server: ServerEntry) -> str | None:
    return f"{tidy(server.draft_model_path)}/config.json" if server.draft_model_path else None


def model_config_path(server: ServerEntry) -> str:
    return f"{tidy(server.model_path)}/config.json"


def http_host(server: ServerEntry) -> str:
    """Where the node itself reaches its server: a wildcard address is reached on loopback."""
    host = str(argument(server, "host") or "127.0.0.1")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def uses_tls(server: ServerEntry) -> bool:
    """Whether it speaks HTTPS: `ssl_certfile` decides (server_args.py and http_server.py, from 0.5.10)."""
    return bool(wanted_args(server).get("ssl_certfile"))


def endpoint(server: ServerEntry) -> dict[str, Any]:
    """{port, host, tls}: where and how the node itself asks its server, as every operation there takes it."""
    return {"port": server.port, "host": http_host(server), "tls": uses_tls(server)}


def uses_no_gpu(node: Node) -> bool:
    """Whether the node's server runs on the CPU."""
    return argument(node.server, "device") == "cpu"


def our_gpus(node: Node) -> frozenset[int] | None:
    """The GPU indices that the node's server uses; None when nothing limits them.

    From CUDA_VISIBLE_DEVICES, else base-gpu-id and the number of ranks (server_args.py).
    """
    if uses_no_gpu(node):
        return frozenset()
    visible = environment_of(node.server, os.environ).get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        numbers = [part.strip() for part in visible.split(",") if part.strip()]
        return frozenset(int(part) for part in numbers) if all(p.isdigit() for p in numbers) else None
    base = _number(node.server, "base_gpu_id")
    if base is None:
        return None
    step = _number(node.server, "gpu_id_step") or 1
    return frozenset(base + step * rank for rank in range(expected_ranks(node.server)))


def spanned_nodes(server: ServerEntry) -> int:
    """Over how many nodes one such server runs."""
    return _number(server, "nnodes") or 1


def expected_ranks(server: ServerEntry) -> int:
    """Scheduler processes of one node: tp x pp, and x dp unless attention shares them.

    With --enable-dp-attention the DP ranks lie inside the TP group (managers/data_parallel_controller.py).
    """
    tp, pp = _number(server, "tp_size") or 1, _number(server, "pp_size") or 1
    dp = _number(server, "dp_size") or 1
    attention = bool(wanted_args(server).get("enable_dp_attention"))
    return max(1, tp * pp * (1 if attention else dp) // spanned_nodes(server))


def capturing_ranks(server: ServerEntry) -> int:
    """How many ranks log what they capture: of a pipeline only the last stage does (the hook returns
    early on the others, models/deepseek_v2.py)."""
    return max(1, expected_ranks(server) // (_number(server, "pp_size") or 1))


def _number(server: ServerEntry, name: str) -> int | None:
    value: Any = argument(server, name)
    return int(value) if isinstance(value, int | float | str) and str(value).isdigit() else None
