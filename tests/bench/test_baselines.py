"""Runs that are kept, and found again."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.bench import baselines
from remote.bench.compare import compare
from remote.bench.verdict import judge
from remote.errors import UsageError
from tests.bench.results import empty
from tests.bench.runs import LOAD, summarised, usual


@pytest.fixture(autouse=True)
def xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fixops"


def document(**more: Any) -> dict[str, Any]:
    run = usual()
    found = empty(requests=run.requests, summary=summarised(run), saved_as="before")
    return {**found.document(), **more}


def test_a_run_is_kept_by_id_and_by_name_and_is_the_same_again(xdg: Path) -> None:
    kept = baselines.keep(document(), save_as="before")
    assert kept == xdg / "baselines" / "before.json"
    assert (xdg / "bench" / "here" / "20261129T100000Z-aaaa.json").read_text() == kept.read_text()
    for name in ("before", "20261129T100000Z-aaaa", str(kept)):
        found = baselines.find(name)
        assert found.summary.accept_len == baselines.parse(document(), kept, "x").summary.accept_len
        assert found.summary.accept_len.to_json() == summarised(usual()).accept_len.to_json()
        assert len(found.runs) == 12
        assert found.runs[0].prompt_sha256 == usual().requests[0].prompt_sha256
        assert (found.fix, found.fix_applied) == ("eagle3-embedding-capture", True)
        assert found.load.concurrency == 4


def test_a_run_without_a_name_is_kept_too(xdg: Path) -> None:
    assert baselines.keep(document(), save_as=None).parent == xdg / "bench" / "here"
    assert baselines.names() == ["incident"]


def test_a_name_that_looks_like_a_file_is_found_where_there_is_no_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was among the known ones, and could not be found."""
    monkeypatch.chdir(tmp_path)
    baselines.keep(document(), save_as="before.json")
    assert baselines.find("before.json").name == "before.json"
    (tmp_path / "before.json").write_text('{"schema": 1, "summary": {"accept_len": 1.8}}')
    assert baselines.find("before.json").summary.accept_len.median == 1.8


def test_a_later_run_of_the_name_takes_its_place(xdg: Path) -> None:
    baselines.keep(document(), save_as="before")
    baselines.keep(document(run_id="20261130T100000Z-bbbb"), save_as="before")
    assert baselines.find("before").document["run_id"] == "20261130T100000Z-bbbb"
    assert len(list((xdg / "bench" / "here").iterdir())) == 2


def test_the_incidents_figures_load() -> None:
    found = baselines.find("incident")
    assert (found.summary.accept_len.median, found.summary.output_tok_s.median) == (1.8, 54.8)
    assert found.summary.speculation.num_draft_tokens == 6
    assert found.summary.implied_step_acceptance.median == pytest.approx(0.449, abs=0.001)
    assert found.summary.accept_rate.median == pytest.approx(0.16)
    shown = found.to_json()
    assert shown["server"]["accept_rate"]["median"] == 0.3
    assert shown["name"] == "incident"
    assert "without effect" in shown["note"]


def test_a_file_needs_no_more_than_one_figure(tmp_path: Path) -> None:
    path = tmp_path / "paper.json"
    path.write_text('{"summary": {"accept_len": 2.5}}')
    found = baselines.find(str(path))
    assert (found.name, found.summary.accept_len.median, found.runs) == ("paper", 2.5, ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be read"),
        ("[]", "no summary"),
        ('{"summary": 3}', "no summary"),
        ('{"summary": {"sglang_version": "0.5.9"}}', "neither accept_len nor output_tok_s"),
        ('{"schema": 9, "summary": {"accept_len": 2}}', "schema 9"),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        baselines.find(str(path))
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('"summary": {"accept_len": 1.8, "num_steps": "5"}', "summary.num_steps is '5': input should be a"),
        ('"summary": {"accept_len": 1.8, "num_steps": 5.5}', "summary.num_steps is 5.5"),
        ('"summary": {"accept_len": 1.8, "num_steps": 1e9}', "summary.num_steps is 1000000000"),
        ('"summary": {"accept_len": 1.8, "requests": "many"}', "summary.requests is 'many'"),
        ('"summary": {"accept_len": "1.8"}', "summary.accept_len is '1.8': a figure is a number"),
        ('"summary": {"accept_len": -1.8}', "it must be above 0"),
        ('"summary": {"accept_len": {"median": 1.8, "low": 2}}', "between its own low and high"),
        ('"summary": {"accept_len": NaN}', "NaN is no number in JSON"),
        ('"summary": {"accept_len": 1e999}', "1e999 is no number in JSON"),
        (
            '"summary": {"accept_len": 1.8}, "load": "4 at once"',
            "load is '4 at once': input should be a valid",
        ),
        ('"summary": {"accept_len": 1.8}, "fix": "none"', "fix is 'none'"),
        ('"summary": {"accept_len": 1.8}, "runs": [1.8]', "runs.0 is 1.8"),
        ('"summary": {"accept_len": 1.8}, "runs": [{"e2e_s": "2 s"}]', "runs.0.e2e_s is '2 s'"),
        ('"summary": {"accept_len": 1.8}, "warm_up": {"spread": -1}', "warm_up.spread is -1"),
        ('"summary": {"accept_len": 1.8}, "guards": {}', "guards is {}"),
        ('"x": ' + "[" * 100_000, "nested too deeply"),
        ('"summary": {"accept_len": 1.8}, "note": "\\ud800"', "surrogates not allowed"),
    ],
)
def test_what_was_written_by_hand_and_is_wrong_is_named(tmp_path: Path, more: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(f'{{"schema": 1, {more}}}')
    with pytest.raises(UsageError) as caught:
        baselines.find(str(path))
    assert str(path) in caught.value.message
    assert words in caught.value.message


def test_a_whole_number_may_be_written_with_a_point(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"summary": {"accept_len": 2, "num_steps": 5.0, "requests": 24.0}, "runs": null}')
    found = baselines.find(str(path)).summary
    assert (found.speculation.num_steps, found.requests) == (5, 24)
    assert found.implied_step_acceptance.median is not None


# What people write where a value is wanted: right, nearly right, and anything at all.
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from([5, 1.8, "5"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value of a document stands; the document itself is at ()."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


def changed(document: Any, at: tuple[Any, ...], value: Any) -> Any:
    """With another value there; as it is where an earlier change took the place away."""
    if not at:
        return value
    key, *rest = at
    if isinstance(document, dict) and key in document:
        return {**document, key: changed(document[key], tuple(rest), value)}
    if isinstance(document, list) and key in range(len(document)):
        return [*document[:key], changed(document[key], tuple(rest), value), *document[key + 1 :]]
    return document


WHOLE = json.loads(
    json.dumps(
        document(
            requests=None,
            runs=[request.to_json() for request in usual(6).requests],
            guards=[{"id": "complete", "spoils": ["output_tok_s"]}],
            warm_up={"spread": 0.01},
            baseline=summarised(usual(6)).to_json(),
        )
    )
)
CHANGES = st.lists(st.tuples(st.sampled_from(places(WHOLE)), JSON), max_size=3)


@settings(max_examples=400, deadline=None)
@given(
    document=JSON
    | CHANGES.map(lambda found: reduce(lambda so_far, each: changed(so_far, *each), found, WHOLE))
)
def test_any_document_is_a_baseline_or_an_error_that_says_why(document: Any) -> None:
    try:
        found = baselines.parse(document, Path("x.json"), None)
    except UsageError:
        return
    now = usual(6)
    figures = summarised(now)
    comparison = compare(now, figures, LOAD, 0.01, found)
    judge(figures, (), {}, found, comparison, spread=0.01, applied=True, fix="x")
    json.dumps([comparison.to_json(), found.summary.to_json()], allow_nan=False)


def test_one_that_is_not_there_names_those_that_are() -> None:
    baselines.keep(document(), save_as="before")
    with pytest.raises(UsageError) as caught:
        baselines.find("befor")
    assert "before, incident" in caught.value.hint


@pytest.mark.parametrize("name", ["", "../x", "a b", "/etc/passwd", ".hidden", "x" * 65])
def test_names_are_file_names(name: str) -> None:
    with pytest.raises(UsageError):
        baselines.check_name(name)
    with pytest.raises(UsageError):
        baselines.find(name)


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot be kept"):
        baselines.prepare("here")
    with pytest.raises(UsageError, match="cannot be kept"):
        baselines.keep(document(), save_as=None)


def test_without_xdg_it_lies_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert baselines.directory() == tmp_path / ".local" / "state" / "fixops"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert baselines.directory() == tmp_path / ".local" / "state" / "fixops"


def test_what_guards_spoiled_is_remembered() -> None:
    guards = [{"id": "complete", "state": "spoils", "detail": "", "spoils": ["accept_len", "output_tok_s"]}]
    found = baselines.parse(document(guards=guards), Path("x.json"), "x")
    assert found.spoiled == ("accept_len", "output_tok_s")


def test_the_document_is_json() -> None:
    assert json.loads(json.dumps(document()))["kind"] == "fixops-bench"
