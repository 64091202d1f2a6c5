"""What the node's log, processes and replies tell of the time of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remote.bench.meanwhile import Launcher, Mark, assemble, not_used, other_log, strangers
from tests.bench.runs import INFO
from tests.fact_faults import Change, log_elsewhere, log_into_a_pipe, log_of_another_port
from tests.pictures import healthy, picture

START = Mark("/logs/a.log", 7, 1000)
OURS = frozenset({40001, 40002})


def access(port: int, path: str = "/generate", client: str = "127.0.0.1") -> str:
    return f'[2026-11-29 16:15:52] INFO:     {client}:{port} - "POST {path} HTTP/1.1" 200 OK'


DECODE = (
    "[2026-11-29 16:15:52 TP0] Decode batch, #running-req: 4, #token: 61, token usage: 0.01, "
    "accept len: 3.40, accept rate: 0.57, cuda graph: True, gen throughput (token/s): 200.00, #queue-req: 0"
)


def process(pid: int, role: str | None, ppid: int = 1, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "starttime_ticks": pid * 10, "role": role, "ppid": ppid, "env": {}, **more}


def facts(*lines: str, **more: Any) -> dict[str, Any]:
    known = {
        "procs": {"processes": [process(100, "launcher")], "listeners": [{"pid": 100}]},
        "log": {
            "exists": True,
            "real_path": "/logs/a.log",
            "inode": 7,
            "boots": [],
            "matches": [{"text": text} for text in lines],
        },
        "http": {"server_info": {"status": 200, "body": json.dumps(INFO)}},
    }
    return {**known, **more}


def read(found: dict[str, Any]) -> Any:
    return assemble(found, Launcher(100, 1000), START, OURS)


def test_our_own_requests_are_known_by_their_ports() -> None:
    lines = [access(40001), DECODE, access(40002), access(50000, "/v1/chat/completions", "10.0.0.7")]
    found = read(facts(*lines))
    assert found.strangers == ("10.0.0.7 /v1/chat/completions",)
    assert len(found.samples) == 1
    assert found.samples[0].accept_len == 3.4
    assert (found.before, found.after) == (Launcher(100, 1000), Launcher(100, 1000))


def test_without_an_access_log_nothing_is_claimed_about_others() -> None:
    assert strangers([DECODE], OURS) is None
    assert strangers([access(50000)], OURS) is None
    assert strangers([DECODE], frozenset()) == ()
    assert strangers([access(40001)], OURS) == ()


def test_another_log_is_another_boot() -> None:
    for change in ({"real_path": "/logs/b.log"}, {"inode": 8}):
        found = read(facts(log={**facts(DECODE)["log"], **change}))
        assert found.log_same is False
        assert found.samples is None
    started = {**facts()["log"], "boots": [{"offset": 1200}]}
    assert read(facts(log=started)).boots == 1


def test_a_log_that_cannot_be_read_is_unknown() -> None:
    for log in ({"error": {"kind": "permission", "message": "no"}}, {"exists": False}):
        found = read(facts(log=log))
        assert (found.log_same, found.samples, found.strangers, found.boots) == (None,) * 4
    assert assemble(facts(DECODE), None, Mark(None, None, None), OURS).log_same is None


@pytest.mark.parametrize("whose", [log_elsewhere, log_into_a_pipe, log_of_another_port])
def test_a_log_that_is_not_the_servers_own_is_not_used(whose: Change) -> None:
    before = healthy()
    whose(before)
    why = other_log(picture(before))
    assert why
    found = assemble(facts(access(40001), DECODE), Launcher(100, 1000), START, OURS, why)
    assert (found.log_same, found.samples, found.strangers, found.boots) == (None,) * 4
    assert not_used(found) == f"the log is not used: {why}"
    # What the server and its processes tell is known all the same.
    assert (found.after, found.model_path) == (Launcher(100, 1000), "/models/kimi")


def test_a_log_that_is_the_servers_own_is_used() -> None:
    assert other_log(picture()) is None
    assert not_used(read(facts(DECODE))) is None
    unreadable = healthy()
    unreadable["log"] = {"error": {"kind": "permission", "message": "not allowed"}}
    assert other_log(picture(unreadable)) == "log: not allowed"


def test_the_launcher_is_found_above_its_tokenizer_worker() -> None:
    family = [process(100, "launcher"), process(101, "tokenizer-worker", 100)]
    found = read(facts(procs={"processes": family, "listeners": [{"pid": 101}]}))
    assert found.after == Launcher(100, 1000)


def test_a_stranger_on_the_port_is_not_our_launcher() -> None:
    alone = [process(100, "launcher"), process(900, None, 899)]
    assert read(facts(procs={"processes": alone, "listeners": [{"pid": 900}]})).after == Launcher(900, 9000)
    assert read(facts(procs={"processes": alone, "listeners": []})).after is None
    assert read(facts(procs={"error": {"kind": "internal", "message": "no"}})).after is None


def test_acceptance_that_the_servers_environment_sets() -> None:
    for value, expected in (("3.5", "3.5"), ("-1", None)):
        one = process(100, "launcher", env={"SGLANG_SIMULATE_ACC_LEN": value})
        assert read(facts(procs={"processes": [one], "listeners": [{"pid": 100}]})).pretended == expected
    hidden = process(100, "launcher", env=None)
    assert read(facts(procs={"processes": [hidden], "listeners": [{"pid": 100}]})).pretended is None


def test_the_older_name_of_the_servers_account() -> None:
    old = {
        "server_info": {"status": 404, "body": ""},
        "get_server_info": {"status": 200, "body": json.dumps(INFO)},
    }
    found = read(facts(http=old))
    assert found.info.version == "0.5.9"
    assert found.model_path == "/models/kimi"
    broken = {"server_info": {"status": 200, "body": "<html>"}}
    assert read(facts(http=broken)).info is None


@pytest.mark.parametrize(
    ("http", "silent"),
    [
        (
            {name: {"status": None, "error": "timeout"} for name in ("server_info", "get_server_info")},
            "timeout",
        ),
        ({"server_info": {"status": 401}, "get_server_info": {"status": None, "error": "timeout"}}, None),
        ({}, None),
    ],
)
def test_a_server_that_answers_nothing_is_silent_and_one_that_refuses_is_not(
    http: dict[str, Any], silent: str | None
) -> None:
    assert assemble({"http": http}, None, Mark(None, None, None), frozenset()).silent == silent
