"""Several nodes at once: one entry each, and the exit code of the worst."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import shapes
from tests.end_to_end.kit import Practice
from tests.support import free_port


@pytest.fixture
def fleet(incident: Practice, tmp_path: Path) -> str:
    """The node under two names, a node that is not there, and groups of them."""

    def change(content: dict[str, Any]) -> None:
        entry = content["nodes"].pop("practice")
        content["nodes"] = {name: copy.deepcopy(entry) for name in ("left", "right", "dead")}
        content["nodes"]["dead"]["port"] = free_port()
        content["groups"] = {"twins": ["left", "right"], "all": ["dead", "left", "right"]}
        content["defaults"]["node"] = "twins"

    return incident.inventory(tmp_path / "fleet.yaml", change)


def test_two_nodes_have_an_entry_each(incident: Practice, fleet: str) -> None:
    ran = incident.inv("verify", "--json", "--inventory", fleet).is_(7)
    assert shapes.hold(ran, "verify") == ["left", "right"]
    first, second = ran.document["nodes"]
    told = [{check["id"]: check["verdict"] for check in entry["checks"]} for entry in (first, second)]
    assert told[0] == told[1]
    assert ran.document["error"] is None


def test_a_node_that_cannot_be_reached_is_the_worst(incident: Practice, fleet: str) -> None:
    ran = incident.inv("verify", "--json", "--node", "all", "--inventory", fleet).refuses(3, "dead")
    assert [entry["node"] for entry in ran.document["nodes"]] == ["dead", "left", "right"]
    dead, *others = ran.document["nodes"]
    assert dead["error"]["code"] == ran.document["error"]["code"] == "connect"
    assert [len(entry["checks"]) for entry in others] == [len(others[0]["checks"])] * 2
    shown = incident.inv("verify", "--node", "all", "--inventory", fleet).refuses(3, "dead")
    assert shown.out.count("source.state") == 2
    # Of a group what did not pass, and each node's verdict.
    assert "pass source.file" not in shown.out
    assert shown.out.count("FAILED ") == 2
    assert "3 nodes: 0 done; 1 not reached: dead; 2 failed a check: left, right" in shown.err
    whole = incident.inv("verify", "--verbose", "--node", "twins", "--inventory", fleet).is_(7)
    assert whole.out.count("pass source.file") == 2


def test_the_locks_of_a_group_are_shown_behind_one_that_cannot_be_reached(
    incident: Practice, fleet: str
) -> None:
    for words in ((), ("--yes", "--dry-run")):
        shown = incident.inv("unlock", *words, "--node", "all", "--inventory", fleet).refuses(3, "dead")
        assert shown.out.count("is not locked") == 2
    stopped = incident.inv("unlock", "--yes", "--node", "all", "--inventory", fleet).refuses(3, "dead")
    assert "2 not begun: left, right" in stopped.err


def test_the_states_of_a_group_are_a_table(incident: Practice, fleet: str) -> None:
    shown = incident.inv("status", "--node", "all", "--inventory", fleet).refuses(3, "dead")
    table = [line.split()[:2] for line in shown.out.splitlines()]
    assert table == [["node", "server"], ["left", "up"], ["right", "up"]]


@pytest.mark.parametrize("words", [("status", "--watch"), ("logs", "--follow")], ids=lambda words: words[0])
def test_what_fills_the_terminal_shows_one_node(
    incident: Practice, fleet: str, words: tuple[str, ...]
) -> None:
    meant = f"{' '.join(words)} --node left --inventory {fleet}"
    incident.inv(*words, "--inventory", fleet).refuses(2, "left, right", meant)


def test_a_change_stops_at_the_first_node_that_fails(incident: Practice, fleet: str) -> None:
    words = ("--yes", "--json", "--node", "all", "--inventory", fleet)
    ran = incident.inv("deploy-fix", *words).refuses(3, "dead")
    assert [entry["node"] for entry in ran.document["nodes"]] == ["dead", "left", "right"]
    assert [entry["error"]["code"] for entry in ran.document["nodes"]] == [
        "connect",
        "not-begun",
        "not-begun",
    ]
    assert "not begun: left, right" in ran.err
