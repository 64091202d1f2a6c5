"""`inv runbook`: the page in the terminal, one entry of it, and what is said of a wrong name."""

from __future__ import annotations

import re

import pytest

from remote import runbook
from remote.errors import UsageError
from remote.practice.tasks import positional_if_given
from tests.end_to_end.kit import Ran, environment, run

PAGE = runbook.page()
ENTRIES = runbook.entries(PAGE)
VALUED = ("-n", "--node")


def inv(*words: str) -> Ran:
    return run(*words, env=environment(COLUMNS="80", FIXOPS_INVENTORY="/does/not/exist.yaml"))


def test_the_whole_page_without_what_only_tests_need() -> None:
    said = inv("runbook").is_(0).out
    for entry in ENTRIES:
        assert said.count(f"inv runbook {entry.symptom}") >= 1
        for command in entry.commands:
            assert f"  $ {command}\n" in said
    assert "<!--" not in said
    assert "undo: " not in said
    assert "```" not in said
    end = " ".join(" ".join(said.splitlines()[-20:]).split())
    assert end.endswith(f"inv runbook {ENTRIES[-1].symptom} {ENTRIES[-1].title}")
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80


def test_a_symptom_is_opened_aimed_at_a_node() -> None:
    said = inv("runbook", "port-taken", "--node", "blackwell").is_(0).out
    assert said.startswith("port-taken\n")
    assert "$ inv start --dry-run --node blackwell\n" in said
    assert "gpu-memory-not-freed" not in said
    assert "--node practice" not in said


def test_a_check_or_a_failure_opens_its_entry() -> None:
    for name, symptom in (("wiring.graph", "applied-no-effect"), ("gpu-oom", "out-of-memory-at-start")):
        assert runbook.find(name, ENTRIES).symptom == symptom


def test_an_unknown_symptom_names_the_nearest() -> None:
    inv("runbook", "port-takn").refuses(2, "'port-takn'", "'port-taken'", "inv runbook")
    with pytest.raises(UsageError, match="the nearest is"):
        runbook.find("?", ENTRIES)


def test_json_has_the_entries() -> None:
    document = inv("runbook", "--json").is_(0).document
    assert document["error"] is None
    assert [entry["symptom"] for entry in document["entries"]] == [entry.symptom for entry in ENTRIES]
    assert all(set(entry) == {"symptom", "title", "text", "commands"} for entry in document["entries"])


def test_help_shows_no_entry() -> None:
    said = inv("runbook", "--help").is_(0).out
    assert "--symptom" in said
    assert "Escalate" not in said


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("runbook", False),
        ("runbook --help", False),
        ("runbook --node blackwell", False),
        ("runbook -n blackwell --json", False),
        ("runbook --node=blackwell", False),
        ("runbook locked", True),
        ("runbook --node blackwell locked", True),
        ("runbook locked -n blackwell", True),
        ("verify locked", False),
    ],
)
def test_the_symptom_needs_no_flag(words: str, given: bool) -> None:
    found = positional_if_given("runbook", "symptom", ["inv", *words.split()], valued=VALUED)
    assert found == (["symptom"] if given else [])


def test_the_index_is_that_of_the_entries() -> None:
    index = re.findall(r"^\| \[([a-z-]+)\]\(#", PAGE, flags=re.MULTILINE)
    assert index == [entry.symptom for entry in ENTRIES]


def test_aiming_leaves_alone_what_is_no_command_or_has_its_node() -> None:
    text = "`inv runbook x`, `inv verify`, `inventory`\n$ inv stop --node a\n$ inv logs --lines 1\n"
    assert runbook.aimed(text, node=None, inventory=None) == text
    assert runbook.aimed(text, node="b", inventory="i.yaml") == (
        "`inv runbook x`, `inv verify --node b --inventory i.yaml`, `inventory`\n"
        "$ inv stop --node a --inventory i.yaml\n$ inv logs --lines 1 --node b --inventory i.yaml\n"
    )
