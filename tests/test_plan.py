"""What would be done, and what is refused before anything is touched."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from remote.arguments import refuse_adjusted_arguments
from remote.checks import unknown
from remote.errors import ExitCode, RefusedError, UsageError
from remote.inventory import command
from remote.picture import Picture
from remote.plan import Plan, build
from remote.proofs import prove
from tests import pictures
from tests.fact_faults import (
    module_shadowed,
    no_server,
    orphan,
    pyc,
    started_before_the_fix,
    stranger_on_gpu,
    stranger_on_port,
)
from tests.pictures import (
    DEEPSEEK,
    DRAFT,
    GRAPH,
    ROOT,
    STARTED_S,
    config,
    fixed,
    healthy,
    on_cpu,
    picture,
    pristine,
)


def plan(facts: dict[str, Any] | None = None, sources: dict[str, bytes | None] | None = None) -> Plan:
    found = picture(facts, sources)
    return build(found, prove(found))


def would(found: Plan) -> set[str]:
    return {action.id for action in found.actions if action.would_change}


def test_a_healthy_node_needs_nothing() -> None:
    found = plan()
    assert not found.changes
    assert [action.id for action in found.actions] == [
        *("push-code", "push-config", "purge-pycache", "kill-stale", "free-gpus", "start", "health")
    ]


def test_the_incident_needs_all_of_it() -> None:
    facts = healthy()
    facts["configs"][DRAFT]["text"] = config([2, 30, 58])
    facts["bytecode"][f"{ROOT}/{DEEPSEEK}"]["pycs"] = [
        {"path": "x.pyc", "kind": "timestamp", "why": "", "believed": True, "stale": False}
    ]
    orphan(facts)
    found = plan(facts, pristine())
    assert would(found) == {"push-code", "push-config", "purge-pycache", "kill-stale", "free-gpus", "start"}
    assert f"{ROOT}/{DEEPSEEK}" in {write.path for write in found.code}
    assert found.purge == (f"{ROOT}/{DEEPSEEK}",)
    assert {process.pid for process in found.to_end} == {100, 101, 102, 900}
    assert found.to_end[0].pid == 100, "the launcher is ended first, so that it can drain"
    assert "+        self.capture_embedding_for_eagle3 = False" in found.action("push-code").diff
    assert json.loads(found.config[0].content)["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [
        -1,
        2,
        30,
    ]


def test_a_half_done_fix_is_completed() -> None:
    found = plan(sources={**fixed(), GRAPH: pristine()[GRAPH]})
    assert [write.path for write in found.code] == [f"{ROOT}/{GRAPH}"]
    assert "start" in would(found)


def test_an_orphan_beside_a_good_server_goes_without_a_restart() -> None:
    facts = healthy()
    orphan(facts)
    found = plan(facts)
    assert would(found) == {"kill-stale"}
    assert [process.pid for process in found.to_end] == [900]
    assert found.action("free-gpus").detail == "the server, pid 100, holds them"


def test_a_server_from_before_the_fix_is_started_anew() -> None:
    facts = healthy()
    started_before_the_fix(facts)
    assert would(plan(facts)) == {"kill-stale", "free-gpus", "start"}


def test_stale_bytecode_is_purged_and_the_server_started_anew() -> None:
    facts = healthy()
    pyc()(facts)
    assert would(plan(facts)) == {"purge-pycache", "kill-stale", "free-gpus", "start"}


def test_where_nothing_runs_a_server_is_started() -> None:
    facts = healthy()
    no_server(facts)
    found = plan(facts)
    assert would(found) == {"start"}
    assert found.to_end == ()


@pytest.mark.parametrize("stranger", [stranger_on_gpu, stranger_on_port])
def test_a_strangers_process_in_the_way_of_a_restart_is_named(stranger: Any) -> None:
    facts = healthy()
    started_before_the_fix(facts)
    stranger(facts)
    with pytest.raises(RefusedError) as caught:
        plan(facts)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert "not ours to end" in caught.value.message


def test_a_neighbour_is_no_reason_to_refuse_when_nothing_is_to_be_done() -> None:
    facts = healthy()
    stranger_on_gpu(facts)
    assert not plan(facts).changes


@pytest.mark.parametrize(("name", "ended"), [("kimi", {300, 301}), ("llama", set())])
def test_a_server_on_another_port_is_ended_where_it_was_started_as_this_one(
    name: str, ended: set[int]
) -> None:
    """The port was changed in the inventory since; or the machine serves two, each on GPUs of its own."""
    facts = healthy()
    line = "python -m sglang.launch_server --port 8001"
    other = [
        pictures.process(300, line, "launcher", sid=300, ppid=1),
        pictures.process(301, "sglang::scheduler_TP0", "scheduler", sid=300, ppid=300),
    ]
    facts["procs"]["processes"] += other
    boot = {"pid": 300, "starttime_ticks": other[0]["starttime_ticks"], "kernel_boot_id": "kernel-1"}
    facts["state"]["boots"] = [{**boot, "record": {"server": name}}]
    assert {each.pid for each in plan(facts).to_end} == ended


def test_without_nvidia_smi_a_restart_is_refused_but_not_on_cpu() -> None:
    facts = healthy()
    started_before_the_fix(facts)
    facts["gpus"] = {"available": False, "why": "nvidia-smi is not there", "gpus": [], "holders": []}
    with pytest.raises(RefusedError, match="nvidia-smi is not there"):
        plan(facts)
    cpu = on_cpu(picture(facts))
    assert build(cpu, prove(cpu)).restart


@pytest.mark.parametrize("missing", ["procs", "bytecode"])
def test_what_cannot_be_seen_is_not_touched(missing: str) -> None:
    facts = healthy()
    started_before_the_fix(facts)
    facts[missing] = {"error": {"kind": "permission", "message": "not allowed"}}
    with pytest.raises(RefusedError, match=r"could not be (read|looked at)"):
        plan(facts, pristine())


@pytest.mark.parametrize("missing", ["program", "model"])
def test_what_a_start_needs_is_looked_for_before_the_old_server_ends(missing: str) -> None:
    facts = healthy()
    started_before_the_fix(facts)
    if missing == "program":
        facts["startable"] = {"problems": ["/nowhere/python is not there, or cannot be executed"]}
    else:
        facts["configs"][pictures.MODEL] = {"exists": False, "text": None}
    with pytest.raises(RefusedError, match=r"could not be started: .* is not there"):
        plan(facts)


def test_a_foreign_edit_is_refused_with_its_diff() -> None:
    sources = dict(pristine())
    text = sources[DEEPSEEK]
    assert text is not None
    sources[DEEPSEEK] = text.replace(b"self.layers_to_capture = []", b"self.layers_to_capture = list()")
    with pytest.raises(RefusedError, match="does not fit") as caught:
        plan(sources=sources)
    assert "layers_to_capture" in caught.value.data["diff"]


def test_a_module_that_something_is_imported_in_place_of_is_refused() -> None:
    """Each run restarted the server, which then loaded the other module again."""
    facts = healthy()
    module_shadowed(facts)
    with pytest.raises(RefusedError, match=r"deepseek_v2/__init__\.py is imported in place of") as caught:
        plan(facts)
    assert caught.value.hint.startswith("move it away")


def test_a_missing_draft_is_refused() -> None:
    facts = healthy()
    facts["configs"][DRAFT] = {
        "exists": False,
        "sha256": None,
        "symlink": None,
        "real_path": DRAFT,
        "text": None,
    }
    with pytest.raises(RefusedError, match=f"{DRAFT} does not exist"):
        plan(facts)


def test_a_config_that_has_no_text_is_refused_with_the_reason() -> None:
    """One byte of Latin-1 in it was replaced by three others, far from what the bundle sets."""
    facts = healthy()
    facts["configs"][DRAFT].update(text=None, problem="byte 7 is not UTF-8")
    with pytest.raises(RefusedError, match=f"{DRAFT} could not be read: byte 7 is not UTF-8"):
        plan(facts)
    verdict = {check.id: check for check in prove(picture(facts))}["config.values"]
    assert (verdict.verdict, verdict.observed) == (
        "unknown",
        f"{DRAFT} could not be read: byte 7 is not UTF-8",
    )


def test_a_config_that_may_not_be_read_is_not_said_to_be_missing() -> None:
    facts = healthy()
    facts["configs"][DRAFT] = {"error": {"kind": "permission", "message": f"{DRAFT}: Permission denied"}}
    verdict = {check.id: check for check in prove(picture(facts))}["config.values"]
    assert (verdict.verdict, "Permission denied" in verdict.observed) == ("unknown", True)


def test_a_linked_config_is_replaced_and_not_written_through() -> None:
    facts = healthy()
    facts["configs"][DRAFT].update(symlink="../../blobs/abc", text=config([2, 30, 58]))
    assert plan(facts).config[0].replace_symlink


def with_args(found: Picture, **args: Any) -> Picture:
    server = found.node.server.model_copy(update={"args": {**found.node.server.args, **args}})
    return dataclasses.replace(found, node=dataclasses.replace(found.node, server=server))


def test_arguments_that_sglang_would_change_are_refused_with_the_values() -> None:
    """The incident: --speculative-num-steps 1 silently overrode the draft tokens."""
    found = with_args(picture(), **{"speculative-num-steps": 1})
    with pytest.raises(UsageError, match=r"speculative_num_draft_tokens 6 would become 2") as caught:
        build(found, prove(found))
    assert caught.value.exit_code == ExitCode.USAGE


def test_arguments_by_reference_are_those_that_are_set_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${STEPS}` was refused as no whole number, whatever it was."""
    found = with_args(picture(), **{"speculative-num-steps": "${STEPS}"})
    monkeypatch.setenv("STEPS", "5")
    refuse_adjusted_arguments(found)
    monkeypatch.setenv("STEPS", "1")
    with pytest.raises(UsageError, match=r"speculative_num_draft_tokens 6 would become 2"):
        refuse_adjusted_arguments(found)
    monkeypatch.delenv("STEPS")
    with pytest.raises(UsageError, match=r"wants \$\{STEPS\}, which is not set"):
        refuse_adjusted_arguments(found)


@pytest.mark.parametrize(
    ("wanted", "effective", "by_hand", "verdict", "restarts"),
    [
        (8192, 1024, False, "fail", False),
        (8192, 1024, True, "fail", True),
        ("auto", 1024, False, "pass", False),
        ("auto", 1024, True, "fail", True),
    ],
)
def test_what_sglang_makes_of_the_same_command_line_is_no_reason_to_start_it_again(
    wanted: object, effective: int, by_hand: bool, verdict: str, restarts: bool
) -> None:
    """Each run restarted the server, and failed."""
    found = pictures.with_args(picture(), chunked_prefill_size=wanted)
    facts = healthy()
    facts["procs"]["processes"][0]["argv"] = [*command(found.node), *(["--log-level", "info"] * by_hand)]
    told = {**pictures.EFFECTIVE, "chunked_prefill_size": effective}
    facts["http"]["server_info"]["body"] = json.dumps(told)
    found = dataclasses.replace(picture(facts), node=found.node)
    checks = prove(found)
    (check,) = [each for each in checks if each.id == "args.effective"]
    assert check.verdict == verdict
    assert build(found, checks).restart is restarts
    assert ("inv restart" in check.remedy) is restarts


def test_no_sglang_at_all_is_refused() -> None:
    facts = healthy()
    facts["package"] = {"error": {"kind": "missing", "message": "no package 'sglang'"}}
    with pytest.raises(RefusedError, match="no package 'sglang'"):
        plan(facts, {})


def test_a_version_that_the_fix_does_not_cover_is_refused() -> None:
    facts = healthy()
    facts["package"]["imported"]["version"] = "0.5.13"
    with pytest.raises(RefusedError, match=r"0\.5\.13"):
        plan(facts)
    assert pictures.VERSION == "0.5.9"


def test_what_a_start_needs_and_cannot_be_seen_is_refused() -> None:
    facts = healthy()
    started_before_the_fix(facts)
    facts["startable"] = {"error": {"kind": "internal", "message": "no answer"}}
    with pytest.raises(RefusedError, match="no answer"):
        plan(facts)


def loading(facts: dict[str, Any]) -> None:
    """Started after the fix, and in the midst of its weights: one rank is there, and nobody listens."""
    facts["procs"]["processes"].pop()
    facts["procs"]["listeners"] = []
    facts["gpus"]["holders"].pop()
    refused = {"status": None, "error": "refused", "elapsed_s": 0.0}
    facts["http"] = {name: dict(refused) for name in facts["http"]}
    facts["log"]["matches"] = facts["log"]["matches"][:2]
    facts["log"].update(mtime=STARTED_S + 60.0, boots=[{"offset": 77, "line": 1, "text_head": ""}])
    facts["node"]["time"] = STARTED_S + 70.0


def test_a_server_that_is_still_loading_is_waited_for() -> None:
    facts = healthy()
    loading(facts)
    found = plan(facts)
    assert not found.changes
    assert (found.restart, found.to_end) == (False, ())
    assert found.awaits is not None
    assert (found.awaits.pid, found.awaits.log, found.awaits.offset) == (100, pictures.LOG, 77)
    assert "pid 100" in found.action("start").detail
    assert "still starting (loading-target)" in found.action("start").detail
    assert found.action("health").detail == "wait until it generates"


def test_what_is_stale_beside_one_that_is_loading_goes_alone() -> None:
    facts = healthy()
    loading(facts)
    orphan(facts)
    found = plan(facts)
    assert [process.pid for process in found.to_end] == [900]
    assert would(found) == {"kill-stale"}
    assert found.awaits is not None


def writes_elsewhere(facts: dict[str, Any]) -> None:
    for each in facts["procs"]["processes"]:
        each["log_fds"] = ["/logs/another.log"]


def other_arguments(facts: dict[str, Any]) -> None:
    record = facts["log"]["matches"][0]
    record["text"] = record["text"].replace("tp_size=2", "tp_size=1")


def long_silent(facts: dict[str, Any]) -> None:
    facts["node"]["time"] += pictures.NODE.server.ready_timeout_s


def one_too_many(facts: dict[str, Any]) -> None:
    ranks = [pictures.process(200 + n, f"sglang::scheduler_TP{n}", "scheduler") for n in range(3)]
    facts["procs"]["processes"] += ranks


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (started_before_the_fix, "started .* before"),
        (pyc(), "stale bytecode"),
        (writes_elsewhere, "nobody listens"),
        (other_arguments, "tp_size = 1"),
        (long_silent, "without a word in its log for 1810 s"),
        (one_too_many, "4 of 2 schedulers"),
    ],
)
def test_one_that_is_loading_is_restarted_where_something_else_is_wrong_with_it(
    change: Any, why: str
) -> None:
    facts = healthy()
    loading(facts)
    change(facts)
    found = plan(facts)
    assert found.restart
    assert found.awaits is None
    assert 100 in {process.pid for process in found.to_end}
    assert re.search(why, found.action("start").detail)


def test_one_that_is_loading_is_restarted_where_the_fix_changes_its_files() -> None:
    facts = healthy()
    loading(facts)
    found = plan(facts, pristine())
    assert found.restart
    assert found.awaits is None


def test_it_generates_is_said_only_where_it_is_proven() -> None:
    assert plan().action("health").detail == "it generates"
    node = picture()
    found = [
        unknown(check.id, check.expected, "not asked", remedy="look")
        if check.id == "health.generate"
        else check
        for check in prove(node)
    ]
    assert build(node, found).action("health").detail == "unknown: not asked"


def test_one_that_generates_is_not_waited_for_whatever_its_log_says() -> None:
    facts = healthy()
    facts["log"]["matches"] = facts["log"]["matches"][:-1]
    assert plan(facts).awaits is None
