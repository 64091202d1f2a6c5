"""Replies of real servers, and accept lengths and rates by version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.sglang import accept, metrics, versions
from tests.sglang import data


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_server_info(version: str) -> None:
    info = metrics.server_info(data.reply(f"server_info_{version}.json"))
    assert (info.version, info.num_draft_tokens, len(info.ranks)) == (version, 6, 1)
    # Nothing was decoded long enough to be logged.
    assert info.accept.accept_len is None
    assert info.accept.known == 0
    assert "internal_states" not in info.args


def test_secrets_of_a_reply_are_masked() -> None:
    info = metrics.server_info({"version": "0.5.9", "api_key": "SECRETVALUE", "admin_api_key": None})
    assert "SECRETVALUE" not in str(info)
    assert info.args == {"api_key": "***", "admin_api_key": None}


def test_generation_under_old_and_new_names() -> None:
    old = metrics.generation(data.reply("generate_0.5.9.json"))
    first, second = map(metrics.generation, data.reply("generate_batch_0.5.23.json"))
    assert (old.completion_tokens, old.verify_ct, old.accept_len) == (64, 16, 4.0)
    assert old.histogram == (4, 1, 2, 1, 0, 8)
    assert (first.completion_tokens, first.verify_ct) == (300, 74)
    assert first.accept_len == pytest.approx(first.accept_len_server)
    assert second.accept_len == pytest.approx(second.accept_len_server)


def test_the_server_s_rate_is_ours_where_the_wheels_say_so() -> None:
    old = metrics.generation(data.reply("generate_0.5.9.json"))
    definition = accept.definition("0.5.9", accept.META_INFO)
    assert definition is not None
    assert definition.formula == accept.OUR_RATE
    assert accept.accept_rate(old.accept_len, 6) == pytest.approx(old.accept_rate_server)


def test_without_speculation_there_is_no_accept_length() -> None:
    replies = map(metrics.generation, data.reply("generate_nospec_0.5.23.json"))
    assert [reply.accept_len for reply in replies] == [None, None]


@pytest.mark.parametrize(
    ("version", "logged", "meta"),
    [
        ("0.5.3", None, None),
        ("0.5.4", "accept_len / (num_steps + 1)", "(accept_len - 1) / num_steps"),
        ("0.5.9", "accept_len / num_draft_tokens", accept.OUR_RATE),
        ("0.5.10.post1", "accept_len / num_draft_tokens", accept.OUR_RATE),
        ("0.5.11", accept.OUR_RATE, accept.OUR_RATE),
        ("0.5.23", accept.OUR_RATE, accept.OUR_RATE),
    ],
)
def test_definitions_by_version(version: str, logged: str | None, meta: str | None) -> None:
    found = [accept.definition(version, where) for where in (accept.LOGGED, accept.META_INFO)]
    assert [each.formula if each else None for each in found] == [logged, meta]


@pytest.mark.parametrize(
    ("name", "version"), [("eagle3_0.5.9.log", "0.5.9"), ("eagle3_0.5.23.log", "0.5.23")]
)
def test_real_decode_lines_keep_to_their_definition(name: str, version: str) -> None:
    samples = data.samples(data.capture(name))
    assert samples
    for sample in samples:
        assert sample.accept_len is not None
        assert sample.accept_rate_logged is not None
        # Both are rounded: half a unit each, the length's divided by the denominator.
        rate = data.defined_rate(version, sample.accept_len, 6)
        assert rate == pytest.approx(sample.accept_rate_logged, abs=0.0105)


def test_without_speculation_there_is_no_rate() -> None:
    assert accept.accept_rate(None, 6) is None
    assert accept.accept_rate(1.0, 1) is None


@given(st.lists(st.tuples(st.floats(1, 8), st.integers(1, 1000)), min_size=1, max_size=8))
def test_ranks_are_weighted_by_their_verifications(ranks: list[tuple[float, int]]) -> None:
    found = accept.combine([*ranks, (None, None)])
    tokens = sum(length * count for length, count in ranks)
    assert found.accept_len == pytest.approx(tokens / sum(count for _, count in ranks))
    assert found.low is not None
    assert found.high is not None
    assert found.low - 1e-9 <= (found.accept_len or 0) <= found.high + 1e-9
    assert (found.known, found.total) == (len(ranks), len(ranks) + 1)


def test_replies_of_other_shapes() -> None:
    wrapped = {
        "server_args": {"speculative_num_draft_tokens": 4},
        "internal_states": {"avg_spec_accept_length": 2.5},
    }
    info = metrics.server_info(wrapped)
    assert (info.num_draft_tokens, info.version) == (4, None)
    assert info.ranks[0].accept_len == 2.5
    flat = metrics.server_info({"avg_spec_accept_length": 2.0, "tp_size": 8})
    assert flat.ranks[0].accept_len == 2.0
    assert metrics.server_info({}).accept.total == 1
    json.dumps(metrics.server_info(wrapped).args)


def test_versions_in_order() -> None:
    order = [
        "0.4.10",
        "0.5.3rc0",
        "0.5.3",
        "0.5.3.post3",
        "0.5.9",
        "0.5.10.dev5+gabc",
        "0.5.10",
        "0.5.10.post1",
        "0.5.11",
    ]
    assert sorted(order, key=versions.parse) == order
    assert versions.at_least("0.5.10.post1", "0.5.10")
    assert not versions.at_least("0.5.9", "0.5.10")
