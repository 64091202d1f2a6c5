"""Public reports about measuring, each with its right answer. The numbers are theirs.

Those of which only the situation was reported, not the lines, have inputs of our own here.
"""

# Lines of logs are as long as they are.

from __future__ import annotations

import json

import pytest

from remote.sglang import accept, benchreport, decode, metrics
from tests.sglang import data


def test_099_one_rate_of_our_own_and_the_server_s_by_name() -> None:
    samples = data.samples(data.case("099"))
    assert [item.accept_len for item in samples] == [2.17, 2.7, 2.69]
    assert [item.accept_rate_logged for item in samples] == [0.54, 0.57, 0.24]
    assert [item.gen_tok_s for item in samples] == [178.86, 123.73, 22.47]
    rows = [
        ("0.5.9", 2.17, 0.54, 4),
        ("0.5.9", 2.3377, 0.7795, 3),
        ("0.5.23", 2.7, 0.57, 4),
        ("0.5.23", 2.69, 0.24, 8),
    ]
    ours = [accept.accept_rate(length, draft_tokens) for _, length, _, draft_tokens in rows]
    assert [round(rate or 0, 2) for rate in ours] == [0.39, 0.67, 0.57, 0.24]
    # What the server logged is what its version's definition makes of the length.
    for version, length, logged, draft_tokens in rows:
        assert data.defined_rate(version, length, draft_tokens) == pytest.approx(logged, abs=0.0105)


def test_101_itl_of_chunks() -> None:
    report = benchreport.read(data.case("101"))
    assert report.chunk_ratio == pytest.approx(2.55, abs=0.01)
    assert not report.low_peak
    honest = data.case("101").replace("8.72", "3.42")
    assert benchreport.read(honest).chunk_ratio is None


def test_102_a_peak_below_the_average() -> None:
    assert benchreport.read(data.case("102")).low_peak


def test_104_never_rank_zero_alone() -> None:
    info = metrics.server_info(json.loads(data.case("104")))
    found = info.accept
    assert (found.low, found.middle, found.high) == (2.9, 3.67, 4.64)
    assert (found.accept_len, found.known, found.total) == (None, 3, 6)


def test_111_falling_out_of_the_graphs() -> None:
    line = "[2025-09-16 10:00:00] Decode batch. #running-req: {}, accept len: 2.90, cuda graph: {}, #q: 0\n"
    summary = decode.summarise(data.samples(line.format(2, True) + line.format(8, False)))
    assert summary is not None
    assert summary.graph_share == 0.5
