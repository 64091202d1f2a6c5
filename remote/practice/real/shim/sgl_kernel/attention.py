"""Attention over a paged cache, one request after the other.

`register` declares the operators of SGLang's CPU build (`torch.ops.sgl_kernel.*`, 0.5.23: layers/attention/
intel_amx_backend.py); `decode` and `extend` are what 0.5.9's Triton backend calls
(layers/attention/triton_ops/).
Shapes: query [tokens, heads, width], cache [slots, cache heads, width], output like the query.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = Any  # torch has no types that this project checks

_library = torch.library.Library("sgl_kernel", "FRAGMENT")


def attend(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, cap: float, allowed: Tensor = None
) -> Tensor:
    """softmax(query keys^T scale) values in float32. `allowed` [queries, keys] is true where one may look;
    `cap` limits the scores softly, 0 does not (layers/radix_attention.py)."""
    sharing = query.shape[1] // keys.shape[1]
    keys, values = (each.float().transpose(0, 1).repeat_interleave(sharing, dim=0) for each in (keys, values))
    scores = query.float().transpose(0, 1) @ keys.transpose(1, 2) * scale
    if cap > 0:
        scores = torch.tanh(scores / cap) * cap
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return (torch.softmax(scores, dim=-1) @ values).transpose(0, 1).to(query.dtype)


def decode(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    output: Tensor,
    starts: Tensor,
    slots: Tensor,
    _logits: Tensor,
    _sums: Tensor,
    _splits: Tensor,
    _most_splits: int,
    sm_scale: float,
    logit_cap: float = 0.0,
    sinks: Tensor = None,
    xai_temperature_len: int = -1,
) -> None:
    """decode_attention_fwd: one query token a request; its keys lie in slots[starts[i]:starts[i + 1]]."""
    _only_plain(sinks, xai_temperature_len)
    bounds = starts.tolist()
    for number in range(query.shape[0]):
        where, one = slots[bounds[number] : bounds[number + 1]].long(), slice(number, number + 1)
        if len(where):
            keys, values = (cache[where].to(query.dtype) for cache in (key_cache, value_cache))
            output[one] = attend(query[one], keys, values, sm_scale, logit_cap)


def extend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    output: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    query_starts: Tensor,
    prefix_starts: Tensor,
    prefix_slots: Tensor,
    mask: Tensor,
    is_causal: bool,
    mask_starts: Tensor,
    _longest: int,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    skip_prefix_custom_mask: bool = True,
    sliding_window_size: int = -1,
    sinks: Tensor = None,
    window_kv_offsets: Tensor = None,
    xai_temperature_len: int = -1,
) -> None:
    """extend_attention_fwd: several new tokens a request, after a prefix that is in the cache.

    `mask` holds, for each request from mask_starts[i] on, a row of prefix and new keys for each new token;
    the prefix is visible to all.
    """
    _only_plain(sinks, xai_temperature_len, sliding_window_size)
    assert skip_prefix_custom_mask
    assert window_kv_offsets is None
    scale = sm_scale or query.shape[-1] ** -0.5
    queries, prefixes = query_starts.tolist(), prefix_starts.tolist()
    for number in range(len(queries) - 1):
        rows = slice(queries[number], queries[number + 1])
        new = rows.stop - rows.start
        before = prefixes[number + 1] - prefixes[number]
        if new <= 0:
            continue
        own_keys, own_values = keys[rows], values[rows]
        if before:
            # (A whole prompt of an MLA model comes in another form than the cache's, and has no prefix.)
            where = prefix_slots[prefixes[number] : prefixes[number + 1]].long()
            own_keys = torch.cat([key_cache[where].to(query.dtype), own_keys])
            own_values = torch.cat([value_cache[where].to(query.dtype), own_values])
        allowed = torch.ones(new, before + new, dtype=torch.bool)
        if mask is not None:
            start = int(mask_starts[number])
            given = mask[start : start + new * (before + new)].view(new, before + new)
            allowed[:, before:] = given[:, before:].bool()
        elif is_causal:
            allowed[:, before:].tril_()
        output[rows] = attend(query[rows], own_keys, own_values, scale, logit_cap, allowed)


def _only_plain(sinks: Tensor, temperature_length: int, window: int = -1) -> None:
    """What the practice node's models do not have."""
    assert sinks is None
    assert temperature_length == -1
    assert window == -1


def _extend_cpu(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    output: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    _key_scale: float,
    _value_scale: float,
    slots_of: Tensor,
    requests: Tensor,
    lengths: Tensor,
    new_lengths: Tensor,
    starts: Tensor,
    _longest: int,
    scale: float,
    cap: float,
    _cross: bool,
    window: int,
    _encoder_lengths: Tensor,
    sinks: Tensor,
    tree_mask: Tensor,
    is_causal: bool,
) -> None:
    """As `extend`; slots_of[request, position] is the cache slot, tree_mask [requests, new, new]."""
    _only_plain(sinks, -1, window or -1)
    many = zip(requests.tolist(), lengths.tolist(), new_lengths.tolist(), starts.tolist(), strict=True)
    for number, (request, length, new, start) in enumerate(many):
        if new == 0:
            continue
        before, rows = length - new, slice(start, start + new)
        if before == 0 and keys is not None:
            own_keys = keys[rows].view(new, -1, query.shape[-1])
            own_values = values[rows].view(new, -1, output.shape[-1])
        else:
            where = slots_of[request, :length].long()
            own_keys, own_values = (cache[where].to(query.dtype) for cache in (key_cache, value_cache))
            if keys is not None:
                # The new rows may not have been written to the cache yet.
                own_keys[before:] = keys[rows].view(new, *own_keys.shape[1:])
                own_values[before:] = values[rows].view(new, *own_values.shape[1:])
        allowed = torch.ones(new, length, dtype=torch.bool)
        if is_causal:
            allowed[:, before:].tril_()
            if tree_mask is not None:
                allowed[:, before:] = tree_mask.view(len(requests), new, new)[number].bool()
        output[rows] = attend(query[rows], own_keys, own_values, scale, cap, allowed)


def _decode_cpu(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    _key_scale: float,
    _value_scale: float,
    output: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    _scratch: Tensor,
    slots_of: Tensor,
    requests: Tensor,
    lengths: Tensor,
    scale: float,
    cap: float,
    _cross: bool,
    window: int,
    _encoder_lengths: Tensor,
    sinks: Tensor,
) -> None:
    """As `decode`; also writes the new token's key and value to `slots` of the cache."""
    _only_plain(sinks, -1, window or -1)
    if keys is not None:
        for cache, new in ((key_cache, keys), (value_cache, values)):
            cache[slots] = new.reshape(len(slots), *cache.shape[1:]).to(cache.dtype)
    for number, (request, length) in enumerate(zip(requests.tolist(), lengths.tolist(), strict=True)):
        where, one = slots_of[request, :length].long(), slice(number, number + 1)
        output[one] = attend(
            query[one], key_cache[where].to(query.dtype), value_cache[where].to(query.dtype), scale, cap
        )


def register() -> None:
    """Declare the operators, as the CPU build of 0.5.23 has them."""
    cache = "Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, float v_scale"
    tail = "float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window"
    tail += ", Tensor? encoder_lens, Tensor? sinks"
    pool = "Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens"
    for name, signature, function in (
        (
            "extend_attention_cpu",
            "Tensor q, Tensor? k, Tensor? v, Tensor(c!) o, "
            f"{cache}, {pool}, Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, {tail}, "
            "Tensor? tree_mask, bool is_causal",
            _extend_cpu,
        ),
        (
            "decode_attention_cpu",
            f"Tensor q, {cache}, Tensor(c!) o, Tensor? k, Tensor? v, Tensor? loc, Tensor attn_logits, "
            f"{pool}, {tail}",
            _decode_cpu,
        ),
    ):
        _library.define(f"{name}({signature}) -> ()")
        _library.impl(name, function, "CompositeExplicitAutograd")
