"""Two runs compared: by prompt where both answered the same ones, else figure by figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Any, Literal

from ..sglang.modelpath import tidy
from .baselines import Baseline, Past
from .guards import cached_share
from .measured import Phase, Request
from .repeats import means
from .stats import UNKNOWN, Figure, median_of
from .summary import NOT_TOLD, Summary

Name = Literal["accept_len", "output_tok_s"]

# Fewer pairs than this are no comparison by prompt.
LEAST_PAIRS = 5
# By how much a different share of cached prompts may move the whole time before speeds cannot be compared.
CACHE_EFFECT = 0.05


@dataclass(frozen=True)
class Ratio:
    """Now over baseline. `pairs`: prompts that both answered, 0 where only the figures are compared.
    `why_not`: why the two must not be judged against each other; shown all the same. `untold`: because the
    baseline does not tell how it was measured, so that measuring again would not help."""

    ratio: Figure
    pairs: int
    why_not: str | None = None
    untold: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"ratio": self.ratio.to_json(), "pairs": self.pairs, "why_not": self.why_not}


@dataclass(frozen=True)
class Comparison:
    """`same_outputs`: of the pairs whose generated tokens are known on both sides, how many are equal: at
    temperature 0 speculation must not change the text."""

    accept_len: Ratio
    output_tok_s: Ratio
    same_outputs: tuple[int, int] | None

    def to_json(self) -> dict[str, Any]:
        return {
            "accept_len": self.accept_len.to_json(),
            "output_tok_s": self.output_tok_s.to_json(),
            "same_outputs": list(self.same_outputs) if self.same_outputs else None,
        }


def compare(
    now: Phase,
    summary: Summary,
    load: Mapping[str, Any],
    spread: float | None,
    past: Baseline,
    model: str | None = None,
) -> Comparison:
    """`load`: as in the run's JSON; `spread`: what the warm-up left; `model`: the path of what is served."""
    other = _other_model(model, past)
    accept = _ratio("accept_len", now, summary.accept_len, past, past.summary.accept_len)
    speed = _ratio("output_tok_s", now, summary.output_tok_s, past, past.summary.output_tok_s)
    # What the warm-up left unsettled may be in either run.
    slack = max(spread or 0.0, past.spread or 0.0)
    return Comparison(
        Ratio(accept.ratio, accept.pairs, other or _other_draft(summary, past)),
        Ratio(
            speed.ratio.widened(slack),
            speed.pairs,
            other or _untold(past) or _other_load(now, load, past),
            untold=other is None and _untold(past) is not None,
        ),
        _same_outputs(now, past),
    )


def _ratio(name: Name, now: Phase, figure: Figure, past: Baseline, base: Figure) -> Ratio:
    quotients = paired(name, now.requests, past.runs)
    if len(quotients) >= LEAST_PAIRS:
        return Ratio(median_of(quotients), len(quotients))
    return Ratio(unpaired(figure, base), 0)


def paired(name: Name, requests: Sequence[Request], past: Sequence[Past]) -> list[float]:
    """One quotient for each prompt that both runs answered; repeats of a prompt are averaged first."""
    ours, theirs = means(requests, attrgetter(name)), means(past, attrgetter(name))
    return [ours[prompt] / theirs[prompt] for prompt in ours if theirs.get(prompt)]


def unpaired(now: Figure, base: Figure) -> Figure:
    """The quotient of two figures; its interval covers every quotient of the two intervals."""
    if now.median is None or not base.median:
        return UNKNOWN
    low, high = base.low or base.median, base.high or base.median
    return Figure(
        now.median / base.median,
        None if now.low is None else now.low / high,
        None if now.high is None else now.high / low,
    )


def _other_model(model: str | None, past: Baseline) -> str | None:
    """Of two models no figure can be compared. A model may lie elsewhere on another node: its name counts."""
    if model is None or past.model is None or _name(model) == _name(past.model):
        return None
    return f"the baseline is of another model, {past.model}"


def _name(path: str) -> str:
    return tidy(path).rpartition("/")[2]


def _other_draft(summary: Summary, past: Baseline) -> str | None:
    """Accept lengths of different numbers of draft steps are different figures."""
    ours, theirs = summary.speculation, past.summary.speculation
    if "accept_len" in past.spoiled:
        return f"the baseline's own accept length was spoiled when it was measured ({past.path})"
    if summary.accept_len.median is not None and theirs.num_steps is not None and ours == NOT_TOLD:
        return f"the baseline ran with num_steps {theirs.num_steps}, and the server does not tell its own"
    for name in ("num_steps", "num_draft_tokens", "topk"):
        one, other = getattr(ours, name), getattr(theirs, name)
        if one is not None and other is not None and one != other:
            return f"the baseline ran with {name} {other}, not {one}"
    return None


LOAD = ("client", "concurrency", "max_tokens", "prompts_sha256")


def _untold(past: Baseline) -> str | None:
    missing = [name.replace("_sha256", "") for name in LOAD if getattr(past.load, name) is None]
    return f"the baseline does not tell its {', '.join(missing)}" if missing else None


def _other_load(now: Phase, load: Mapping[str, Any], past: Baseline) -> str | None:
    """A speed is one of a load: same prompts, same concurrency, same length of answers, same cache."""
    if "output_tok_s" in past.spoiled:
        return f"the baseline's own speed was spoiled when it was measured ({past.path})"
    for name in LOAD:
        theirs = getattr(past.load, name)
        if theirs != load[name]:
            shown = "other prompts" if name == "prompts_sha256" else f"{name} {theirs}, not {load[name]}"
            return f"the baseline was measured with {shown}"
    return _other_cache(now, past)


def _other_cache(now: Phase, past: Baseline) -> str | None:
    ours, theirs = cached_share(now.requests), past.cached_share
    if ours is None or theirs is None:
        return None
    waits = [r.ttft_s / r.e2e_s for r in now.requests if r.ttft_s is not None and r.e2e_s]
    waits += [p.ttft_s / p.e2e_s for p in past.runs if p.ttft_s is not None and p.e2e_s]
    effect = abs(ours - theirs) * (median(waits) if waits else 1.0)
    if effect <= CACHE_EFFECT:
        return None
    return f"{ours:.0%} of the prompts came from the cache, {theirs:.0%} in the baseline"


def _same_outputs(now: Phase, past: Baseline) -> tuple[int, int] | None:
    theirs = {each.prompt_sha256: each.output_sha256 for each in past.runs if each.output_sha256}
    pairs = [
        request.output_sha256 == theirs[request.prompt_sha256]
        for request in now.requests
        if request.output_sha256 and request.prompt_sha256 in theirs
    ]
    return (sum(pairs), len(pairs)) if pairs else None
