"""What the runbook shows is what is printed: each entry is played on a practice node in that symptom."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.runbook.page import PAGE, Script, normal, scripts
from tests.runbook.steps import Printed, Stage, play

SCRIPTS = {script.symptom: script for script in scripts(PAGE.read_text(encoding="utf-8"))}
# Two nodes side by side: most of the time is waiting.
NODES = 2
# What waits a minute for an answer goes first.
FIRST = ("up-but-hanging",)

Plays = dict[str, Future[list[Printed]]]


@pytest.fixture(scope="module")
def plays(request: pytest.FixtureRequest) -> Iterator[Plays]:
    """Every entry that a selected test wants, begun; the nodes go when all have ended."""
    wanted = {
        item.callspec.params["played"]
        for item in request.session.items
        if hasattr(item, "callspec") and "played" in item.callspec.params
    }
    ordered = sorted(wanted, key=lambda symptom: (symptom not in FIRST, list(SCRIPTS).index(symptom)))
    stages: queue.SimpleQueue[Stage] = queue.SimpleQueue()
    for _ in range(NODES):
        stages.put(Stage())

    def one(script: Script) -> list[Printed]:
        stage = stages.get()
        try:
            return play(stage, script)
        finally:
            stages.put(stage)

    with ThreadPoolExecutor(NODES) as pool:
        begun = {symptom: pool.submit(one, SCRIPTS[symptom]) for symptom in ordered}
        try:
            yield begun
        finally:
            for future in begun.values():
                future.cancel()
    for _ in range(NODES):
        stages.get().down()
    if request.config.getoption("--update-runbook", default=False):
        _update([printed for future in begun.values() for printed in future.result()])


def _update(printed: list[Printed]) -> None:
    """The page with the prints that say something else than what stands there; the others stay."""
    text = PAGE.read_text(encoding="utf-8")
    for each in sorted(printed, key=lambda each: each.block.start, reverse=True):
        if not same(each):
            new = each.block.renewed(each.exit, each.output)
            text = text[: each.block.start] + new + text[each.block.end :]
    PAGE.write_text(text, encoding="utf-8")


def same(printed: Printed) -> bool:
    block = printed.block
    return (block.exit, normal(block.output)) == (printed.exit, normal(printed.output))


@pytest.mark.parametrize("played", SCRIPTS)
def test_it_prints_what_the_runbook_shows(played: str, plays: Plays, pytestconfig: pytest.Config) -> None:
    printed = plays[played].result()
    assert printed, "an entry without a command helps nobody"
    if pytestconfig.getoption("--update-runbook", default=False):
        return
    for each in printed:
        assert same(each), (
            f"inv {each.block.command} prints something else than docs/runbook.md shows "
            f"(pytest tests/runbook --update-runbook):\n"
            f"--- shown, exit {each.block.exit}\n{each.block.output}"
            f"--- printed, exit {each.exit}\n{each.output}"
        )
