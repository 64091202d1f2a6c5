"""The prompts: the project's own set, and the user's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remote.bench import prompts
from remote.bench.plan import CONCURRENCY, MAX_TOKENS, plan
from remote.errors import UsageError


def test_the_projects_set_has_short_and_long_code_prose_and_languages() -> None:
    found = prompts.load()
    assert len(found) >= 24
    assert len({prompt.id for prompt in found}) == len(found)
    assert len({prompt.sha256 for prompt in found}) == len(found)
    kinds = {prompt.id.split("-")[0] for prompt in found}
    assert kinds == {"code", "prose", "lang", "long"}
    lengths = sorted(len(prompt.text) for prompt in found)
    assert lengths[0] < 250
    assert lengths[-1] > 1500
    assert {prompt.id.split("-")[0] for prompt in found[:4]} == kinds, "a small number has all kinds too"
    scripts = "".join(prompt.text for prompt in found)
    assert all(letter in scripts for letter in "ßéñ茶線Кب")


def test_what_warms_up_is_not_what_is_measured() -> None:
    assert prompts.warm_up().sha256 not in {prompt.sha256 for prompt in prompts.load()}


def test_json_lines_and_text(tmp_path: Path) -> None:
    lines = tmp_path / "mine.jsonl"
    lines.write_text('{"id": "a", "text": "one"}\n\n{"prompt": "two\\nlines"}\n')
    assert [(p.id, p.text) for p in prompts.load(str(lines))] == [("a", "one"), ("mine:3", "two\nlines")]
    text = tmp_path / "mine.txt"
    text.write_text("one\n\n two \n")
    assert [(p.id, p.text) for p in prompts.load(str(text))] == [("mine:1", "one"), ("mine:3", "two")]


def test_a_mark_in_front_is_no_part_of_the_first_prompt(tmp_path: Path) -> None:
    """With it the first line began with no brace, and all lines were sent as they stand, JSON and all."""
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "one"}\r\n{"id": "b", "text": "two"}\r\n')
    assert [(p.id, p.text) for p in prompts.load(str(path))] == [("a", "one"), ("b", "two")]


def test_text_in_brackets_is_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("[INST] one [/INST]\n[INST] two [/INST]\n")
    assert [p.text for p in prompts.load(str(path))] == ["[INST] one [/INST]", "[INST] two [/INST]"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('[\n{"id": "a", "text": "one"},\n{"id": "b", "text": "two"}\n]\n', "is one JSON list"),
        ('["one", "two"]', "is one JSON list"),
        ("", "holds no prompt"),
        ("  \n", "holds no prompt"),
        ('{"id": "a"}', ":1: no text"),
        ('{"text": "a"}\n{"text"', ":2: not JSON"),
        ('{"text": "a"}\n{"text": ""}', ":2: no text"),
        ('{"text": "\\ud800"}', ":1: not JSON: 'utf-8' codec can't encode"),
        ('{"text": ' + "[" * 100_000, ":1: not JSON: it is nested too deeply"),
        ('{"text": "a"}\n{"text": "a"}', "twice"),
        ('{"id": "x", "text": "a"}\n{"id": "x", "text": "b"}', "twice"),
    ],
)
def test_what_is_no_file_of_prompts(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        prompts.load(str(path))
    assert words in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        prompts.load(str(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        prompts.load(str(tmp_path / "bytes"))


def test_the_digest_is_one_of_the_set_and_not_of_its_order() -> None:
    one, other = prompts.load()[:2]
    assert prompts.set_digest([one, other]) == prompts.set_digest([other, one])
    assert prompts.set_digest([one]) != prompts.set_digest([other])


def test_a_plan_asks_each_prompt_once_by_default() -> None:
    found = plan()
    assert found.order == tuple(prompt.id for prompt in prompts.load())
    assert (found.concurrency, found.max_tokens) == (CONCURRENCY, MAX_TOKENS)
    body = found.bodies()[found.order[0]]
    assert body["sampling_params"] == {"temperature": 0, "max_new_tokens": MAX_TOKENS}


def test_more_requests_than_prompts_go_round(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("one\ntwo\n")
    found = plan(prompts=str(path), requests=5)
    assert found.order == ("p:1", "p:2", "p:1", "p:2", "p:1")
    assert len(found.bodies()) == 2
    assert plan(prompts=str(path), requests=1).concurrency == 1
    assert json.loads(json.dumps(found.to_json()))["requests"] == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": -1},
        {"concurrency": -3},
        {"concurrency": 5000},
        {"max_tokens": 2},
        {"limit_s": -1},
        {"client": "vllm"},
    ],
)
def test_numbers_that_mean_nothing(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        plan(**wrong)  # type: ignore[arg-type]
