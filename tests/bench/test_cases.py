"""Public reports about measuring (the corpus's numbers), and what this benchmark makes of each."""

from __future__ import annotations

from typing import Any

import pytest

from remote.bench import second, summary, verdict, warmup
from remote.bench.assemble import judged
from remote.bench.compare import compare
from remote.bench.guards import look
from remote.bench.meanwhile import logged
from remote.bench.plan import plan
from remote.bench.result import WarmUp
from remote.bench.stats import Figure
from remote.bench.summary import Speculation, rate_of, server_definition
from remote.sglang import accept, decode
from remote.sglang.lines import entries, numbered
from tests.bench.results import empty
from tests.bench.runs import LOAD, SIX, measured, past, quiet, record, seen, summarised, usual
from tests.sglang import data


def test_037_a_random_lm_head_is_ineffective_and_not_made_up() -> None:
    """Accept length 1.00: 24 answers of 256 tokens, 255 verifications each."""
    run = measured([record(n, 256, 255, 4.6 + n / 100) for n in range(24)])
    guards = look(seen(run, max_tokens=256))
    found = verdict.judge(
        summarised(run), guards, {"accept_len": 3.4}, None, None, spread=None, applied=True, fix="some"
    )
    assert (found.word, found.exit_code) == ("ineffective", 9)


@pytest.mark.parametrize(
    ("length", "draft_tokens", "rate"), [(2.17, 4, 0.39), (2.3377, 3, 0.67), (2.7, 4, 0.57), (2.69, 8, 0.24)]
)
def test_099_one_rate_of_our_own_in_every_version(length: float, draft_tokens: int, rate: float) -> None:
    found = rate_of(Figure(length), Speculation(draft_tokens, draft_tokens - 1, 1))
    assert round(found.median or 0, 2) == rate


def test_099_the_servers_own_rate_is_named_by_its_version() -> None:
    found = summarised(measured([record(0, 12, 4, 1.0, spec_accept_rate=0.4)])).to_json()
    assert found["server"]["accept_rate"]["median"] == 0.4
    assert found["server"]["accept_rate_definition"] == accept.OUR_RATE
    assert found["accept_rate"]["median"] == pytest.approx((3 - 1) / (6 - 1))
    assert server_definition("0.5.3.post3") == "(accept_len - 1) / num_steps"
    assert server_definition("0.5.3") == server_definition(None) == server_definition("?") == summary.NO_RATE
    said = {guard.id: guard.detail for guard in look(seen())}
    assert "0.5.9 logs accept_len / num_draft_tokens" in said["accept-rate-definition"]


def test_101_tokens_are_the_servers_and_not_the_chunks() -> None:
    # 292.29 tok/s in chunks of 2.55 tokens: 117 chunks in 1.02 s are 298 tokens.
    (request,) = measured([{**record(0, 298, 117, 298 / 292.29), "events": 117}]).requests
    assert request.output_tok_s == pytest.approx(292.29)
    assert request.to_json()["output_tok_s"] == 292.29


def client_result(**more: Any) -> dict[str, Any]:
    found = {
        "output_throughput": 183.80,
        "total_throughput": 393.68,
        "input_throughput": 209.88,
        "duration": 128.433,
        "completed": 8,
        "total_output_tokens": 23606,
        "concurrency": 7.01,
        "accept_length": 2.14,
        "output_lens": [2950] * 8,
        "ttfts": [0.5] * 8,
        "itls": [[0.1] * 1120] * 8,
        "errors": [""] * 8,
    }
    return {**found, **more}


PRINTED = """
Output token throughput (tok/s):         183.80
Peak output token throughput (tok/s):    99.00
Total token throughput (tok/s):          393.68
Median ITL (ms):                         100.00
Concurrency:                             7.01
Accept length:                           2.14
"""


def client_bench(found: dict[str, Any], printed: str) -> Any:
    return second.assemble(empty(), plan(), "0.5.9", found, printed, quiet())


def test_102_101_a_report_that_counts_chunks_is_said_to() -> None:
    guards = {guard.id: guard.detail for guard in client_bench(client_result(), PRINTED).guards}
    assert "chunks of 2.6 tokens" in guards["client-itl"]
    assert "below its average" in guards["client-peak"]
    lower = client_bench(client_result(output_throughput=414.75), data.case("102"))
    assert "client-peak" in {guard.id for guard in lower.guards}
    assert lower.summary.server_output_tok_s.median == 414.75
    assert "111" not in str(lower.summary.to_json())
    honest = PRINTED.replace("99.00", "299.00").replace("100.00", "38.00")
    guards = {guard.id: guard.detail for guard in client_bench(client_result(), honest).guards}
    assert "client-itl" not in guards
    assert "client-peak" not in guards


def test_109_the_headline_is_output_tokens() -> None:
    found = client_bench(client_result(), data.case("109")).summary
    assert found.server_output_tok_s.median == 183.80
    assert found.concurrency == 7.01
    # Its accept length is the server's running average: none is claimed for the run.
    assert found.accept_len.median is None
    shown = str(found.to_json())
    assert "393.68" not in shown
    assert "209.88" not in shown


def test_109_our_own_two_speeds_are_named() -> None:
    # 4 requests of 120 tokens, 2 at once, 2.4 s each: 50 tok/s for a request, 100 for all.
    run = measured([record(n, 120, 40, 2.4) for n in range(4)], elapsed_s=4.8)
    found = summarised(run)
    assert found.output_tok_s.median == pytest.approx(50.0)
    assert found.server_output_tok_s.median == pytest.approx(100.0)
    assert found.concurrency == pytest.approx(2.0)
    assert found.decode_tok_s.median == pytest.approx(119 / (2.4 * 0.9))


def test_104_ranks_are_combined_by_their_verifications() -> None:
    # Rank 1 verified three times as often: (2.90 * 100 + 4.64 * 300) / 400, not their mean 3.77.
    run = measured([record(0, 290, 100, 5.0, dp_rank=0), record(1, 1392, 300, 5.0, dp_rank=1)])
    found = summarised(run).pooled
    assert found is not None
    assert found.accept_len.median == pytest.approx((2.90 * 100 + 4.64 * 300) / 400)
    assert found.by_rank == ((0, 2.90, 100), (1, 4.64, 300))


def test_104_the_servers_own_averages_are_never_rank_zeros() -> None:
    states = [None, None, 2.90, 3.67, None, 4.64]
    run = summarised(usual(), internal_states=[{"avg_spec_accept_length": value} for value in states])
    found = run.to_json()["server"]["accept_len_cumulative"]
    assert (found["low"], found["median"], found["high"]) == (2.9, 3.67, 4.64)
    assert found["accept_len"] is None
    assert "not this run" in found["scope"]


def test_106_a_run_has_its_own_accept_length() -> None:
    run = measured([record(0, 512, 170, 5.0), record(1, 480, 160, 5.0)])
    found = summarised(run)
    assert found.pooled is not None
    assert found.pooled.accept_len.median == pytest.approx(992 / 330)
    assert round(found.accept_len.median or 0, 2) == 3.01
    assert found.to_json()["server"]["accept_len_cumulative"]["median"] == 2.7


def test_107_warm_means_three_runs_within_3_per_cent() -> None:
    rates = [58.5, 66.0, 83.3, 83.2, 83.1]
    assert [warmup.settled(rates[:count]) for count in range(6)] == [False] * 5 + [True]
    assert not warmup.settled([*rates, 60.4])
    # What never settles is told, and its spread widens the comparison of speeds.
    guard = {g.id: g for g in look(seen(rates=(58.5, 66.0, 83.3)))}["warm-up"]
    assert guard.state == "shown"
    assert "37.6%" in guard.detail
    ours, theirs = usual(speed=60), past(usual(speed=50))
    tight = compare(ours, summarised(ours), LOAD, 0.0, theirs).output_tok_s.ratio
    wide = compare(ours, summarised(ours), LOAD, 0.25, theirs).output_tok_s.ratio
    assert wide.low == pytest.approx((tight.low or 0) / 1.25)
    assert wide.high == pytest.approx((tight.high or 0) * 1.25)


def test_107_a_cold_server_does_not_miss_the_expected_speed() -> None:
    """99.7 tok/s within 3 per cent, where 112.5 would be enough, and a warm-up that still rose by 16.7 %."""
    wobble = [0.98, 0.99, 1.0, 1.01, 1.02, 1.0, 0.97, 1.03]
    run = measured([record(n, 120, 35 + n % 3, 120 / 99.7 / w) for n, w in enumerate(wobble)])
    cold, warm = (60.0, 70.0, 80.0, 90.0, 95.0), (95.0, 95.1, 95.2)
    for rates, word, words in ((cold, "inconclusive", "a server that is warm"), (warm, "ineffective", "not")):
        spread = warmup.spread(rates)
        found = judged(
            empty(expected={"output_tok_s": 125}),
            run,
            summarised(run),
            guards=tuple(look(seen(run, rates=rates))),
            warm_up=WarmUp(rates, spread, warmup.settled(rates)),
        ).verdict
        assert found.word == word
        assert words in found.reasons[0]
        assert f"with the warm-up's spread of {spread:.1%}, expected 125" in found.reasons[0]


def test_107_an_idle_pause_before_the_run_spoils_its_speed() -> None:
    guard = {g.id: g for g in look(seen(gap_s=1800.0))}["idle-before"]
    assert (guard.state, guard.spoils) == ("spoils", ("output_tok_s",))


def test_111_slower_although_the_drafts_are_accepted() -> None:
    """EAGLE-3 at 159.78 tok/s against 222.47 without speculation: 0.72."""
    wobble = [1 + 0.004 * (n - 5.5) for n in range(12)]
    plain = measured([record(n, 120, None, 120 / 222.47 / w) for n, w in enumerate(wobble)])
    without = past(plain, "plain", summary=summarised(plain, speculative_algorithm=None))
    ours = measured([record(n, 120, 64 + n % 2, 120 / 159.78 / w) for n, w in enumerate(wobble)])
    comparison = compare(ours, summarised(ours), LOAD, 0.0, without)
    assert comparison.output_tok_s.ratio.median == pytest.approx(0.72, abs=0.005)
    assert comparison.output_tok_s.pairs == 12
    found = verdict.judge(
        summarised(ours), look(seen(ours)), {}, without, comparison, spread=0.0, applied=True, fix="some"
    )
    assert found.word == "ineffective"
    assert "SLOWER" in found.reasons[0]


def test_111_the_likely_cause_is_shown() -> None:
    line = "[10:00:00] Decode batch. #running-req: {}, accept len: 2.90, cuda graph: {}, #queue-req: 0\n"
    text = line.format(2, True) + line.format(4, False)
    samples = tuple(decode.read(entries(numbered(text))))
    guard = {g.id: g for g in look(seen(meanwhile=quiet(samples=samples)))}["cuda-graph"]
    assert guard.detail == "50% of the decode lines say 'cuda graph: False'"
    shown = logged(samples)
    assert shown is not None
    assert (shown["graph_share"], shown["accept_len"], shown["samples"]) == (0.5, 2.9, 2)


def test_without_speculation_there_is_no_accept_length() -> None:
    plain = measured([record(n, 120, None, 2.4) for n in range(6)])
    found = summarised(plain, speculative_algorithm=None).to_json()
    nothing = {"median": None, "low": None, "high": None}
    assert (found["accept_len"], found["accept_rate"], found["implied_step_acceptance"]) == (nothing,) * 3
    assert (found["pooled"], found["num_draft_tokens"], found["histogram"]) == (None, None, None)
    assert found["output_tok_s"]["median"] == pytest.approx(50.0)


def test_a_tree_has_no_implied_acceptance() -> None:
    assert SIX.chain_steps == 5
    found = summarised(usual(), speculative_eagle_topk=4)
    assert found.accept_len.median is not None
    assert found.implied_step_acceptance.median is None


def test_histograms_add_up_where_every_reply_has_one() -> None:
    run = measured(
        [
            record(0, 12, 4, 1.0, spec_accept_histogram=[1, 2, 1]),
            record(1, 12, 4, 1.0, spec_correct_drafts_histogram=[0, 1, 2, 1]),
        ]
    )
    assert summarised(run).histogram == (1, 3, 3, 1)
    assert (
        summarised(
            measured([record(0, 12, 4, 1.0, spec_accept_histogram=[4]), record(1, 12, 4, 1.0)])
        ).histogram
        is None
    )


def test_the_incidents_two_drafts() -> None:
    """3.43 and 1.52 tokens per verification imply 76.9 % and 34.1 % per step, and rates of 0.49 and 0.10."""
    for length, step, rate in ((3.43, 0.769, 0.486), (1.52, 0.343, 0.104)):
        found = summary.implied_of(Figure(length), SIX).median
        assert found == pytest.approx(step, abs=0.001)
        assert rate_of(Figure(length), SIX).median == pytest.approx(rate, abs=0.001)


def test_a_summary_comes_back_from_its_json() -> None:
    found = summarised(usual())
    again = summary.from_json(found.to_json())
    for name in ("output_tok_s", "accept_len", "accept_rate", "implied_step_acceptance", "speculation"):
        one, other = getattr(found, name), getattr(again, name)
        assert other == one or other.to_json() == one.to_json()
