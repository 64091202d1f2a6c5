"""From an unknown or changed host key to a node that is reached again: each step names the next one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from remote.hostkeys import fingerprint, read_entries
from tests.end_to_end.kit import Practice
from tests.ssh.kit import other_key

NODES = ["left", "right"]


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


@pytest.fixture
def fleet(incident: Practice, tmp_path: Path, known: Path) -> str:
    """The node under two names, whose keys are looked up in `known`."""

    def change(content: dict[str, Any]) -> None:
        entry = content["nodes"].pop("practice")
        entry["known_hosts"] = str(known)
        content["nodes"] = {name: copy.deepcopy(entry) for name in NODES}
        content["groups"] = {"both": NODES}
        content["defaults"]["node"] = "left"

    return incident.inventory(tmp_path / "fleet.yaml", change)


def test_a_changed_key_is_replaced_when_that_is_said(incident: Practice, fleet: str, known: Path) -> None:
    host = (incident.root / "ssh" / "known_hosts").read_text().split()[0]
    known.write_text(f"{host} {other_key()}\n")
    (old,) = read_entries([known])
    words = ("--inventory", fleet)
    incident.inv("status", *words).refuses(3, "left: ", "CHANGED", "inv trust --node left")
    shown = incident.inv("trust", *words).refuses(3, "left: ", "inv trust --yes --replace --node left")
    told = incident.inv("trust", "--json", *words).refuses(3, "left: ", "--replace")
    (key,) = told.entry["keys"]
    assert (key["status"], key["known"][0]["fingerprint"]) == ("changed", fingerprint(old.blob))
    assert told.document["error"] == told.entry["error"]
    for each in (key["fingerprint"], fingerprint(old.blob), f"{known}:1"):
        assert each in shown.out
    refused = incident.inv("trust", "--yes", *words).refuses(5, "left: ", "inv trust --yes --replace")
    assert key["fingerprint"] in refused.out
    assert list(read_entries([known])) == [old]
    incident.inv("trust", "--replace", *words).refuses(3, "--yes --replace")
    done = incident.inv("trust", "--yes", "--replace", *words).is_(0)
    assert f"left: recorded in {known} in place of line 1" in done.out
    assert [fingerprint(entry.blob) for entry in read_entries([known])] == [key["fingerprint"]]
    incident.inv("history", *words).is_(0)


def test_an_unknown_key_is_an_error_and_each_line_names_its_node(
    incident: Practice, fleet: str, known: Path
) -> None:
    words = ("--node", "both", "--inventory", fleet)
    ran = incident.inv("trust", "--json", *words).is_(3)
    assert ran.document["error"]["code"] == "connect"
    assert [entry["error"]["message"].partition(": ")[0] for entry in ran.document["nodes"]] == NODES
    assert [line.partition(": ")[0] for line in ran.err.splitlines()].count("error") == 2
    shown = incident.inv("trust", *words).is_(3)
    assert [line.partition(": ")[0] for line in shown.out.splitlines()] == NODES
    recorded = incident.inv("trust", "--yes", "--node", "left", "--inventory", fleet).is_(0)
    assert f"left: recorded in {known}\n" in recorded.out
    assert incident.inv("trust", "--json", *words).is_(0).document["error"] is None


def test_a_dry_run_records_nothing(incident: Practice, fleet: str, known: Path) -> None:
    words = ("--inventory", fleet)
    for yes in ((), ("--yes",)):
        told = incident.inv("trust", "--dry-run", "--json", *yes, *words).is_(0).entry
        assert (told["dry_run"], told["would_record"], told["recorded"]) == (True, True, None)
        shown = incident.inv("trust", "--dry-run", *yes, *words).is_(0).out
        assert f"dry run: nothing was changed on left; --yes would record the key in {known}\n" in shown
        assert "compare the fingerprint" in shown
        assert "inv trust --yes --node left" in shown
        assert not known.exists()
    assert incident.inv("trust", "--json", *words).is_(3).entry["dry_run"] is False


def test_a_dry_run_refuses_what_would_be_refused(incident: Practice, fleet: str, known: Path) -> None:
    host = (incident.root / "ssh" / "known_hosts").read_text().split()[0]
    other = f"{host} {other_key()}\n"
    known.write_text(other)
    words = ("--inventory", fleet)
    for yes in ((), ("--yes",)):
        ran = incident.inv("trust", "--dry-run", "--json", *yes, *words)
        ran.refuses(5, "left: ", "inv trust --yes --replace")
        assert ran.entry["would_record"] is False
        shown = incident.inv("trust", "--dry-run", "--replace", *yes, *words).is_(0).out
        assert "would record the key" in shown
        assert "inv trust --yes --replace --node left" in shown
        assert known.read_text() == other
    incident.inv("trust", "--yes", "--replace", *words).is_(0)
    told = incident.inv("trust", "--yes", "--dry-run", "--json", *words).is_(0).entry
    assert (told["dry_run"], told["would_record"]) == (True, False)
    shown = incident.inv("trust", "--yes", "--dry-run", *words).is_(0).out
    assert shown.endswith("dry run: nothing was changed on left\n")
