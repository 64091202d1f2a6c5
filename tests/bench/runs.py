"""Runs of known figures, for what is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remote.bench import summary
from remote.bench.baselines import Baseline, Load, Past
from remote.bench.guards import Seen, cached_share
from remote.bench.meanwhile import Launcher, Meanwhile
from remote.bench.measured import Phase, phase
from remote.bench.prompts import Prompt
from remote.bench.summary import Speculation, Summary
from remote.sglang import metrics
from tests.bench.kit import meta

SIX = Speculation(6, 5, 1)
INFO = {
    "version": "0.5.9",
    "model_path": "/models/kimi",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_draft_tokens": 6,
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 1,
    "internal_states": [{"avg_spec_accept_length": 2.7}],
}
LOAD = {"client": "fixops", "concurrency": 4, "max_tokens": 120, "prompts_sha256": "set", "cached_share": 0.0}


def record(index: int, tokens: int, verify_ct: int | None, e2e_s: float, **more: Any) -> dict[str, Any]:
    """What the node says of one request; `more` goes into its meta_info."""
    return {
        "index": index,
        "name": f"p{index}",
        "began_s": 0.0,
        "error": None,
        "ttft_s": e2e_s / 10,
        "e2e_s": e2e_s,
        "events": 5,
        "local_port": 40000 + index,
        "meta": meta(tokens, verify_ct, e2e_latency=e2e_s, **more),
        "output": {"repetition": 0.05, "sha256": f"out{index}", "tokens": tokens},
    }


def measured(records: Sequence[dict[str, Any]], elapsed_s: float = 10.0, **more: Any) -> Phase:
    found = {
        "requests": list(records),
        "ended": "done",
        "began": 1000.0,
        "elapsed_s": elapsed_s,
        "cpu_share": 0.1,
        "peak_rss_mib": 50,
        **more,
    }
    prompts = [Prompt(each["name"], f"text of {each['name']}") for each in records]
    return phase(found, prompts, len(records))


def usual(count: int = 12, length: float = 3.4, speed: float = 50.0) -> Phase:
    """Requests of 120 tokens that scatter by a few per cent around these figures."""
    wobble = [1 + 0.03 * ((7 * n) % 5 - 2) for n in range(count)]
    return measured(
        [record(n, 120, round(120 / length / w), 120 / speed / w) for n, w in enumerate(wobble)],
        elapsed_s=count * 120 / speed / 4,
    )


def repeated(found: Phase, times: int) -> Phase:
    """The same answers again, as at temperature 0."""
    return replace(
        found,
        requests=found.requests * times,
        asked=found.asked * times,
        elapsed_s=found.elapsed_s * times,
    )


def summarised(found: Phase, **info: Any) -> Summary:
    return summary.summarise(found, metrics.server_info({**INFO, **info}), "0.5.9")


def past(found: Phase, name: str = "before", **more: Any) -> Baseline:
    """The run as a baseline, of a server without the fix."""
    known = Baseline(
        name=name,
        path=Path(f"{name}.json"),
        summary=summarised(found),
        load=Load("set", 4, 120, "fixops"),
        runs=tuple(
            Past(r.prompt_sha256, r.accept_len, r.output_tok_s, r.e2e_s, r.ttft_s, r.output_sha256)
            for r in found.requests
        ),
        model="/models/kimi",
        fix="eagle3-embedding-capture",
        fix_applied=False,
        cached_share=cached_share(found.requests),
        spread=0.0,
        spoiled=(),
        document={},
    )
    return replace(known, **more)


US = Launcher(100, 100)


def quiet(**more: Any) -> Meanwhile:
    """Nothing else happened."""
    known = Meanwhile(
        before=US,
        after=US,
        log_same=True,
        samples=(),
        strangers=(),
        boots=0,
        info=metrics.server_info(INFO),
        model_path="/models/kimi",
        pretended=None,
    )
    return replace(known, **more)


def seen(found: Phase | None = None, meanwhile: Meanwhile | None = None, **more: Any) -> Seen:
    """A run with which nothing is wrong."""
    known = Seen(
        phase=found or usual(),
        concurrency=4,
        max_tokens=120,
        speculation=SIX,
        version="0.5.9",
        installed="0.5.9",
        meant_model="/models/kimi",
        rates=(50.0, 50.1, 50.2),
        gap_s=0.3,
        failed_checks=(),
        changing=None,
        meanwhile=meanwhile or quiet(),
    )
    return replace(known, **more)
