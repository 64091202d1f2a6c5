"""What a check says, it shows: no pass and no fail without the place where it was read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.checks import Check
from remote.picture import Picture
from remote.proofs import prove
from tests import pictures
from tests.fact_faults import Facts, no_server, orphan
from tests.pictures import DEEPSEEK, DRAFT, PYTHON, ROOT, STARTED_S, healthy, picture
from tests.test_no_false_pass import FAULTS, UNREADABLE, Fault, broken

NOTHING = Fault("nothing is wrong")


def by_id(found: Picture) -> dict[str, Check]:
    return {check.id: check for check in prove(found)}


def shown(check: Check) -> dict[str, str]:
    return {each.source: each.text for each in check.evidence}


def unproven(found: Picture, *, but: tuple[str, ...] = ("skip",)) -> dict[str, str]:
    """The checks that show nothing, apart from those with one of these verdicts."""
    return {
        check.id: f"{check.verdict}: {check.observed}"
        for check in prove(found)
        if check.verdict not in but
        and not (check.evidence and all(each.source and each.text for each in check.evidence))
    }


@pytest.mark.parametrize("fault", [NOTHING, *FAULTS], ids=lambda fault: fault.name)
def test_every_verdict_shows_where_it_was_seen(fault: Fault) -> None:
    """Where a section could not be read, there is nothing to show of it, and the verdict is unknown."""
    blind = ("skip", "unknown") if fault in UNREADABLE.values() else ("skip",)
    assert unproven(picture(*broken([fault])), but=blind) == {}


def test_so_does_what_is_said_of_another_version_or_inventory() -> None:
    def of_version(version: str) -> Picture:
        facts = healthy()
        facts["package"]["imported"]["version"] = version
        return picture(facts, pictures.released(version))

    without = pictures.NODE.server.model_copy(update={"draft_model_path": None})
    no_draft = replace(picture(), node=replace(pictures.NODE, server=without), config=None)
    for found in (of_version("0.5.23"), of_version("0.5.3"), no_draft, pictures.on_cpu(picture())):
        assert unproven(found) == {}


def test_processes_are_named_by_pid_and_start() -> None:
    started = "started 2026-11-29 09:59:50.00 UTC"
    healthy_checks = by_id(picture())
    for id in ("process.single", "process.owner", "process.ranks"):
        assert healthy_checks[id].evidence
        assert all(started in each.text for each in healthy_checks[id].evidence), id
    facts = healthy()
    orphan(facts)
    (stale,) = by_id(picture(facts))["process.single"].evidence
    assert (stale.source, started in stale.text) == ("/proc/900", True)
    assert stale.text.endswith("its launcher is gone")


def test_where_no_server_is_found_it_shows_what_there_is_instead() -> None:
    facts = healthy()
    no_server(facts)
    nobody = {
        "/proc/net/tcp, tcp6": "nobody listens on port 8000",
        "/proc": "no process of SGLang",
    }
    found = by_id(picture(facts))
    for id in ("process.single", "process.ranks", "process.after_fix", "log.boot"):
        assert shown(found[id]) == nobody, id
    assert shown(found["gpu.holders"]) == {
        "nvidia-smi": "GPU 0: 10 MiB in use, GPU 1: 10 MiB in use; listed there: nobody"
    }
    # Of a server that is not ours its processes are shown, the launcher before its ranks.
    for each in (theirs := healthy())["procs"]["processes"]:
        each.update(uid=2000, user="other", pid=each["pid"] + 1000, ppid=1100)
    theirs["procs"]["processes"].reverse()
    theirs["procs"]["listeners"] = [{"port": 8000, "pid": None, "uid": 2000}]
    other = by_id(picture(theirs))["process.single"]
    assert other.observed == "no server of ours runs"
    assert [each.source for each in other.evidence] == [
        "/proc/net/tcp, tcp6",
        *(f"/proc/{pid}" for pid in (1100, 1102, 1101)),
    ]
    assert "uid 2000" in other.evidence[0].text
    assert "user other" in other.evidence[1].text


def test_processes_that_cannot_be_read_are_not_said_to_be_absent() -> None:
    facts = healthy()
    facts["procs"] = {"error": {"kind": "permission", "message": "not allowed"}}
    boot = by_id(picture(facts))["log.boot"]
    assert (boot.verdict, boot.observed) == ("unknown", "procs: not allowed")


def test_bytecode_that_is_not_believed_is_shown_with_the_reason() -> None:
    file = f"{ROOT}/{DEEPSEEK}"

    def said(**pyc: Any) -> dict[str, str]:
        facts: Facts = healthy()
        if pyc:
            facts["bytecode"][file]["pycs"] = [{"kind": "timestamp", "stale": False, **pyc}]
        check = by_id(picture(facts))["bytecode.fresh"]
        assert check.verdict == "pass"
        return shown(check)

    assert said() == {file: "no compiled file of it"}
    why = "time or size differ from the source's"
    assert said(path="x.pyc", believed=False, why=why) == {"x.pyc": f"timestamp: {why}"}
    same = "time and size are the source's"
    assert said(path="x.pyc", believed=True, why=same) == {"x.pyc": f"timestamp: {same}"}


def test_purged_bytecode_is_shown_by_the_journal_that_tells_of_it() -> None:
    facts = healthy()
    facts["state"]["purged"] = STARTED_S + 60.0
    found = shown(by_id(picture(facts))["process.after_fix"])
    assert found["the node's journal"] == "the bytecode of its modules purged 2026-11-29 10:00:50.00 UTC"


def test_a_package_that_is_not_found_is_shown_by_where_it_was_looked_for() -> None:
    facts = healthy()
    other = {"root": "/other/site-packages", "version": "0.5.9", "kind": "wheel", "why": "of an interpreter"}
    facts["package"] = {"imported": None, "copies": [other], "search_path": ["/opt/a", "/opt/b"]}
    found = by_id(picture(facts, sources={}))
    assert shown(found["source.file"]) == {
        PYTHON: "no sglang in /opt/a, /opt/b",
        "/other/site-packages": "sglang 0.5.9: of an interpreter",
    }
    # What was read of the draft is not called unreadable.
    assert shown(found["config.values"]) == {
        DRAFT: "SGLang's version is not known, which the values depend on"
    }
