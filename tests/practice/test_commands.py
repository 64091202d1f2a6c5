"""The commands as Invoke parses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from invoke.collection import Collection
from invoke.context import Context
from invoke.program import Program

from remote.errors import FixopsError, RefusedError, UsageError
from remote.practice.faults import FAULTS
from remote.practice.tasks import Body, collection
from tests.support import wait_until

Answer = tuple[dict[str, Any], list[str]]


@pytest.fixture
def inv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer | None]:
    """`inv WORDS...` on a practice directory of its own: the command's answer, None if it did not run."""
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "practice"))

    def run(*words: str) -> Answer | None:
        answers: list[Answer] = []
        argv = ["inv", *words]

        def show(_: Context, __: str, ___: bool, body: Body) -> None:
            answers.append(body(lambda _: None))

        namespace = Collection(collection(show, argv))
        Program(namespace=namespace, version="0").run(argv, exit=False)
        return answers[0] if answers else None

    return run


@pytest.mark.parametrize("command", ["up", "down", "break", "heal"])
def test_help_shows_help_and_runs_nothing(
    inv: Callable[..., Answer | None], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert inv(f"practice.{command}", "--help") is None
    assert f"practice.{command} [--options]" in capsys.readouterr().out


def test_break_alone_lists_every_fault(inv: Callable[..., Answer | None]) -> None:
    answer = inv("practice.break")
    assert answer is not None
    entry, lines = answer
    assert [fault["name"] for fault in entry["faults"]] == list(FAULTS)
    assert all(any(name in line for line in lines) for name in FAULTS)


@pytest.mark.parametrize("words", [["no-such"], ["--fault", "no-such"], ["--json", "no-such"]])
def test_break_takes_the_name_with_or_without_its_flag(
    inv: Callable[..., Answer | None], words: list[str]
) -> None:
    with pytest.raises(UsageError, match="no-such"):
        inv("practice.break", *words)


def test_a_name_that_is_nearly_right_is_recognised(inv: Callable[..., Answer | None]) -> None:
    with pytest.raises(UsageError, match="did you mean 'stale-pyc'"):
        inv("practice.break", "stale_pyc")


@pytest.mark.parametrize("words", [["practice.break", "gpu-leak"], ["practice.heal"]])
def test_without_a_node_there_is_nothing_to_break_or_heal(
    inv: Callable[..., Answer | None], words: list[str]
) -> None:
    with pytest.raises(RefusedError) as caught:
        inv(*words)
    assert caught.value.hint == "inv practice.up"


@pytest.mark.parametrize("words", [["--ssh", "telnet"], ["--sglang", "newest"], ["--gpus", "99"]])
def test_up_refuses_what_it_cannot_make(
    inv: Callable[..., Answer | None], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(FixopsError):
        inv("practice.up", *words)
    assert not tmp_path.joinpath("practice").exists()


def test_a_node_lives_from_up_to_down(inv: Callable[..., Answer | None], tmp_path: Path) -> None:
    try:
        made = inv("practice.up", "--gpus", "1")
        broken = inv("practice.break", "gpu-leak")
        listed = inv("practice.break")
        healed = inv("practice.heal")
    finally:
        ended = inv("practice.down")
    assert made
    assert broken
    assert listed
    assert healed
    assert ended
    assert made[0]["outcome"] == "made"
    assert any("inv verify" in line for line in broken[1])
    assert listed[0]["in_force"] == ["gpu-leak"]
    assert [each["fault"] for each in healed[0]["healed"]] == ["gpu-leak"]
    pids = {each["pid"] for each in ended[0]["processes"]}
    assert made[0]["server"]["pid"] in pids
    assert set(made[0]["orphans"]) <= pids
    wait_until(lambda: not tmp_path.joinpath("practice").exists(), what="the end of the directory")
    again = inv("practice.down")
    assert again
    assert again[1] == ["there is no practice node"]
