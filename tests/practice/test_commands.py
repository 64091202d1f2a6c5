"""The commands as Invoke parses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from invoke.collection import Collection
from invoke.context import Context
from invoke.program import Program

from remote.errors import FixopsError, LockedError, RefusedError, UsageError
from remote.practice import processes, record
from remote.practice.breaking import in_force
from remote.practice.faults import FAULTS
from remote.practice.layout import Layout
from remote.practice.tasks import Body, Given, collection
from remote.practice.up import Up
from tests.end_to_end.kit import VOLATILE, tree
from tests.support import wait_until

Answer = tuple[dict[str, Any], list[str]]


def run(*words: str) -> tuple[Given, Answer] | None:
    """`inv WORDS...`: what was given to the command and what it answers, None if it did not run."""
    answers: list[tuple[Given, Answer]] = []
    argv = ["inv", *words]

    def show(_: Context, __: str, given: Given, body: Body) -> None:
        answers.append((given, body(lambda _: None)))

    namespace = Collection(collection(show, argv))
    Program(namespace=namespace, version="0").run(argv, exit=False)
    return answers[0] if answers else None


@pytest.fixture
def inv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer | None]:
    """`inv WORDS...` on a practice directory of its own: the command's answer, None if it did not run."""
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "practice"))

    def answer(*words: str) -> Answer | None:
        found = run(*words)
        return found[1] if found else None

    return answer


@pytest.fixture
def tells(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """`inv WORDS... --dry-run` on the node of this layout, which must be the same afterwards."""

    def answer(layout: Layout, *words: str) -> Answer:
        monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(layout.root))
        before = (tree(layout.root, skip=VOLATILE), processes.of(layout))
        try:
            found = run(*words, "--dry-run")
        finally:
            assert (tree(layout.root, skip=VOLATILE), processes.of(layout)) == before
        assert found is not None
        assert found[1][0]["dry_run"] is True
        return found[1]

    return answer


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


@pytest.mark.parametrize(
    "words", [["gpu-leak", "--node", "lab"], ["--node", "lab", "gpu-leak"], ["--inventory", "x", "gpu-leak"]]
)
def test_the_values_of_other_flags_are_not_taken_for_the_fault(
    inv: Callable[..., Answer | None], words: list[str]
) -> None:
    with pytest.raises(RefusedError, match="not up"):
        inv("practice.break", *words)
    assert inv("practice.break", *[word for word in words if word != "gpu-leak"])


@pytest.mark.parametrize("command", ["practice.up --dry-run", "practice.down", "practice.break"])
def test_every_command_is_given_the_node_and_its_inventory(tmp_path: Path, command: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "practice"))
        found = run(*command.split(), "--node", "lab", "--inventory", "mine.yaml", "--json", "--yes")
    assert found
    assert found[0] == Given("lab", "mine.yaml", True)


@pytest.mark.parametrize(
    "words",
    [
        [*command, *more]
        for command in (["practice.break", "gpu-leak"], ["practice.heal"])
        for more in ([], ["--dry-run"])
    ],
)
def test_without_a_node_there_is_nothing_to_break_or_heal(
    inv: Callable[..., Answer | None], words: list[str]
) -> None:
    with pytest.raises(RefusedError) as caught:
        inv(*words)
    assert caught.value.hint == "inv practice.up"


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    "words",
    [
        ["--ssh", "telnet"],
        ["--sglang", "newest"],
        ["--gpus", "99"],
        ["--real", "--gpus", "2"],
        ["--real", "--sglang", "0.5.12"],
    ],
)
def test_up_refuses_what_it_cannot_make(
    inv: Callable[..., Answer | None], words: list[str], dry_run: list[str], tmp_path: Path
) -> None:
    with pytest.raises(FixopsError):
        inv("practice.up", *words, *dry_run)
    assert not tmp_path.joinpath("practice").exists()


@pytest.mark.parametrize("cached", [True, False])
def test_a_dry_up_tells_what_it_would_make(
    inv: Callable[..., Answer | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cached: bool
) -> None:
    monkeypatch.setenv("FIXOPS_CACHE", str(tmp_path / "cache"))
    if cached:
        wheel = tmp_path / "cache" / "wheels" / "sglang-0.5.9-py3-none-any.whl"
        wheel.parent.mkdir(parents=True)
        wheel.touch()
    before = tree(tmp_path)
    answer = inv("practice.up", "--dry-run", "--gpus", "2", "--yes")
    assert answer
    entry, lines = answer
    assert (entry["dry_run"], entry["would_change"], entry["would_make"]) == (True, True, True)
    assert (entry["sglang"], entry["gpus"], entry["would_repair"]) == ("0.5.9", 2, [])
    assert "SGLang 0.5.9, 2 simulated GPUs" in "\n".join(lines)
    assert ("fetch" not in "\n".join(lines)) is cached
    assert tree(tmp_path) == before


def test_a_dry_down_without_a_node_has_nothing_to_do(inv: Callable[..., Answer | None]) -> None:
    answer = inv("practice.down", "--dry-run")
    assert answer
    assert (answer[0]["dry_run"], answer[0]["would_change"], answer[0]["would_end"]) == (True, False, [])
    assert answer[1] == ["there is no practice node"]


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_dry_run_keeps_away_from_what_is_not_its_own(
    tells: Callable[..., Answer], command: str, tmp_path: Path
) -> None:
    tmp_path.joinpath("thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match="not a practice node"):
        tells(Layout(tmp_path.resolve()), f"practice.{command}")


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_dry_run_is_refused_while_the_node_is_being_made(
    tells: Callable[..., Answer], command: str, tmp_path: Path
) -> None:
    layout = Layout(tmp_path.resolve())
    record.claim(layout)
    with pytest.raises(LockedError):
        tells(layout, f"practice.{command}")


def test_a_dry_up_tells_what_it_would_repair(tells: Callable[..., Answer], quiet: Layout) -> None:
    entry, lines = tells(quiet, "practice.up")
    assert (entry["would_change"], entry["would_make"], entry["would_repair"]) == (
        True,
        False,
        ["SSH server"],
    )
    assert lines[0] == "would repair the practice node: SSH server"


def test_dry_runs_on_a_node_that_is_up_tell_and_change_nothing(
    tells: Callable[..., Answer], node: Up
) -> None:
    at = node.layout
    entry, lines = tells(at, "practice.up")
    assert (entry["would_change"], entry["would_repair"]) == (False, [])
    assert "up already" in lines[0]
    with pytest.raises(RefusedError, match="number of GPUs is 2, not 4"):
        tells(at, "practice.up", "--gpus", "4")

    entry, lines = tells(at, "practice.break", "gpu-leak")
    assert (entry["fault"], entry["does"]) == ("gpu-leak", FAULTS["gpu-leak"].does)
    assert entry["would_change"] is True
    assert FAULTS["gpu-leak"].does in "\n".join(lines)
    with pytest.raises(UsageError, match="did you mean 'gpu-leak'"):
        tells(at, "practice.break", "gpu-leek")
    assert in_force(at) == []
    entry, lines = tells(at, "practice.heal")
    assert (entry["would_change"], entry["would_heal"]) == (False, [])
    assert lines == ["no fault is in force"]

    assert run("practice.break", "gpu-leak")
    with pytest.raises(RefusedError, match="in force already"):
        tells(at, "practice.break", "gpu-leak")
    assert tells(at, "practice.break")[0]["in_force"] == ["gpu-leak"]
    for words in ([], ["--fault", "gpu-leak"]):
        entry, lines = tells(at, "practice.heal", *words)
        assert (entry["would_change"], entry["would_heal"]) == (True, ["gpu-leak"])
        assert lines == ["would heal: gpu-leak"]
    with pytest.raises(UsageError, match="not in force"):
        tells(at, "practice.heal", "--fault", "stale-pyc")
    assert in_force(at) == ["gpu-leak"]
    assert run("practice.heal")

    entry, lines = tells(at, "practice.down")
    pids = {each["pid"] for each in entry["would_end"]}
    assert pids >= {node.server_pid, node.record.ssh.pid, *node.orphans}
    assert all(str(pid) in "\n".join(lines) for pid in pids)
    assert (entry["would_change"], entry["would_remove"], entry["directory"]) == (True, True, str(at.root))
    assert f"would remove {at.root}" in lines


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
    assert [each[0]["dry_run"] for each in (made, broken, listed, healed, ended)] == [False] * 5
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
