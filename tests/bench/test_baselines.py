"""Runs that are kept, and found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remote.bench import baselines
from remote.errors import UsageError
from tests.bench.results import empty
from tests.bench.runs import summarised, usual


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
