"""Each guard: what it says of a sound run, and what of one that it exists for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.bench.guards import BOTH, SPEED, Guard, look
from remote.bench.meanwhile import Launcher
from remote.sglang.decode import Sample
from tests.bench.runs import measured, quiet, record, repeated, seen, usual


def guard(id: str, **more: Any) -> Guard:
    return {each.id: each for each in look(seen(**more))}[id]


def sample(running: int, queued: int = 0, **more: Any) -> Sample:
    return Sample(1, "TP0", None, 3.0, 0.5, 100.0, running, queued, True, **more)


def test_a_sound_run_is_spoiled_by_nothing() -> None:
    found = look(seen(meanwhile=quiet(samples=(sample(4), sample(4)))))
    assert [each.id for each in found if each.state != "ok"] == []
    assert [each.spoils for each in found if each.spoils] == []


def test_every_guard_has_a_name_of_its_own() -> None:
    names = [each.id for each in look(seen())]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("failures", "state"), [(1, "shown"), (3, "spoils")])
def test_failed_requests(failures: int, state: str) -> None:
    records = [record(n, 120, 35 + n % 3, 2.0 + n / 10) for n in range(24)]
    for each in records[:failures]:
        each["error"] = "HTTP 500: boom"
    found = guard("failed-requests", found=measured(records))
    assert found.state == state
    assert "boom" in found.detail


def test_what_was_given_up_at_the_limit_did_not_fail() -> None:
    records = [record(n, 120, 35 + n % 3, 2.0 + n / 10) for n in range(12)]
    for each in records[8:]:
        each["error"] = "given up: limit"
    run = measured(records, ended="limit")
    assert guard("failed-requests", found=run).state == "ok"
    assert guard("complete", found=run).state == "shown"
    assert "8 of 12" in guard("complete", found=run).detail


def test_a_server_that_stopped_answering_before_the_limit_is_not_judged() -> None:
    """It hung: what it had answered until then made it effective, with exit code 0."""
    records = [record(n, 120, 35 + n % 3, 2.0 + n / 10) for n in range(12)]
    for each in records[8:]:
        each["error"] = "given up: limit"
    found = guard("complete", found=measured(records, ended="limit", elapsed_s=14.0))
    assert found.spoils == BOTH
    assert "8 of 12 requests, and none ended in the last 11 s" in found.detail


def test_a_run_that_was_stopped_is_not_judged() -> None:
    found = guard("complete", found=replace(usual(), ended="cancelled"))
    assert (found.state, found.spoils) == ("spoils", BOTH)


def test_too_few_requests_are_not_judged() -> None:
    assert guard("complete", found=usual(4)).spoils == BOTH
    assert guard("complete", found=usual(5)).spoils == ()


def test_it_is_prompts_that_must_be_enough_and_not_requests() -> None:
    found = guard("complete", found=repeated(usual(4), 6))
    assert found.spoils == BOTH
    assert "24 of 24 requests, different prompts: 4: fewer than 5 prompts" in found.detail
    assert guard("complete", found=repeated(usual(5), 6)).spoils == ()


def test_a_prompt_that_is_answered_alike_again_is_not_made_up() -> None:
    assert guard("constant-values", found=repeated(usual(1), 24)).state == "ok"


@pytest.mark.parametrize(("short", "state"), [(0, "ok"), (4, "shown"), (8, "spoils")])
def test_requests_that_ended_early(short: int, state: str) -> None:
    lengths = [20 if n < short else 120 for n in range(12)]
    run = measured([record(n, tokens, tokens // 3, 2.0 + n / 10) for n, tokens in enumerate(lengths)])
    assert guard("ended-early", found=run).state == state


@pytest.mark.parametrize(("tokens", "state"), [(9, "spoils"), (15, "spoils"), (16, "ok")])
def test_answers_that_are_too_short_by_order(tokens: int, state: str) -> None:
    """Of 9 tokens the accept length of a draft that reaches 3.4 came out as 3 or less."""
    run = measured([record(n, tokens, 3 + n % 2, 0.2 + n / 50) for n in range(12)])
    found = guard("ended-early", found=run, max_tokens=tokens)
    assert found.state == state
    assert ("--max-tokens" in found.detail) == (state == "spoils")


@pytest.mark.parametrize(("looping", "state"), [(0, "ok"), (2, "shown"), (6, "spoils")])
def test_degenerate_output(looping: int, state: str) -> None:
    run = usual()
    requests = tuple(replace(r, repetition=0.9 if n < looping else 0.1) for n, r in enumerate(run.requests))
    found = guard("repetition", found=replace(run, requests=requests))
    assert found.state == state
    blind = replace(run, requests=tuple(replace(r, repetition=None) for r in run.requests))
    assert guard("repetition", found=blind).state == "unknown"


@pytest.mark.parametrize(("high", "state"), [(0, "ok"), (3, "shown"), (8, "spoils")])
def test_an_accept_length_at_its_maximum(high: int, state: str) -> None:
    run = measured([record(n, 120, 20 if n < high else 36 + n % 3, 2.0 + n / 10) for n in range(12)])
    assert guard("accept-at-maximum", found=run).state == state


def test_values_that_are_made_up() -> None:
    same_length = measured([record(n, 120, 40, 2.0 + n / 10) for n in range(6)])
    assert guard("constant-values", found=same_length).spoils == BOTH
    same_speed = measured([record(n, 120, 36 + n, 2.0) for n in range(6)])
    assert guard("constant-values", found=same_speed).spoils == (SPEED,)
    # A few verifications can be equal by chance.
    few = measured([record(n, 12, 4, 0.2 + n / 50) for n in range(6)])
    assert guard("constant-values", found=few).state == "ok"


@pytest.mark.parametrize(("tokens", "accepted"), [(256, 0), (256, 2), (12, 0)])
def test_a_draft_that_accepts_next_to_nothing_is_not_made_up(tokens: int, accepted: int) -> None:
    """n tokens take n - 1 verifications, whatever the prompt."""
    run = measured([record(n, tokens, tokens - 1 - accepted, 4.0 + n / 10) for n in range(24)])
    assert guard("constant-values", found=run).state == "ok"


def test_acceptance_that_the_environment_sets() -> None:
    found = guard("constant-values", meanwhile=quiet(pretended="3.5"))
    assert found.spoils == BOTH
    assert "SGLANG_SIMULATE_ACC_LEN=3.5" in found.detail


def test_no_warm_up_and_one_that_was_cut_short() -> None:
    assert guard("warm-up", rates=()).spoils == (SPEED,)
    assert guard("warm-up", rates=(50.0, 50.0)).spoils == (SPEED,)
    assert guard("warm-up", rates=(50.0, 58.0, 60.0)).state == "shown"
    assert guard("idle-before", gap_s=None).state == "unknown"


def test_the_first_decode_line_after_idle_is_left_out_and_said() -> None:
    samples = (sample(4, after_idle=True), sample(4))
    assert (
        "1 decode lines after idle left out" in guard("idle-before", meanwhile=quiet(samples=samples)).detail
    )


def test_cache_hits() -> None:
    run = measured([record(n, 120, 36 + n, 2.0 + n / 10, cached_tokens=9) for n in range(6)])
    assert guard("cache-hits", found=run).detail == "90% of the prompt tokens came from the cache"
    assert guard("cache-hits", found=run).state == "shown"
    blind = measured([record(n, 120, 36 + n, 2.0, cached_tokens=None) for n in range(6)])
    assert guard("cache-hits", found=blind).state == "unknown"


def test_others_requests_meanwhile() -> None:
    stray = guard("other-load", meanwhile=quiet(strangers=("10.0.0.7 /generate",)))
    assert (stray.state, stray.spoils) == ("shown", ())
    many = guard("other-load", meanwhile=quiet(strangers=("10.0.0.7 /v1/chat/completions",) * 5))
    assert many.spoils == (SPEED,)
    assert "10.0.0.7 /v1/chat/completions" in many.detail


def test_others_requests_that_began_before() -> None:
    crowded = guard("other-load", meanwhile=quiet(samples=(sample(9), sample(4))))
    assert crowded.spoils == (SPEED,)
    assert "9 requests ran at once, of which 4 were ours" in crowded.detail
    assert guard("other-load", meanwhile=quiet(samples=(), strangers=None)).state == "unknown"


def test_requests_that_queue() -> None:
    assert guard("queueing", meanwhile=quiet(samples=(sample(4, 3),))).state == "shown"
    assert guard("queueing").state == "unknown"


def test_another_boot_in_between() -> None:
    assert guard("same-boot", meanwhile=quiet(after=Launcher(200, 200))).spoils == BOTH
    assert guard("same-boot", meanwhile=quiet(after=Launcher(100, 101))).spoils == BOTH, "a reused pid"
    assert guard("same-boot", meanwhile=quiet(log_same=False)).spoils == BOTH
    assert guard("same-boot", meanwhile=quiet(boots=1)).spoils == BOTH
    assert guard("same-boot", meanwhile=quiet(after=None)).spoils == BOTH
    assert guard("same-boot", meanwhile=quiet(log_same=None, boots=None)).state == "ok"


def test_the_wrong_server_on_the_port() -> None:
    assert guard("right-server", failed_checks=("process.owner",)).spoils == BOTH
    assert guard("right-server", meanwhile=quiet(model_path="/models/other")).spoils == BOTH
    assert guard("right-server", version="0.5.10").spoils == BOTH
    assert guard("right-server", meanwhile=quiet(model_path=None)).state == "unknown"


def test_a_server_that_no_longer_answers_after_the_run() -> None:
    """It froze within the run, a moment before the time limit: effective, with exit code 0."""
    found = guard("right-server", meanwhile=quiet(model_path=None, info=None, silent="timeout"))
    assert found.spoils == BOTH
    assert "did not answer any more: timeout" in found.detail


def test_somebody_changes_the_node() -> None:
    assert guard("node-locked", changing="alice@desk (deploy-fix)").spoils == BOTH


def test_a_busy_load_generator_measures_itself() -> None:
    found = guard("generator", found=replace(usual(), cpu_share=0.95))
    assert found.spoils == (SPEED,)


def test_a_server_with_another_clock() -> None:
    run = measured([{**record(n, 120, 36 + n, 2.0 + n / 10)} for n in range(6)])
    assert guard("clock", found=run).state == "ok"
    odd = [record(n, 120, 36 + n, 2.0 + n / 10) for n in range(6)]
    odd[3]["meta"]["e2e_latency"] = 0.4
    found = guard("clock", found=measured(odd))
    assert found.state == "shown"
    assert "p3" in found.detail


def test_a_simulated_server_is_said_to_be() -> None:
    run = measured([record(n, 120, 36 + n, 2.0 + n / 10, simulated=True) for n in range(6)])
    assert "SIMULATED" in guard("simulated", found=run).detail
