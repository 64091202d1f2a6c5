"""Which benchmark is the one before a deploy, which the one after, and what pairs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remote.report.missing import missing
from remote.report.model import Brought, Missing
from remote.report.runs import JOURNAL, SECOND, all_runs, brought, from_document, kept, pairs
from tests.report.kit import BEGAN_S, CHECKS, after, before, deploy

END = BEGAN_S + 1000


def told(document: dict[str, Any]) -> dict[str, Any]:
    """The journal's entry of a run (bench/keeping.py)."""
    figures = {key: document["summary"][key] for key in ("accept_len", "output_tok_s", "num_draft_tokens")}
    known = {"command": "bench", "action": "bench", "phase": "end", "outcome": "ok", "who": "bob@desk"}
    return {
        **known,
        "deploy_id": document["run_id"],
        "time": document["time"],
        "bench": {"verdict": document["verdict"], **figures},
    }


def found(*documents: dict[str, Any]) -> Brought:
    return brought(all_runs([told(each) for each in documents], documents), BEGAN_S, END)


def ids(result: Brought) -> tuple[str | None, str | None]:
    return result.before and result.before.run_id, result.after and result.after.run_id


def test_the_last_run_on_each_side_is_taken() -> None:
    old = before(run_id="old", time=BEGAN_S - 500)
    late = after(run_id="late", time=BEGAN_S + 300)
    gone = after(run_id="gone", time=END + 1)  # after the next deploy
    result = found(old, before(), after(), late, gone)
    assert ids(result) == (before()["run_id"], "late")


def test_a_run_within_the_second_that_the_id_tells_is_one_before() -> None:
    result = found(before(time=BEGAN_S + SECOND / 2))
    assert ids(result) == (before()["run_id"], None)


def test_the_run_that_the_run_after_was_held_against_goes_first() -> None:
    named = before(run_id="named", time=BEGAN_S - 900)
    base = {**named["summary"], "run_id": "named", "name": "good old"}
    result = found(named, before(), after(baseline=base))
    assert ids(result) == ("named", after()["run_id"])
    assert result.comparison == after()["comparison"]


def test_a_comparison_with_something_else_is_not_shown() -> None:
    other = {**before()["summary"], "run_id": "elsewhere", "name": "incident"}
    result = found(before(), after(baseline=other))
    assert ids(result) == (before()["run_id"], after()["run_id"])
    assert result.comparison is None


def test_a_baseline_from_elsewhere_stands_in_for_the_run_before() -> None:
    result = found(after(baseline={"summary": 1, "accept_len": 1.8, "name": "incident", "time": None}))
    assert result.before is not None
    assert result.before.name == "incident"
    assert result.before.summary.accept_len.median == 1.8
    assert "incident" in result.before.source
    assert result.comparison is not None


def test_runs_that_say_nothing_of_the_draft_or_were_stopped_are_left_out() -> None:
    client = after(run_id="client", time=BEGAN_S + 50, load={"client": "sglang"})
    stopped = after(run_id="stopped", time=BEGAN_S + 60, interrupted=True)
    assert ids(found(before(), after(), client, stopped)) == (before()["run_id"], after()["run_id"])


def test_a_run_that_the_nodes_journal_does_not_tell_was_of_another_node() -> None:
    assert all_runs([told(before())], [before(), after()]) == [from_document(before())]


def test_of_a_colleagues_run_the_figures_are_known() -> None:
    (run,) = all_runs([told(before())], [])
    assert (run.source, run.who, run.wiring, dict(run.prompts)) == (JOURNAL, "bob@desk", None, {})
    assert run.summary.accept_len.to_json() == pytest.approx(before()["summary"]["accept_len"])


def test_a_damaged_entry_of_the_journal_is_no_run() -> None:
    entry = told(before())
    assert all_runs([{**entry, "bench": {**entry["bench"], "accept_len": "long"}}], []) == []


def test_prompts_are_paired_and_repeats_averaged() -> None:
    first = before()
    first["runs"].append({**first["runs"][0], "accept_len": 2.5, "output_tok_s": None})
    first["runs"] = [*first["runs"][:1], *first["runs"][2:]]
    seen = {pair.prompt: pair for pair in pairs(from_document(first), from_document(after()))}
    assert list(seen) == ["code-parser", "prose-tides", "long-letters", "code-sql"]
    assert seen["code-parser"].accept_len == (2.0, 3.375)
    assert seen["code-parser"].output_tok_s == (50.0, 125.0)


def test_damaged_files_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(before()))
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text("[]")
    (tmp_path / "d.json").write_text(json.dumps({**before(), "runs": [1.8]}))
    (tmp_path / "e.json").write_text(json.dumps({**before(), "summary": {"accept_len": "long"}}))
    (tmp_path / "f.json").write_text(json.dumps({**before(), "comparison": {"accept_len": {"ratio": "2"}}}))
    (tmp_path / "g.json").write_text(json.dumps({**before(), "expected": [3.4]}))
    (tmp_path / "h.json").write_text(json.dumps({**before(), "guards": [{"state": ["ok"]}]}))
    (tmp_path / "i.json").write_text(
        json.dumps({**before(), "summary": {"accept_len": 2, "definitions": []}})
    )
    (each,) = kept(tmp_path)
    assert each["kept"] == str(tmp_path / "a.json")
    assert kept(tmp_path / "nowhere") == []


def test_each_thing_missing_has_the_command_that_makes_it() -> None:
    def commands(*given: Any) -> list[str]:
        return [each.command for each in missing("n", *given)]

    nothing = Brought(None, None, (), None)
    first, both = found(before()), found(before(), after())
    run = before()["run_id"]
    assert commands(None, CHECKS, nothing) == [
        "inv deploy-fix --node n",
        "inv bench --anyway --save-as before --node n",
    ]
    assert commands(deploy(), CHECKS, first) == [f"inv bench --baseline {run} --node n"]
    assert commands(deploy(), CHECKS, both) == []
    assert commands(deploy(later=("restart (x, by y)",)), CHECKS, both) == []
    assert commands(deploy(later=("push-fix z (x, by y)",)), CHECKS, both) == ["inv history --node n"]
    assert commands(deploy(restored=1.0), CHECKS, both) == ["inv deploy-fix --node n"]
    assert commands(deploy(), CHECKS, Brought(both.before, both.after, both.pairs, None)) == [
        f"inv bench --baseline {run} --node n"
    ]
    assert Missing("no benchmark after the deploy", "inv bench --node n") in [
        *missing("n", deploy(), CHECKS, nothing)
    ]
