"""Results in which nothing was measured yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remote.bench.result import Bench
from remote.bench.verdict import Verdict


def empty(**more: Any) -> Bench:
    known = Bench(
        node="here",
        run_id="20261129T100000Z-aaaa",
        time=1795946400.0,
        who="tester@here",
        requests=(),
        failures=(),
        summary=None,
        baseline=None,
        comparison=None,
        verdict=Verdict("inconclusive", ()),
        expected={"accept_len": 3.4},
        guards=(),
        warm_up=None,
        load={
            "requests": 24,
            "concurrency": 4,
            "max_tokens": 256,
            "client": "fixops",
            "prompts_sha256": "set",
        },
        fix={"name": "eagle3-embedding-capture", "state": "ours", "config": "done", "applied": True},
        wiring={"contract": ["embed", "in:3", "in:31"], "eager": None, "graph": None, "overlap": None},
        args={},
        checks=(),
    )
    return replace(known, **more)
