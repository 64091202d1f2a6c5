"""Begin and end of the actions in a journal."""

from __future__ import annotations

from typing import Any

import pytest

from remote.clock import utc
from remote.history import History
from remote.journal import actions
from remote.render.history import show
from remote.work import UNLOCK


def entry(phase: str, action: str, deploy: str = "d1", **more: Any) -> dict[str, Any]:
    known = {"command": "deploy-fix x", "who": "ada@desk", "action": action, "deploy_id": deploy}
    return {"phase": phase, **known, **more}


def test_each_begin_gets_its_end_and_a_cut_one_has_none() -> None:
    """Two deploys, one of which was cut while it pushed and made to push again later."""
    entries = [
        entry("begin", "push", detail="a"),
        entry("begin", UNLOCK),
        entry("begin", "push", "d2"),
        entry("end", "push", "d2", outcome="ok"),
        entry("begin", "push", detail="b"),
        entry("end", "push", outcome="ok"),
    ]
    assert actions(entries) == [
        (entries[0], None),
        (entries[2], entries[3]),
        (entries[4], entries[5]),
    ]


def test_an_end_whose_begin_was_cut_off_by_the_limit_stands_for_it() -> None:
    end = entry("end", "start", outcome="error", kind="precondition", message="no", time=5.0)
    (row,) = History("blackwell", (end,)).actions()
    assert (row["action"], row["outcome"], row["error"], row["time"]) == ("start", "error", "no", 5.0)


def test_what_has_no_end_is_unknown() -> None:
    (row,) = History("blackwell", (entry("begin", "start"),)).actions()
    assert (row["outcome"], row["error"]) == ("unknown", None)


def test_the_page_tells_each_operations_id_once(capsys: pytest.CaptureFixture[str]) -> None:
    """`inv rollback --to ID`: the help says that the ids are here, and the page did not have them."""
    entries = [
        entry("begin", "push", detail="deepseek_v2.py", time=0.0),
        entry("end", "push", detail="deepseek_v2.py", time=1.0, outcome="ok"),
        entry("begin", "health", detail="wait", time=2.0),
        entry("end", "health", detail="wait", time=9.0, outcome="error", kind="unhealthy", message="it died"),
        entry("begin", "push", "d2", detail="again", time=20.0),
    ]
    show(History("blackwell", tuple(entries)))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "history of blackwell",
        "",
        "1970-01-01 00:00:00 UTC  deploy-fix x",
        "  d1, by ada@desk",
        "  ok      push           deepseek_v2.py",
        "  error   health         it died",
        "",
        "1970-01-01 00:00:20 UTC  deploy-fix x",
        "  d2, by ada@desk",
        "  unknown push           again",
    ]


def test_a_damaged_line_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Left by a full disk or a lost power: the page ended with a traceback."""
    torn = {"unreadable": '{"time": 1795'}
    found = History("blackwell", (torn, entry("begin", "push", time=0.0)))
    assert [row["detail"] for row in found.actions()] == ['{"time": 1795', None]
    show(found)
    out = capsys.readouterr().out
    assert 'a damaged line of its journal: {"time": 1795' in out
    assert "push" in out


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), 1e18, -1e18])
def test_a_time_that_no_calendar_has_is_told_as_it_is(moment: float) -> None:
    """Of a lock or a journal that was damaged: each command ended with a traceback."""
    assert utc(moment) == str(moment)


def test_an_action_that_did_not_come_true_is_not_ok_because_the_node_answered() -> None:
    """Memory that did not come back: the wait for it ended, and was `ok`."""
    entries = (
        entry("begin", "free-gpus", detail="wait"),
        entry("end", "free-gpus", detail="wait", outcome="ok"),
        entry("end", "free-gpus", detail="", outcome="error", message="still in use", corrects=True),
    )
    (row,) = History("blackwell", entries).actions()
    assert (row["outcome"], row["error"]) == ("error", "still in use")
