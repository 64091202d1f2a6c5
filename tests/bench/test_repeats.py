"""Repeats of a prompt are one value: figures and intervals are made from prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote.bench.repeats import means
from remote.bench.stats import Figure
from remote.bench.summary import Summary
from tests.bench.runs import measured, record, repeated, summarised, usual


def figures(found: Summary) -> dict[str, Figure]:
    assert found.pooled is not None
    names = ("output_tok_s", "decode_tok_s", "server_output_tok_s", "ttft_s", "accept_len", "accept_rate")
    return {**{name: getattr(found, name) for name in names}, "pooled": found.pooled.accept_len}


@pytest.mark.parametrize("count", [1, 3, 24])
def test_the_same_answers_again_say_nothing_more(count: int) -> None:
    run = usual(count)
    once, again = figures(summarised(run)), figures(summarised(repeated(run, 8)))
    for name, figure in once.items():
        values, others = figure.to_json().values(), again[name].to_json().values()
        assert list(others) == pytest.approx(list(values)), name
    assert again["accept_len"].low == (None if count < 3 else pytest.approx(once["accept_len"].low))


def test_a_prompts_value_is_the_mean_of_its_repeats() -> None:
    run = measured([record(n % 2, 120, 30 if n < 2 else 60, 2.0 + n) for n in range(4)])
    first, second = {request.prompt_sha256 for request in run.requests}
    assert means(run.requests, lambda r: r.accept_len) == {first: 3.0, second: 3.0}
    assert summarised(run).accept_len == Figure(3.0)


def test_what_is_not_known_of_one_repeat_is_that_of_the_others() -> None:
    run = usual(2)
    silent = tuple(replace(request, ttft_s=None) for request in run.requests)
    known = means(run.requests, lambda r: r.ttft_s)
    assert means((*silent, *run.requests), lambda r: r.ttft_s) == known
    assert means(silent, lambda r: r.ttft_s) == {}
