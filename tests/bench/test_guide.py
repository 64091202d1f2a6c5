"""docs/bench.md names every guard, option and figure that there is, and its examples work."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

import tasks
from remote.bench import baselines, verdict
from remote.bench.guards import look
from remote.bench.plan import CONCURRENCY, LIMIT_S, MAX_TOKENS
from remote.bench.verdict import judge
from tests.bench.runs import seen, summarised, usual

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
COMMON = {"context", "node", "inventory", "json", "fix"}


def test_every_guard_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z][a-z-]+)` \|", GUIDE, re.MULTILINE)
    assert rows == [guard.id for guard in look(seen())]


@pytest.mark.parametrize("name", sorted(set(inspect.signature(tasks.bench.body).parameters) - COMMON))
def test_every_option_is_explained(name: str) -> None:
    assert f"`--{name.replace('_', '-')}" in GUIDE


def test_the_defaults_are_the_plans() -> None:
    assert f"how many at once, {CONCURRENCY} by default" in GUIDE
    assert f"of each answer, {MAX_TOKENS} by default" in GUIDE
    assert f"is given up, {LIMIT_S:.0f} by default" in GUIDE


def test_the_thresholds_are_the_verdicts() -> None:
    assert f"at least {verdict.NEAR_EXPECTED} of it" in GUIDE
    assert f"at least {verdict.GAIN} times it" in GUIDE
    assert f"at least {verdict.KEPT} times it | below {verdict.REGRESSED} times it" in GUIDE


def test_every_verdict_is_explained() -> None:
    for word in ("effective", "ineffective", "inconclusive", "no-baseline"):
        assert f"**{word}**" in GUIDE
    assert (
        judge(summarised(usual()), (), {}, None, None, spread=None, applied=True, fix="x").word
        == "no-baseline"
    )


def test_the_baseline_that_it_shows_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    path = tmp_path / "theirs.json"
    path.write_text(text)
    found = baselines.find(str(path))
    theirs = baselines.find("incident")
    assert found.summary.accept_len == theirs.summary.accept_len
    assert found.summary.output_tok_s == theirs.summary.output_tok_s
    assert json.loads(text)["schema"] == baselines.SCHEMA
    assert "0.449" in GUIDE
