"""Which deploy, what was done in it, and from when until when it was there."""

from __future__ import annotations

from typing import Any

import pytest

from remote.errors import RefusedError
from remote.report import deploys
from remote.work import new_id

FIRST, SECOND, BACK = "20261129T100000Z-aaaa", "20261129T110000Z-bbbb", "20261129T120000Z-cccc"


def entry(
    id: str, action: str, phase: str, time: float, command: str = "deploy-fix x", **more: Any
) -> dict[str, Any]:
    known = {
        "deploy_id": id,
        "command": command,
        "who": "ada@desk",
        "action": action,
        "detail": f"do {action}",
    }
    return {**known, "phase": phase, "time": time, **more}


def both(
    id: str, action: str, time: float, command: str = "deploy-fix x", **more: Any
) -> list[dict[str, Any]]:
    return [
        entry(id, action, "begin", time, command),
        entry(id, action, "end", time + 2, command, **{"outcome": "ok", **more}),
    ]


JOURNAL = [
    *both("20261129T095000Z-0000", "bench", 90.0, "bench"),
    *both(FIRST, "push", 100.0),
    *both(FIRST, "start", 105.0, outcome="error", kind="timeout", message="no answer"),
    *both(SECOND, "push", 200.0),
    entry(SECOND, "purge-pycache", "begin", 203.0),
    *both("20261129T113000Z-9999", "start", 250.0, "restart"),
    *both("20261129T114000Z-8888", "bench", 260.0, "bench"),
    *both(BACK, "restore", 300.0, f"rollback {SECOND}"),
]


def test_the_last_deploy_is_taken_unless_another_is_asked_for() -> None:
    ids = deploys.known(JOURNAL, [])
    assert ids == [FIRST, SECOND]
    assert deploys.choose("n", ids, None) == SECOND
    assert deploys.choose("n", ids, FIRST) == FIRST
    assert deploys.choose("n", [], None) is None


def test_a_deploy_that_only_its_manifest_tells_is_known() -> None:
    assert deploys.known([], [{"id": FIRST, "files": [{}]}, {"id": SECOND, "files": []}]) == [FIRST]


def test_an_unknown_id_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RefusedError) as caught:
        deploys.choose("n", [FIRST, SECOND], "nope")
    assert "no deploy nope" in caught.value.message
    assert FIRST in (caught.value.hint or "")


def test_actions_have_outcome_error_and_duration() -> None:
    found = deploys.read(FIRST, JOURNAL, None, [])
    assert [(s.action, s.outcome, s.error, s.seconds) for s in found.steps] == [
        ("push", "ok", None, 2.0),
        ("start", "error", "no answer", 2.0),
    ]
    assert (found.command, found.who, found.began, found.ended) == ("deploy-fix x", "ada@desk", 100.0, 107.0)


def test_an_action_without_an_end_is_unknown() -> None:
    found = deploys.read(SECOND, JOURNAL, {"restored": 300.0}, [])
    assert [(s.action, s.outcome, s.seconds) for s in found.steps] == [
        ("push", "ok", 2.0),
        ("purge-pycache", "unknown", None),
    ]
    assert found.restored == 300.0


def test_what_changed_the_node_since_is_told_and_a_benchmark_is_not() -> None:
    later = deploys.read(SECOND, JOURNAL, None, []).later
    assert [each.split(" (")[0] for each in later] == ["restart", f"rollback {SECOND}"]
    assert deploys.read("20261101T000000Z-eeee", JOURNAL, None, []).later == ()


def test_a_deploy_is_there_until_the_next_command_that_writes() -> None:
    ten, eleven, noon = (deploys.began(id) for id in (FIRST, SECOND, BACK))
    assert deploys.window(FIRST, JOURNAL) == (ten, eleven)
    assert deploys.window(SECOND, JOURNAL) == (eleven, noon)  # a restart writes nothing
    assert deploys.window(BACK, JOURNAL) == (noon, None)
    assert deploys.window(None, JOURNAL) == (None, None)


def test_an_id_tells_when_it_began() -> None:
    assert deploys.began(new_id(1795982284.7)) == 1795982284.0
    assert deploys.began("by-hand") is None
