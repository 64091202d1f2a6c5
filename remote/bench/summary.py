"""The figures of one run, of this run only: from its own replies, never the server's running average."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ..sglang import accept
from ..sglang.metrics import ServerInfo
from . import implied
from .measured import Phase, Request
from .repeats import by_prompt, means
from .stats import UNKNOWN, Figure, interval, median_of
from .stored import Figures

NO_RATE = "this version reports none"


@dataclass(frozen=True)
class Speculation:
    """The server's effective arguments; None without speculation or where the server does not tell."""

    num_draft_tokens: int | None
    num_steps: int | None
    topk: int | None

    @property
    def chain_steps(self) -> int | None:
        """Draft steps in a chain; None for a tree (topk above 1), of which our formula says nothing."""
        return self.num_steps if self.topk in (None, 1) else None


NOT_TOLD = Speculation(None, None, None)


def speculation(args: Mapping[str, object]) -> Speculation:
    """From arguments as `/server_info` or the log's record give them."""
    if not args.get("speculative_algorithm"):
        return NOT_TOLD
    names = ("speculative_num_draft_tokens", "speculative_num_steps", "speculative_eagle_topk")
    found = [args.get(name) for name in names]
    return Speculation(*(value if isinstance(value, int) else None for value in found))


@dataclass(frozen=True)
class Pooled:
    """All tokens of the run over all its verifications, DP ranks weighing as many as each verified."""

    accept_len: Figure
    completion_tokens: int
    verify_ct: int
    by_rank: tuple[tuple[int | None, float, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "accept_len": self.accept_len.to_json(),
            "completion_tokens": self.completion_tokens,
            "verify_ct": self.verify_ct,
            "ranks": [
                {"dp_rank": rank, "accept_len": length, "verify_ct": count}
                for rank, length, count in self.by_rank
            ],
        }


@dataclass(frozen=True)
class Summary:
    """Medians over prompts (repeats.py). `output_tok_s`: of one request; `server_output_tok_s`: of all
    requests at once. Output tokens only, never prompt tokens. `accept_rate`: by our definition,
    `accept.OUR_RATE`."""

    output_tok_s: Figure
    decode_tok_s: Figure
    server_output_tok_s: Figure
    ttft_s: Figure
    accept_len: Figure
    accept_rate: Figure
    implied_step_acceptance: Figure
    pooled: Pooled | None
    histogram: tuple[int, ...] | None
    speculation: Speculation
    sglang_version: str | None
    accept_rate_server: Figure
    cumulative: accept.Combined | None
    completion_tokens: int
    requests: int
    failed: int
    concurrency: float | None
    elapsed_s: float | None
    simulated: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "output_tok_s": self.output_tok_s.to_json(),
            "accept_len": self.accept_len.to_json(),
            "accept_rate": self.accept_rate.to_json(),
            "implied_step_acceptance": self.implied_step_acceptance.to_json(),
            "num_draft_tokens": self.speculation.num_draft_tokens,
            "sglang_version": self.sglang_version,
            "num_steps": self.speculation.num_steps,
            "eagle_topk": self.speculation.topk,
            "decode_tok_s": self.decode_tok_s.to_json(),
            "server_output_tok_s": self.server_output_tok_s.to_json(),
            "ttft_s": self.ttft_s.to_json(),
            "pooled": self.pooled.to_json() if self.pooled else None,
            "histogram": None if self.histogram is None else list(self.histogram),
            "definitions": {
                "accept_len": "completion_tokens / verify_ct of each request",
                "accept_rate": accept.OUR_RATE,
                "accept_rate_server": server_definition(self.sglang_version),
                "implied_step_acceptance": "p with (1 - p^(k+1)) / (1 - p) = accept_len, k = num_steps",
                "output_tok_s": "completion_tokens / e2e_s of each request",
                "server_output_tok_s": "completion tokens of all requests / seconds of the run",
            },
            "server": {
                "accept_rate": self.accept_rate_server.to_json(),
                "accept_rate_definition": server_definition(self.sglang_version),
                "accept_len_cumulative": _cumulative(self.cumulative),
            },
            "completion_tokens": self.completion_tokens,
            "requests": self.requests,
            "failed": self.failed,
            "concurrency": None if self.concurrency is None else round(self.concurrency, 3),
            "elapsed_s": self.elapsed_s,
            "simulated": self.simulated,
        }


def summarise(phase: Phase, info: ServerInfo | None, version: str | None) -> Summary:
    """`info`: the server's own arguments and its cumulative figures, as read after the run."""
    requests = phase.requests
    known = speculation(info.args if info else {})
    lengths = _over_prompts(requests, lambda request: request.accept_len)
    return Summary(
        output_tok_s=_over_prompts(requests, lambda request: request.output_tok_s),
        decode_tok_s=_over_prompts(requests, lambda request: request.decode_tok_s),
        server_output_tok_s=throughput(phase),
        ttft_s=_over_prompts(requests, lambda request: request.ttft_s),
        accept_len=lengths,
        accept_rate=rate_of(lengths, known),
        implied_step_acceptance=implied_of(lengths, known),
        pooled=pooled(requests),
        histogram=histogram(requests),
        speculation=known,
        sglang_version=(info.version if info else None) or version,
        accept_rate_server=_over_prompts(requests, lambda request: request.told.accept_rate_server),
        cumulative=info.accept if info else None,
        completion_tokens=phase.tokens,
        requests=len(requests),
        failed=len(phase.failures),
        concurrency=phase.concurrency,
        elapsed_s=phase.elapsed_s,
        simulated=any(request.simulated for request in requests),
    )


def _over_prompts(requests: Sequence[Request], value: Callable[[Request], float | None]) -> Figure:
    return median_of(list(means(requests, value).values()))


def _drawing_prompts(requests: Sequence[Request], statistic: Callable[[list[Request]], float]) -> Figure:
    """A mean-like `statistic` of the requests. For its interval prompts are drawn, each with its repeats."""
    groups = list(by_prompt(requests).values())
    return interval(groups, lambda drawn: statistic(list(chain.from_iterable(drawn))))


def rate_of(lengths: Figure, known: Speculation) -> Figure:
    """Our accept rate, which rises with the accept length."""
    return lengths.mapped(lambda length: accept.accept_rate(length, known.num_draft_tokens))


def implied_of(lengths: Figure, known: Speculation) -> Figure:
    steps = known.chain_steps
    return UNKNOWN if steps is None else lengths.mapped(lambda n: implied.step_acceptance(n, steps))


def throughput(phase: Phase) -> Figure:
    """Output tokens per second of all requests together, as many of them at once as there were."""
    if not phase.requests or not phase.elapsed_s or phase.ended == "cancelled":
        return UNKNOWN
    at_once = phase.concurrency

    def all_together(drawn: Sequence[Request]) -> float:
        seconds = sum(request.e2e_s for request in drawn)
        return at_once * sum(request.completion_tokens or 0 for request in drawn) / seconds

    return _drawing_prompts(phase.requests, all_together)


def pooled(requests: Sequence[Request]) -> Pooled | None:
    """None without speculation, or when a reply does not tell its verifications."""
    if not requests or not all(request.verify_ct for request in requests):
        return None
    groups: dict[int | None, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.dp_rank, []).append(request)
    ranks = tuple(
        (rank, _length(groups[rank]), sum(request.verify_ct or 0 for request in groups[rank]))
        for rank in sorted(groups, key=lambda rank: -1 if rank is None else rank)
    )
    combined = accept.combine([(length, count) for _, length, count in ranks])
    scatter = _drawing_prompts(requests, _length)
    return Pooled(
        Figure(combined.accept_len, scatter.low, scatter.high),
        sum(request.completion_tokens or 0 for request in requests),
        sum(request.verify_ct or 0 for request in requests),
        ranks,
    )


def _length(requests: Sequence[Request]) -> float:
    return sum(r.completion_tokens or 0 for r in requests) / sum(r.verify_ct or 0 for r in requests)


def histogram(requests: Sequence[Request]) -> tuple[int, ...] | None:
    """Verifications by number of accepted drafts, over all requests; None where a reply has none."""
    found = [request.told.histogram for request in requests]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    width = max(len(each) for each in known)
    return tuple(sum(each[place] for each in known if place < len(each)) for place in range(width))


def server_definition(version: str | None) -> str:
    """What the server's `spec_accept_rate` means in its version."""
    return _definition(version, accept.META_INFO)


def logged_definition(version: str | None) -> str:
    """What "accept rate" in the server's log means in its version."""
    return _definition(version, accept.LOGGED)


def _definition(version: str | None, where: tuple[accept.Definition, ...]) -> str:
    try:
        found = accept.definition(version, where) if version else None
    except ValueError:
        found = None
    return found.formula if found else NO_RATE


def _cumulative(found: accept.Combined | None) -> dict[str, Any] | None:
    """The server's own average since its start or its last flush: shown, never used (case 106, 104)."""
    if found is None or not found.known:
        return None
    return {
        "accept_len": found.accept_len,
        "low": found.low,
        "median": found.middle,
        "high": found.high,
        "ranks_known": found.known,
        "ranks": found.total,
        "scope": "since the server's start or its last flush, not this run",
    }


def from_json(value: Mapping[str, Any] | Figures) -> Summary:
    """A summary as it was stored. What is absent is unknown. ValueError where something has another type."""
    told = Figures.model_validate(value)
    known = Speculation(told.num_draft_tokens, told.num_steps, told.eagle_topk)
    lengths, rate, step = told.accept_len, told.accept_rate, told.implied_step_acceptance
    return Summary(
        output_tok_s=told.output_tok_s,
        decode_tok_s=told.decode_tok_s,
        server_output_tok_s=told.server_output_tok_s,
        ttft_s=told.ttft_s,
        accept_len=lengths,
        accept_rate=rate if rate.median is not None else rate_of(lengths, known),
        implied_step_acceptance=step if step.median is not None else implied_of(lengths, known),
        pooled=None,
        histogram=None if told.histogram is None else tuple(told.histogram),
        speculation=known,
        sglang_version=told.sglang_version,
        accept_rate_server=told.server.accept_rate if told.server else UNKNOWN,
        cumulative=None,
        completion_tokens=told.completion_tokens or 0,
        requests=told.requests or 0,
        failed=told.failed or 0,
        concurrency=told.concurrency,
        elapsed_s=told.elapsed_s,
        simulated=bool(told.simulated),
    )
