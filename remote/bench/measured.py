"""What the node measured, one request at a time: records in, figures of each request out.

Counts are the server's own (`meta_info` of /generate), times are those of the load generator on the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..sglang import metrics
from ..sglang.metrics import Generation
from .prompts import Prompt


@dataclass(frozen=True)
class Request:
    """A request that came to its end. Times in seconds from its first byte sent; tok/s are output tokens.
    `output_tok_s`: all tokens over the whole time; `decode_tok_s`: those after the first over the time after
    the first. `repetition`: see node/load.py. `output_sha256`: of the generated tokens."""

    prompt: str
    prompt_sha256: str
    began_s: float
    e2e_s: float
    ttft_s: float | None
    finish: str | None
    dp_rank: int | None
    repetition: float | None
    output_sha256: str | None
    simulated: bool
    told: Generation

    @property
    def completion_tokens(self) -> int | None:
        return self.told.completion_tokens

    @property
    def verify_ct(self) -> int | None:
        return self.told.verify_ct

    @property
    def accept_len(self) -> float | None:
        return self.told.accept_len

    @property
    def output_tok_s(self) -> float | None:
        tokens = self.completion_tokens
        return tokens / self.e2e_s if tokens and self.e2e_s > 0 else None

    @property
    def decode_s(self) -> float | None:
        """Seconds between the first token and the last; None where it was not streamed."""
        return self.e2e_s - self.ttft_s if self.ttft_s is not None and self.e2e_s > self.ttft_s else None

    @property
    def decode_tok_s(self) -> float | None:
        tokens, seconds = self.completion_tokens, self.decode_s
        return (tokens - 1) / seconds if tokens and tokens > 1 and seconds else None

    def to_json(self) -> dict[str, Any]:
        """The contract's entry of `runs`, and what else was measured."""
        return {
            "prompt": self.prompt,
            "prompt_sha256": self.prompt_sha256,
            "output_tok_s": _short(self.output_tok_s),
            "completion_tokens": self.completion_tokens,
            "e2e_s": self.e2e_s,
            "verify_ct": self.verify_ct,
            "accept_len": _short(self.accept_len),
            "ttft_s": self.ttft_s,
            "decode_tok_s": _short(self.decode_tok_s),
            "began_s": self.began_s,
            "histogram": None if self.told.histogram is None else list(self.told.histogram),
            "prompt_tokens": self.told.prompt_tokens,
            "cached_tokens": self.told.cached_tokens,
            "finish": self.finish,
            "dp_rank": self.dp_rank,
            "repetition": _short(self.repetition),
            "output_sha256": self.output_sha256,
            "accept_len_server": self.told.accept_len_server,
            "accept_rate_server": self.told.accept_rate_server,
            "e2e_s_server": self.told.e2e_s,
        }


@dataclass(frozen=True)
class Failure:
    """A request that gave no whole answer, and why."""

    prompt: str
    error: str


@dataclass(frozen=True)
class Phase:
    """One operation of the load generator. `ended`: "done", "cancelled" or "limit". `cpu_share`: of one core,
    the generator's own. `ports`: the local ports of its connections. `began`: seconds since the epoch."""

    requests: tuple[Request, ...]
    failures: tuple[Failure, ...]
    asked: int
    ended: str
    began: float
    elapsed_s: float
    cpu_share: float
    peak_rss_mib: int | None
    ports: frozenset[int]

    @property
    def tokens(self) -> int:
        return sum(request.completion_tokens or 0 for request in self.requests)

    @property
    def concurrency(self) -> float:
        """How many requests ran at once on average, as SGLang's client computes "Concurrency"."""
        return sum(request.e2e_s for request in self.requests) / self.elapsed_s if self.elapsed_s else 0.0


def phase(reply: Mapping[str, Any], prompts: Sequence[Prompt], asked: int) -> Phase:
    """The reply of the node's `bench`."""
    texts = {prompt.id: prompt for prompt in prompts}
    good, bad = [], []
    for record in sorted(reply["requests"], key=lambda record: record["index"]):
        request = _request(record, texts[record["name"]])
        if isinstance(request, Request):
            good.append(request)
        else:
            bad.append(request)
    return Phase(
        requests=tuple(good),
        failures=tuple(bad),
        asked=asked,
        ended=reply["ended"],
        began=reply["began"],
        elapsed_s=reply["elapsed_s"],
        cpu_share=reply["cpu_share"],
        peak_rss_mib=reply["peak_rss_mib"],
        ports=frozenset(r["local_port"] for r in reply["requests"] if r["local_port"] is not None),
    )


def _request(record: Mapping[str, Any], prompt: Prompt) -> Request | Failure:
    if record["error"] is not None:
        return Failure(prompt.id, record["error"])
    meta, output = record["meta"], record["output"]
    told = metrics.generation(meta)
    if not told.completion_tokens:
        return Failure(prompt.id, "no token came back")
    reason, rank = meta.get("finish_reason"), meta.get("dp_rank")
    return Request(
        prompt=prompt.id,
        prompt_sha256=prompt.sha256,
        began_s=record["began_s"],
        e2e_s=record["e2e_s"],
        ttft_s=record["ttft_s"],
        finish=reason.get("type") if isinstance(reason, dict) else None,
        dp_rank=rank if isinstance(rank, int) else None,
        repetition=output.get("repetition"),
        output_sha256=output.get("sha256"),
        simulated=bool(meta.get("simulated")),
        told=told,
    )


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
