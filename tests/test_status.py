"""`inv status`: the state of a node from one picture, and what its screen says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.proofs.health import generate
from remote.render.status import show, show_several
from remote.runbook import of_check
from remote.status import Status, judge
from tests import changes, fact_faults, pictures


def told(*wanted: changes.Change) -> Status:
    picture = changes.node(*wanted)
    return Status("blackwell", picture, *judge(picture))


def screen(capsys: pytest.CaptureFixture[str], result: Status) -> str:
    show(result)
    return " ".join(capsys.readouterr().out.split())


def installed(version: str) -> changes.Change:
    def change(facts: pictures.Facts) -> None:
        facts["package"]["imported"]["version"] = version

    return change


def no_gpu_tool(facts: dict[str, Any]) -> None:
    facts["gpus"] = {"available": False, "why": "nvidia-smi was not found", "gpus": [], "processes": []}


def test_a_healthy_node_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    result = told()
    assert (result.state, result.to_json()["server"]["version"]) == ("up", "0.5.9")
    assert ", SGLang 0.5.9 ranks" in screen(capsys, result)


def test_several_nodes_are_a_line_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is not up also why: its screen has the rest."""
    monkeypatch.setenv("COLUMNS", "80")
    up, down = told(), replace(told(changes.no_server), node="gpu7")
    show_several([up, down])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[:3]] == [
        ["node", "server", "ranks", "SGLang", "fix", "config", "last", "deploy"],
        ["blackwell", "up", "2/2", "0.5.9", "ours", "done", "-"],
        ["gpu7", "down", "0/2", "0.5.9", "ours", "done", "-"],
    ]
    assert lines[3:] == ["gpu7: no server of ours; inv status --node gpu7"]


def test_the_version_is_that_of_the_server_which_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """pip installed another one under it."""
    result = told(installed("0.5.10"), changes.args(version="0.5.9"))
    assert result.to_json()["server"]["version"] == "0.5.9"
    assert "SGLang 0.5.9 (installed now: 0.5.10)" in screen(capsys, result)


def test_no_gpus_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gpus unknown: nvidia-smi was not found" in screen(capsys, told(no_gpu_tool))
    picture = pictures.on_cpu(changes.node(no_gpu_tool))
    on_cpu = screen(capsys, Status("blackwell", picture, *judge(picture)))
    assert "gpus none: the server runs on the CPU (device: cpu)" in on_cpu
    assert "nvidia-smi" not in on_cpu


@pytest.mark.parametrize(
    ("about", "who"), [({"who": "ada@desk"}, "ada@desk"), ({}, "unknown"), (None, "unknown")]
)
def test_the_record_of_a_deploy_tells_who_made_it(
    capsys: pytest.CaptureFixture[str], about: dict[str, str] | None, who: str
) -> None:
    """The journal's last entries no longer reach back to it."""

    def deployed(facts: dict[str, Any]) -> None:
        facts["state"]["deploys"] = [{"id": "d1", "files": [], "about": about}]

    assert f"last deploy d1 by {who}" in screen(capsys, told(deployed))


def test_a_server_that_does_not_answer_is_sick() -> None:
    result = told(changes.hangs)
    assert (result.state, result.why) == ("sick", "2 of 2 ranks alive, /generate: no answer within 60 s")


@pytest.mark.parametrize(
    "change", [fact_faults.no_tokens, fact_faults.tokens_told("x"), fact_faults.not_sglang]
)
def test_a_server_that_answers_200_without_a_token_is_sick(change: changes.Change) -> None:
    assert (told(change).state, told(change).why) == (
        "sick",
        "2 of 2 ranks alive, /generate: 200 after 0.2 s, no tokens",
    )


@pytest.mark.parametrize("written", [[pictures.BOOT_LOG], ["/tmp/other.log"], []])
def test_it_is_starting_only_by_a_log_of_its_own(written: list[str]) -> None:
    def begun(facts: dict[str, Any]) -> None:
        facts["log"]["matches"] = facts["log"]["matches"][:2]

    result = told(changes.hangs, begun, changes.everyone(log_fds=written))
    assert result.state == ("starting" if written == [pictures.BOOT_LOG] else "sick")


def wants_key(facts: dict[str, Any]) -> None:
    facts["http"]["generate"] = {"status": 401, "elapsed_s": 0.0, "body": '{"error": "Unauthorized"}'}


KEYS = [
    ({}, {}, "server 'kimi' names none", "in args of server 'kimi' as ${VARIABLE}"),
    ({"api-key": "${KIMI_KEY}"}, {}, "KIMI_KEY is not set", "export KIMI_KEY, then: inv verify"),
    ({"api_key": "${KIMI_KEY}"}, {"KIMI_KEY": "x"}, "does not accept the API key", "inv logs --args"),
]


@pytest.mark.parametrize(("args", "environment", "why", "remedy"), KEYS)
def test_a_server_that_wants_another_key_is_up_and_verify_says_the_same(
    args: dict[str, Any],
    environment: dict[str, str],
    why: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = changes.node(wants_key)
    server = found.node.server.model_copy(update={"args": {**found.node.server.args, **args}})
    found = replace(found, node=replace(found.node, server=server, server_name="kimi"))
    result = Status("blackwell", found, *judge(found))
    assert result.state == "up"
    assert why in result.why
    assert "inv runbook" not in screen(capsys, result)
    check = generate(found)
    assert (check.verdict, check.observed in result.why) == ("unknown", True)
    assert remedy in check.remedy
    assert "--node blackwell" in check.remedy
    assert of_check(check.id, check.observed) is None


def on_another_port(facts: dict[str, Any]) -> None:
    """The server that is meant runs, and `port` in the inventory is wrong."""
    facts["procs"]["listeners"] = []
    argv = ["python", "-m", "sglang.launch_server", "--model-path", "/models/kimi/", "--port", "49783"]
    facts["procs"]["processes"][0]["argv"] = argv


def of_another_model(facts: dict[str, Any]) -> None:
    on_another_port(facts)
    facts["procs"]["processes"][0]["argv"][4] = "/models/llama"


def test_what_is_there_in_place_of_the_server_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    taken = told(fact_faults.no_server, fact_faults.stranger_on_port)
    assert taken.state == "down"
    assert "listens on port 8000" in taken.why
    assert "inv runbook port-taken" in screen(capsys, taken)
    elsewhere = told(on_another_port)
    assert elsewhere.why.endswith(
        "a server of this model runs on port 49783, pid 100: is `port` in the inventory right?"
    )
    assert "runs on port" not in told(of_another_model).why


def test_an_earlier_servers_rank_is_not_shown_as_somebody_elses(capsys: pytest.CaptureFixture[str]) -> None:
    shown = screen(capsys, told(fact_faults.orphan))
    assert "sglang::scheduler_TP0, stale" in shown
    assert "not the server's" not in shown
