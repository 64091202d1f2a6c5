"""Which forward modes a server runs at all."""

from __future__ import annotations

from collections.abc import Mapping


def applies(mode: str, server_args: Mapping[str, object]) -> bool | None:
    """Whether `mode` (`eager`, `graph`, `overlap`) happens on a server with these effective arguments.

    Keys as SGLang spells them (`disable_cuda_graph`); None when the arguments do not tell.
    """
    if mode == "eager":
        return True
    if mode == "overlap":
        value = server_args.get("enable_two_batch_overlap")
        return value if isinstance(value, bool) else None
    if mode != "graph":
        raise ValueError(f"no forward mode {mode!r}")
    device = server_args.get("device")
    if device == "cpu":
        compiled = server_args.get("enable_torch_compile")
        return compiled if isinstance(compiled, bool) else None
    if _decode_backend(server_args) == "disabled":
        return False
    disabled = server_args.get("disable_cuda_graph")
    return not disabled if isinstance(disabled, bool) else None


def _decode_backend(server_args: Mapping[str, object]) -> object:
    # Since 0.5.14 graphs are configured by phase.
    config = server_args.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, Mapping) else None
    nested = decode.get("backend") if isinstance(decode, Mapping) else None
    return nested if nested is not None else server_args.get("cuda_graph_backend_decode")
