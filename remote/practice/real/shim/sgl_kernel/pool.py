"""Bookkeeping of cache slots between draft and target (0.5.23: speculative/, mem_cache/ call these on a CPU).

slots_of[request, position] is the cache slot of a token; results are written in place.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

Tensor = Any


def copy_rows(data_pointers: Tensor, strides: Tensor, targets: Tensor, sources: Tensor) -> None:
    """In every layer's cache: row targets[i] becomes what row sources[i] was. Strides in bytes."""
    to, origin = targets.tolist(), sources.tolist()
    for base, stride in zip(data_pointers.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + row * stride, stride) for row in origin]
        for row, content in zip(to, rows, strict=True):
            ctypes.memmove(base + row * stride, content, stride)


def assign_req_to_token(
    requests: Tensor, slots_of: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, _length: int
) -> None:
    """Positions starts[i]:ends[i] of each request get the next of `slots`."""
    taken = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        slots_of[request, start:end] = slots[taken : taken + end - start].to(slots_of.dtype)
        taken += end - start


def assign_extend_locations(
    requests: Tensor, slots_of: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, _length: int
) -> None:
    """The reverse: `slots` are those of positions starts[i]:ends[i], one request after the other."""
    filled = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        slots[filled : filled + end - start] = slots_of[request, start:end].to(slots.dtype)
        filled += end - start


def assign_draft_locations(
    requests: Tensor, slots_of: Tensor, lengths: Tensor, slots: Tensor, _length: int, topk: int, steps: int
) -> None:
    """`slots` are those of the topk x steps positions behind each request's end."""
    many = topk * steps
    for number, (request, end) in enumerate(zip(requests.tolist(), lengths.tolist(), strict=True)):
        slots[number * many : (number + 1) * many] = slots_of[request, end : end + many].to(slots.dtype)


def draft_decode_metadata(
    slots_of: Tensor, requests: Tensor, lengths: Tensor, topk: int, steps: int, width: int
) -> Tensor:
    """[requests x topk, width]: the prefix's slots, then those of the branch's own draft tokens."""
    rows = torch.zeros((len(requests) * topk, width), dtype=slots_of.dtype)
    for number, (request, end) in enumerate(zip(requests.tolist(), lengths.tolist(), strict=True)):
        for branch in range(topk):
            row = rows[number * topk + branch]
            row[:end] = slots_of[request, :end]
            own = slots_of[request, end + branch * steps : end + (branch + 1) * steps]
            row[end : end + len(own)] = own
    return rows


def accepted_locations(accept_index: Tensor, slots: Tensor, accepted: Tensor) -> None:
    """The slots of the accepted nodes, in order (-1 in accept_index: none)."""
    kept = accept_index[accept_index >= 0].long()
    accepted[: len(kept)] = slots[kept]


def bonus_tokens(tokens: Tensor, lengths: Tensor, bonus: Tensor, stride: int) -> None:
    """The last accepted token of each request."""
    flat = tokens.reshape(-1)
    for number, length in enumerate(lengths.tolist()):
        bonus[number] = flat[number * stride + length - 1]


def rotate_input_ids(
    ids: Tensor, starts: Tensor, lengths: Tensor, new: Tensor, select_index: Tensor = None
) -> None:
    """Shift each request's ids left by one, and put its new token at the end, or at select_index[i]."""
    tokens = new.reshape(-1)
    for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length <= 0:
            continue
        ids[start : start + length - 1] = ids[start + 1 : start + length].clone()
        ids[start + length - 1 if select_index is None else int(select_index[number])] = tokens[number]
