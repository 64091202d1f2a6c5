"""What a node says is text on every screen: brackets are no markup, and words between colons no emoji."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest

from remote.bench.guards import Guard
from remote.checks import Evidence, unknown
from remote.deploy import Deployed
from remote.diagnose import conclude
from remote.errors import FixopsError
from remote.fitting import Fitting, Row
from remote.history import History
from remote.logs import Logs
from remote.plan import Action, Plan
from remote.render import bench, checks, diagnose, logs, reporter, runbook, show
from remote.render import history as render_history
from remote.render import status as render_status
from remote.render.console import console, print_error, print_json
from remote.render.plan import print_plan
from remote.render.report import Written
from remote.render.report import show as show_report
from remote.rollback import RolledBack
from remote.runbook import Entry
from remote.status import Status
from remote.trusting import Trusted
from remote.unlock import Unlocked
from tests import changes
from tests.bench.results import empty
from tests.bench.runs import past, summarised, usual

# A gloo error as torch prints it, a wiring, what looks like a style and its end, and an emoji's name.
SAID = "[/pytorch/third_party/gloo/pair.cc:534] closed, [embed, in:3], [red]now[/red], :100: [/]"


def plan() -> Plan:
    return Plan((Action("push", True, SAID, f"+{SAID}"),), (), (), (), (), False)


def guarded() -> Any:
    found = summarised(usual())
    guards = (Guard("failed-requests", "spoils", SAID), Guard("complete", "ok", "all"))
    return empty(summary=found, guards=guards, baseline=past(usual(), name=SAID), kept=SAID)


def history(**more: Any) -> History:
    both = {"time": 1.0, "who": "a@b", "command": "c", "action": "push", "deploy_id": "d", "detail": SAID}
    return History("blackwell", ({**both, "phase": "begin"}, {**both, "phase": "end", **more}))


def status() -> Status:
    return Status("blackwell", changes.node(), "sick", SAID)


def deployed() -> Deployed:
    action = {"id": "push", "changed": False, "detail": SAID, "diff": f"+{SAID}"}
    return Deployed("blackwell", None, (action,), (), changes.node(), dry_run=True)


def reported() -> None:
    found = reporter.TerminalReporter(console(), "blackwell", lambda text: text)
    found.begin("push", SAID)
    found.done("push", SAID, changed=True)
    found.note(SAID)


def diagnosed() -> None:
    found = conclude(changes.node())
    says = replace(found.hypotheses[0], claim=SAID, says=SAID, evidence=(Evidence(SAID, SAID),))
    diagnose.show(replace(found, hypotheses=(says,), answer=SAID, next=SAID), verbose=True)


VIEWS: dict[str, Callable[[], object]] = {
    "a line": lambda: console().print(SAID, soft_wrap=True),
    "an error": lambda: print_error(FixopsError(SAID, hint=SAID)),
    "bench": lambda: bench.show(guarded()),
    "bench, refused": lambda: bench.show(empty(refused=SAID)),
    "checks": lambda: checks.print_checks(
        console(), "blackwell", [unknown("log.boot", SAID, SAID, Evidence(SAID, SAID), remedy=SAID)]
    ),
    "deploy": lambda: show.deployed(deployed()),
    "diagnose": diagnosed,
    "fixes": lambda: show.fitting(Fitting(SAID, SAID, (Row(SAID, SAID, "", "ours", None, SAID),))),
    "history": lambda: render_history.show(history(outcome="ok")),
    "history, error": lambda: render_history.show(history(outcome="error", detail="", message=SAID)),
    "history, none": lambda: render_history.show(History(SAID, ())),
    "logs": lambda: logs.show(Logs("n", False, "/l", True, (), 0, ((1, SAID),)), errors=False, args=False),
    "logs, none": lambda: logs.show(Logs("n", False, SAID, False, (), 0, ()), errors=False, args=False),
    "message": lambda: show.message(SAID),
    "plan": lambda: print_plan(console(), "blackwell", plan()),
    "raw": lambda: show.raw(SAID),
    "line": lambda: show.line(SAID),
    "report": lambda: show_report(Written(None, SAID, None), as_text=True),  # type: ignore[arg-type]
    "reporter": reported,
    "rollback": lambda: show.rolled_back(
        RolledBack("blackwell", SAID, (), (), changes.node(), dry_run=False)
    ),
    "runbook": lambda: runbook.show_page("", [Entry("up", SAID, "", ())]),
    "status": lambda: render_status.show(status()),
    "status, several": lambda: render_status.show_several([status()]),
    "trust": lambda: show.trusted(Trusted("blackwell", (), SAID)),
    "unlock": lambda: show.unlocked(Unlocked("blackwell", {"who": SAID, "command": SAID}, None, False)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_a_node_says_is_shown_as_it_is(view: str, capsys: pytest.CaptureFixture[str]) -> None:
    VIEWS[view]()
    shown = capsys.readouterr()
    assert "".join(SAID.split()) in "".join((shown.out + shown.err).split())


@pytest.mark.parametrize("verdict", ["pass", "fail", "unknown"])
def test_a_deploy_that_found_nothing_to_do_says_so_as_it_is(
    verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check = replace(unknown("gpu.holders", "ours", "not told", remedy="look"), verdict=verdict)
    show.deployed(Deployed("blackwell", None, (), (check,), changes.node(), dry_run=False))
    out = capsys.readouterr().out
    assert "nothing was changed" in out
    assert ("as meant" in out) is (verdict == "pass")


@pytest.mark.parametrize("replaced", [False, True])
def test_the_way_back_is_told_of_a_deploy_that_replaced_files(
    replaced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a restart alone `inv rollback` would undo an earlier deploy."""
    done = ({"id": "push-code", "changed": replaced}, {"id": "start", "changed": True})
    show.deployed(Deployed("blackwell", "d1", done, (), changes.node(), dry_run=False))
    assert ("inv rollback" in capsys.readouterr().out) is replaced


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_the_terminal_cannot_write_ends_no_command(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(written, encoding=encoding))
    show.line("caf\u00e9 \u2013 1")
    print_json({"said": "caf\u00e9"})
    line, document = written.getvalue().decode(encoding).split("\n", 1)
    assert line == ("caf\u00e9 \u2013 1" if encoding == "utf-8" else "caf? ? 1")
    assert json.loads(document) == {"said": "caf\u00e9"}


def test_what_is_not_so_is_not_said_to_be_ok(capsys: pytest.CaptureFixture[str]) -> None:
    reporter.TerminalReporter(console(), "blackwell", lambda text: text).failed("verify", "wiring.graph")
    assert capsys.readouterr().out.split() == ["failed", "verify", "wiring.graph"]


def test_status_shows_whose_lock_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = status()
    state = {"lock": {"who": SAID}, "deploys": []}
    facts = {**found.picture.facts, "state": state}
    render_status.show(replace(found, picture=replace(found.picture, facts=facts)))
    assert capsys.readouterr().out.count("gloo") == 2
