"""Replies of SGLang's HTTP interface, read whatever the version.

`/get_server_info` (old) and `/server_info` (from 0.5.10): effective arguments at the top level beside
`version` and `internal_states`, one element per DP rank. `/generate`: `meta_info` per request, with keys
that were renamed in 0.5.11. Accept lengths of a server are cumulative since its start or its last idle
`/flush_cache`; those of a run come from its own replies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import accept
from .accept import Combined
from .args import redact_value


@dataclass(frozen=True)
class RankState:
    """One element of `internal_states`. `accept_len`: cumulative; None before the first decode line (40
    steps) and without speculation. `verify_ct`: in no release so far, used where a build has it."""

    accept_len: float | None
    verify_ct: int | None
    gen_tok_s: float | None


@dataclass(frozen=True)
class ServerInfo:
    """A reply of `/server_info`. `args`: effective arguments, secrets masked. `accept`: over all DP ranks,
    cumulative and so not scoped to any run."""

    version: str | None
    args: dict[str, object]
    ranks: tuple[RankState, ...]
    accept: Combined

    @property
    def num_draft_tokens(self) -> int | None:
        """Effective `speculative_num_draft_tokens`; None without speculation."""
        value = self.args.get("speculative_num_draft_tokens")
        return value if isinstance(value, int) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _first(mapping: Mapping[str, object], names: Sequence[str]) -> object:
    return next((mapping[name] for name in names if mapping.get(name) is not None), None)


_LENGTHS = ("avg_spec_accept_length", "spec_accept_length")
_COUNTS = ("spec_verify_ct", "spec_total_num_forward_ct")


def _rank(state: Mapping[str, object]) -> RankState:
    return RankState(
        _number(_first(state, _LENGTHS)),
        _whole(_first(state, _COUNTS)),
        _number(_first(state, ("last_gen_throughput", "gen_throughput"))),
    )


# /server_info, and its name before that; as they are asked for and answered (node/http.py).
INFO_NAMES = ("server_info", "get_server_info")


def told(http: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the server tells of itself, from the first of these replies that is one; None where none is."""
    for name in INFO_NAMES:
        reply = http.get(name) or {}
        if reply.get("status") != 200:
            continue
        try:
            value = json.loads(reply.get("body") or "")
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def server_info(reply: Mapping[str, object]) -> ServerInfo:
    """A reply of `/get_server_info` or `/server_info`. Builds that wrap the arguments in `server_args`
    and those before `internal_states` are read alike."""
    nested = reply.get("server_args")
    own = nested if isinstance(nested, Mapping) else reply
    args = {str(name): value for name, value in own.items() if name not in ("internal_states", "version")}
    states = reply.get("internal_states")
    if isinstance(states, Mapping):
        states = [states]
    found = [state for state in states if isinstance(state, Mapping)] if isinstance(states, list) else []
    ranks = tuple(_rank(state) for state in found or [reply])
    version = reply.get("version")
    return ServerInfo(
        version if isinstance(version, str) else None,
        {name: redact_value(name, value) for name, value in args.items()},
        ranks,
        accept.combine([(rank.accept_len, rank.verify_ct) for rank in ranks]),
    )


@dataclass(frozen=True)
class Generation:
    """`meta_info` of one reply. `e2e_s`: seconds. `verify_ct`: verifications, None without speculation.
    `correct_drafts`, `proposed_drafts`: draft tokens accepted and offered. `histogram`: verifications by
    number of accepted drafts. `accept_rate_server`: the server's own, defined by its version."""

    completion_tokens: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    e2e_s: float | None
    verify_ct: int | None
    histogram: tuple[int, ...] | None
    accept_rate_server: float | None
    accept_len_server: float | None

    @property
    def accept_len(self) -> float | None:
        """Tokens per verification, as SGLang computes `spec_accept_length` (tokenizer_manager.py)."""
        if not self.verify_ct or self.completion_tokens is None:
            return None
        return self.completion_tokens / self.verify_ct


def generation(reply: Mapping[str, object]) -> Generation:
    """A reply of `/generate` with one prompt, or its `meta_info` alone."""
    inner = reply.get("meta_info")
    meta = inner if isinstance(inner, Mapping) else reply
    histogram = _first(meta, ("spec_correct_drafts_histogram", "spec_accept_histogram"))
    return Generation(
        completion_tokens=_whole(meta.get("completion_tokens")),
        prompt_tokens=_whole(meta.get("prompt_tokens")),
        cached_tokens=_whole(meta.get("cached_tokens")),
        e2e_s=_number(meta.get("e2e_latency")),
        verify_ct=_whole(meta.get("spec_verify_ct")),
        histogram=tuple(int(count) for count in histogram) if isinstance(histogram, list) else None,
        accept_rate_server=_number(meta.get("spec_accept_rate")),
        accept_len_server=_number(meta.get("spec_accept_length")),
    )
