"""What differs between SGLang 0.5.5 and 0.5.12 in what the server prints and answers. The only place for it.

Read from managers/scheduler_metrics_mixin.py (0.5.10: observability/), managers/tokenizer_manager.py,
entrypoints/http_server.py and entrypoints/engine.py of each version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dialect:
    """The shape of one version's output."""

    number: tuple[int, ...]
    server_info: bool  # /server_info and /model_info besides the old names, which then warn
    get_load_deprecated: bool
    watchdog: bool  # utils/watchdog.py: SubprocessWatchdog notices dead children
    bind_error_code: int = 3


def version_tuple(version: str) -> tuple[int, ...]:
    """ "0.5.10.post1" is (0, 5, 10, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def dialect(version: str) -> Dialect:
    """The dialect of `version`; versions outside 0.5.5 to 0.5.12 speak the nearest one's."""
    number = version_tuple(version)[:3]
    return Dialect(
        number=number,
        server_info=number >= (0, 5, 6),
        get_load_deprecated=number >= (0, 5, 8),
        watchdog=number >= (0, 5, 10),
    )


@dataclass(frozen=True)
class PrefillStats:
    new_tokens: int
    cached_tokens: int
    usage: float
    running: int
    queued: int
    throughput: float
    sequences: int = 1


def prefill_line(spoken: Dialect, stats: PrefillStats, graph: bool = False) -> str:
    """log_prefill_stats (report_prefill_stats from 0.5.10)."""
    text = (
        f"Prefill batch, #new-seq: {stats.sequences}, #new-token: {stats.new_tokens}, "
        f"#cached-token: {stats.cached_tokens}, token usage: {stats.usage:.2f}, "
        f"#running-req: {stats.running}, #queue-req: {stats.queued}, "
    )
    if spoken.number < (0, 5, 9):
        return text
    if spoken.number < (0, 5, 10):
        return f"{text}input throughput (token/s): {stats.throughput:.2f}, cuda graph: {graph}"
    pending = "#pending-token: 0, " if spoken.number >= (0, 5, 11) else ""
    return f"{text}{pending}cuda graph: {graph}, input throughput (token/s): {stats.throughput:.2f}"


@dataclass(frozen=True)
class DecodeStats:
    running: int
    tokens: int
    usage: float
    accept_len: float | None  # None without speculation
    draft_tokens: int
    graph: bool
    throughput: float
    queued: int


def decode_line(spoken: Dialect, stats: DecodeStats) -> str:
    """log_decode_stats.

    The accept rate is len / draft tokens before 0.5.11, (len - 1) / (draft tokens - 1) since.
    """
    text = (
        f"Decode batch, #running-req: {stats.running}, #token: {stats.tokens}, "
        f"token usage: {stats.usage:.2f}, "
    )
    if stats.accept_len is not None:
        drafts = max(stats.draft_tokens, 2)
        rate = (
            stats.accept_len / drafts if spoken.number < (0, 5, 11) else (stats.accept_len - 1) / (drafts - 1)
        )
        text += f"accept len: {stats.accept_len:.2f}, accept rate: {rate:.2f}, "
    tail = ", " if spoken.number < (0, 5, 9) else ""
    return (
        f"{text}cuda graph: {stats.graph}, gen throughput (token/s): {stats.throughput:.2f}, "
        f"#queue-req: {stats.queued}{tail}"
    )


def spec_metrics(
    spoken: Dialect,
    *,
    verify_ct: int,
    accepted: int,
    completion_tokens: int,
    histogram: list[int],
    steps: int,
    draft_tokens: int,
) -> dict[str, Any]:
    """_calculate_spec_decoding_metrics: what meta_info tells of one request's speculation."""
    oldest, newest = spoken.number < (0, 5, 6), spoken.number >= (0, 5, 12)
    if not verify_ct:
        return (
            {"spec_accept_rate": 0.0, "spec_accept_length": 0, "spec_verify_ct": 0}
            if spoken.number < (0, 5, 7)
            else {}
        )
    proposed = verify_ct * (steps if oldest else draft_tokens - 1)
    found: dict[str, Any] = {
        "spec_accept_rate": accepted / proposed,
        "spec_accept_length": completion_tokens / verify_ct,
    }
    if newest:
        found |= {"spec_num_correct_drafts": accepted, "spec_num_proposed_drafts": proposed}
    elif spoken.number >= (0, 5, 11):
        found |= {"spec_accepted_drafts": accepted, "spec_proposed_drafts": proposed}
    elif not oldest:
        found |= {"spec_accept_token_num": accepted, "spec_draft_token_num": proposed}
    found["spec_verify_ct"] = verify_ct
    if newest:
        found |= {
            "spec_accepted_drafts": accepted,
            "spec_proposed_drafts": proposed,
            "spec_correct_drafts_histogram": histogram,
        }
    if spoken.number >= (0, 5, 9):
        found["spec_accept_histogram"] = histogram
    return found
