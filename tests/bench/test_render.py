"""What a run looks like on the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.bench import summary
from remote.bench.assemble import judged
from remote.bench.guards import Guard, look
from remote.bench.measured import Failure, Phase
from remote.bench.result import Bench
from remote.render.bench import show
from tests.bench.results import empty
from tests.bench.runs import LOAD, measured, past, record, seen, summarised, usual


def printed(result: Bench, capsys: pytest.CaptureFixture[str]) -> str:
    show(result)
    return " ".join(capsys.readouterr().out.split())


def bench(run: Phase, **more: Any) -> Bench:
    return judged(empty(**more), run, summarised(run), guards=tuple(look(seen(run))))


def test_figures_with_intervals_definitions_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        bench(usual(speed=120), baseline=past(usual(length=1.5)), load={**LOAD, "requests": 12}), capsys
    )
    for words in (
        "now before ratio",
        "accept length 3.43 [3.25, 3.53]",
        "implied acceptance per draft step 0.768",
        "output tok/s of one request 120.0",
        "output tok/s of all requests together",
        "accept rate: (accept_len - 1) / (num_draft_tokens - 1)",
        "the server's accept length since its start, not this run's: 2.70",
        "12 of 12 answers are the baseline's to the last token",
        "EFFECTIVE here: eagle3-embedding-capture",
    ):
        assert words in text, text
    assert "next:" not in text


def test_an_ineffective_fix_points_to_diagnose(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(bench(usual(length=1.5)), capsys)
    assert "expected 3.4: not reached" in text
    assert "INEFFECTIVE here" in text
    assert "next: inv diagnose --node here" in text


def test_the_servers_own_rate_is_shown_with_its_definition(capsys: pytest.CaptureFixture[str]) -> None:
    run = measured([record(n, 120, 35 + n, 2.0 + n / 10, spec_accept_rate=0.48) for n in range(6)])
    text = printed(bench(run), capsys)
    assert "the server's own accept rate: 0.48 ((accept_len - 1) / (num_draft_tokens - 1))" in text


def test_guards_that_spoil_are_marked_with_what_they_spoil(capsys: pytest.CaptureFixture[str]) -> None:
    guards = (Guard("other-load", "spoils", "nine others", ("output_tok_s",)), Guard("complete", "ok", "all"))
    found = replace(bench(usual()), guards=guards, failures=(Failure("p3", "HTTP 500"),))
    text = printed(found, capsys)
    assert "SPOILS other-load nine others (not judged: output_tok_s)" in text
    assert "ok 1 guards complete" in text
    assert "failed: p3: HTTP 500" in text


def test_a_fix_that_is_not_applied_points_to_the_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    fix = {**empty().fix, "applied": False}
    text = printed(bench(usual(length=1.5), fix=fix), capsys)
    assert "not in effect" in text
    assert "next: inv deploy-fix --node here" in text
    assert "NO-BASELINE" in text


def test_what_was_not_measured_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(empty(refused="verify fails (wiring.graph)"), capsys)
    assert "not measured, verify fails (wiring.graph)" in text
    assert "--anyway" in text


def test_a_simulated_server_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    run = measured([record(n, 120, 35 + n, 2.0 + n / 10, simulated=True) for n in range(6)])
    assert "SIMULATED server" in printed(bench(run), capsys)


def test_without_speculation_the_accept_length_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    plain = measured([record(n, 120, None, 2.4 + n / 10) for n in range(8)])
    found = judged(empty(), plain, summary.summarise(plain, None, "0.5.9"), guards=())
    text = printed(found, capsys)
    assert "no speculation" in text
    assert "accept length unknown" in text


def test_draft_tokens_that_the_server_does_not_tell_are_not_no_speculation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = measured([record(n, 120, 35 + n, 2.0 + n / 10) for n in range(8)])
    text = printed(judged(empty(), run, summary.summarise(run, None, "0.5.9"), guards=()), capsys)
    assert "draft tokens not told" in text
    assert "no speculation" not in text
