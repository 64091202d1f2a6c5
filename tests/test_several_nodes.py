"""A server with `nnodes` above 1: nothing starts it, and no check claims what a part of it cannot show."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from remote import deploy, rollback, status, steps
from remote.errors import ExitCode, UsageError
from remote.inventory import Node
from remote.picture import Picture
from remote.proofs import OF_THE_WHOLE, prove
from remote.reporting import Silent
from tests import changes, pictures
from tests.fact_faults import Facts


def spread(node: Node, **args: Any) -> Node:
    given = {**node.server.args, "tp-size": 4, "nnodes": 2, **args}
    return replace(node, server=node.server.model_copy(update={"args": given}))


NODE = spread(pictures.NODE)
WAYS = {"confirm": lambda _: True, "dry_run": False, "wait_s": 0.0}


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        (deploy.deploy_fix, WAYS),
        (deploy.deploy_fix, {**WAYS, "dry_run": True}),
        (rollback.rollback, WAYS),
        (steps.start_only, WAYS),
        (steps.restart, WAYS),
        (steps.health, {}),
    ],
)
def test_what_starts_or_waits_refuses_before_the_node_is_asked_anything(
    verb: Any, more: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r"blackwell: .* has nnodes: 2") as caught:
        verb(SimpleNamespace(node=NODE), pictures.BUNDLE, Silent(), **more)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "inv push-fix" in caught.value.hint


def on_one_of_them(facts: Facts) -> Picture:
    return replace(pictures.picture(facts), node=NODE)


def not_first(facts: Facts) -> None:
    """The node's launcher has no /generate, and its log never tells that it is ready."""
    facts["http"] = {
        "health": {"status": 200, "elapsed_s": 0.0, "body": ""},
        "server_info": {"status": 404, "elapsed_s": 0.0, "body": ""},
        "generate": {"status": 404, "elapsed_s": 0.0, "body": ""},
    }
    facts["log"]["matches"] = facts["log"]["matches"][:-1]
    facts["log"]["matches"][0]["text"] = facts["log"]["matches"][0]["text"].replace(
        "tp_size=2", "tp_size=4, nnodes=2"
    )


def test_the_files_are_still_pushed() -> None:
    found = on_one_of_them(pictures.healthy())
    assert not steps.STEPS["push-fix"].plan(found).changes


@pytest.mark.parametrize("first", [True, False])
def test_what_one_node_cannot_show_is_unknown_with_the_reason(first: bool) -> None:
    facts = pictures.healthy()
    changes.args(tp_size=4, nnodes=2)(facts)
    if not first:
        not_first(facts)
    found = {check.id: check for check in prove(on_one_of_them(facts))}
    for id in OF_THE_WHOLE:
        assert found[id].verdict == "unknown"
        assert "one of 2 nodes" in found[id].observed
    assert not [id for id, check in found.items() if check.verdict == "fail"]


def test_status_says_that_it_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = pictures.healthy()
    not_first(facts)
    monkeypatch.setattr(status, "observe", lambda *_: on_one_of_them(facts))
    told = status.status(SimpleNamespace(node=NODE), pictures.BUNDLE)  # type: ignore[arg-type]
    assert (told.state, "one of 2 nodes" in told.why) == ("starting", True)
