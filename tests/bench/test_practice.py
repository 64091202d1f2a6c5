"""The incident on a practice node: before 1.5, with the three edits still 1.5, with the whole bundle 3.4."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.kit import Practice, finish, standing
from tests.support import wait_until

# A step of the simulated server takes this long instead of 20 ms: its acceptance is the same.
STEP_MS = 4.0
# As little as tells 1.5 from 3.4 beyond doubt.
SMALL = ("--requests", "12", "--max-tokens", "64", "--concurrency", "6")
FIGURES = ("output_tok_s", "accept_len", "accept_rate", "implied_step_acceptance")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    root = tmp_path_factory.mktemp("node").resolve()
    for made in standing(root / "practice"):
        made.settings(step_ms=STEP_MS)
        yield Practice(made.root, {**made.env, "XDG_STATE_HOME": str(root / "xdg")})


def figure(entry: dict[str, Any], name: str) -> float:
    value = entry["summary"][name]
    assert value["low"] <= value["median"] <= value["high"]
    return float(value["median"])


def test_the_incident_measured(node: Practice) -> None:
    refused = node.inv("bench", "--json").is_(7)
    assert refused.document["error"] is None
    assert refused.entry["runs"] == []
    assert "wiring.graph" in refused.entry["refused"]

    before = node.inv("bench", "--anyway", "--save-as", "before", "--json", *SMALL).is_(0).entry
    assert before["verdict"] == "no-baseline"
    assert figure(before, "accept_len") == pytest.approx(1.52, abs=0.25)
    assert before["fix"]["applied"] is False

    # The wiring of decode is wrong: deploy-fix says so with 7, and the node is as the incident left it.
    three = ("--fix", "eagle3-three-edits")
    node.inv("deploy-fix", *three, "--yes", "--json").is_(7)
    useless = node.inv("bench", "--anyway", *three, "--baseline", "before", "--json", *SMALL).is_(9)
    assert useless.document["error"] is None
    entry = useless.entry
    assert entry["verdict"] == "ineffective"
    assert entry["fix"]["applied"] is True
    assert figure(entry, "accept_len") == pytest.approx(1.52, abs=0.25)
    assert entry["comparison"]["accept_len"]["pairs"] == 12
    assert entry["comparison"]["same_outputs"] == [12, 12]

    ran = node.inv("deploy-fix", "--yes", "--bench", "--json")
    first, after = ran.entry["bench"]["before"], ran.entry["bench"]["after"]
    assert ran.code == 0, after["reasons"]
    assert first["fix"]["state"] == "partial"
    assert figure(first, "accept_len") == pytest.approx(1.52, abs=0.15)
    assert after["verdict"] == "effective"
    assert figure(after, "accept_len") == pytest.approx(3.43, abs=0.3)
    assert figure(after, "implied_step_acceptance") == pytest.approx(0.769, abs=0.04)
    assert after["comparison"]["accept_len"]["ratio"]["low"] > 1.8
    assert after["comparison"]["accept_len"]["pairs"] == 24
    assert json.loads(Path(after["kept"]).read_text())["verdict"] == "effective"

    # The contract's shape.
    assert set(after["runs"][0]) >= {"output_tok_s", "completion_tokens", "e2e_s", "verify_ct", "accept_len"}
    for summary in (after["summary"], after["baseline"]):
        assert all(set(summary[name]) == {"median", "low", "high"} for name in FIGURES)
        assert (summary["num_draft_tokens"], summary["sglang_version"]) == (6, "0.5.9")
    assert after["baseline"]["name"] == "before the deploy"
    assert after["expected"] == {"accept_len": 3.4}
    assert after["summary"]["simulated"] is True
    assert after["wiring"]["graph"] == ["embed", "in:3", "in:31"]
    rows = [row for row in node.inv("history", "--json").entry["actions"] if row["action"] == "bench"]
    assert [row["outcome"] for row in rows] == ["ok"] * 4


def deployed(node: Practice) -> None:
    """Also where this test runs alone."""
    if node.inv("verify", "--json").code != 0:
        node.deploy()


def test_a_stop_within_the_run_gives_what_was_measured(node: Practice) -> None:
    deployed(node)
    asked = node.log.read_text().count("POST /generate")
    more = ("--requests", "3000", "--max-tokens", "64", "--concurrency", "6")
    with node.begun("bench", "--json", *more) as process:
        # At most 12 warm-up runs of 6 requests, and what verify asks for; the rest is the run.
        wait_until(lambda: node.log.read_text().count("POST /generate") > asked + 120, 120, what="the run")
        process.send_signal(signal.SIGINT)
        ran = finish(process)
    assert ran.code == 130, ran
    assert ran.document["error"]["code"] == "interrupted"
    assert ran.entry["verdict"] == "inconclusive"
    assert 1 <= len(ran.entry["runs"]) < 3000
    assert figure(ran.entry, "accept_len") == pytest.approx(3.43, abs=0.6)
    node.inv("verify", "--json").is_(0)


def test_errors_are_told_before_the_node_is_reached(node: Practice) -> None:
    node.inv("bench", "--baseline", "nothing-like-it").refuses(2, "no baseline", "incident")
    node.inv("bench", "--save-as", "../x").refuses(2, "name")
    node.inv("bench", "--prompts", "/nowhere/prompts.txt").refuses(2, "cannot be read")


def test_sglangs_own_client_is_unknown_where_it_cannot_run(node: Practice) -> None:
    """The practice node has SGLang's files, and nothing of what they import."""
    deployed(node)
    ran = node.inv("bench", "--client", "sglang", "--json").is_(8)
    assert ran.entry["verdict"] == "inconclusive"
    assert ran.entry["summary"] is None
    assert "sglang.bench_serving gave no result" in ran.entry["reasons"][0]
