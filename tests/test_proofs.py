"""Each check: passes on a healthy node, fails on its fault, and is unknown where evidence is missing.

One change to the facts of a healthy node, and every check that does not pass because of it is named:
so no other check may give a false fail, and none a false pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from remote import checks
from remote.errors import ExitCode
from remote.proofs import PROOFS, prove
from tests import pictures
from tests.pictures import (
    DEEPSEEK,
    DRAFT,
    GRAPH,
    LOG,
    ROOT,
    STARTED_S,
    config,
    fixed,
    healthy,
    picture,
    pristine,
)

Facts = dict[str, Any]
Change = Callable[[Facts], None]


def verdicts(facts: Facts | None = None, **more: Any) -> dict[str, str]:
    return {check.id: check.verdict for check in prove(picture(facts, **more))}


def not_passed(facts: Facts | None = None, **more: Any) -> dict[str, str]:
    found = verdicts(facts, **more)
    return {id: verdict for id, verdict in found.items() if verdict not in ("pass", "skip")}


def changed(change: Change) -> Facts:
    facts = healthy()
    change(facts)
    return facts


def test_a_healthy_node_passes_every_check() -> None:
    found = verdicts()
    assert {id for id, verdict in found.items() if verdict == "skip"} == {"wiring.overlap"}
    assert not_passed() == {}
    assert checks.exit_code(prove(picture())) == ExitCode.OK


def test_a_server_on_the_cpu_claims_nothing_about_gpus() -> None:
    facts = healthy()
    facts["gpus"] = {"available": False, "why": "nvidia-smi was not found", "holders": [], "gpus": []}
    on_gpus = picture(facts)
    args = {**on_gpus.node.server.args, "device": "cpu"}
    node = replace(on_gpus.node, server=on_gpus.node.server.model_copy(update={"args": args}))
    assert {check.verdict for check in prove(on_gpus, ["gpu.holders"])} == {"unknown"}
    assert {check.verdict for check in prove(replace(on_gpus, node=node), ["gpu.holders"])} == {"skip"}


def test_nothing_known_is_nothing_proven() -> None:
    """Every section unreadable: no check passes, none crashes."""
    nothing = {name: {"error": {"kind": "internal", "message": "x"}} for name in healthy()}
    nothing["files"] = {"error": {"kind": "internal", "message": "x"}}
    found = {check.id: check.verdict for check in prove(picture(nothing, sources={}))}
    assert "pass" not in found.values(), found
    assert checks.exit_code(prove(picture(nothing, sources={}))) in (
        ExitCode.CHECK_FAILED,
        ExitCode.UNDETERMINED,
    )


@pytest.mark.parametrize("section", sorted({*healthy(), "files"}))
def test_one_unreadable_section_never_lets_all_pass(section: str) -> None:
    facts = healthy()
    facts[section] = {"error": {"kind": "permission", "message": "not allowed"}}
    if section in ("node", "state", "startable"):
        return  # neither is evidence for a check
    assert not_passed(facts), f"without {section} everything passed"


def drop_rank(facts: Facts) -> None:
    facts["procs"]["processes"] = [p for p in facts["procs"]["processes"] if p["pid"] != 102]
    facts["gpus"]["holders"] = [h for h in facts["gpus"]["holders"] if h["pid"] != 102]
    facts["gpus"]["gpus"][1]["memory_used_mib"] = 10


def no_server(facts: Facts) -> None:
    facts["procs"] = {"processes": [], "listeners": []}
    facts["gpus"]["holders"] = []
    for gpu in facts["gpus"]["gpus"]:
        gpu["memory_used_mib"] = 10
    refused = {"status": None, "error": "connection refused", "elapsed_s": 0.0}
    facts["http"] = dict.fromkeys(facts["http"], refused)


def orphan(facts: Facts) -> None:
    facts["procs"]["processes"].append(
        pictures.process(900, "sglang::scheduler_TP0", "scheduler", ppid=1, sid=899)
    )
    facts["gpus"]["holders"].append(
        {"gpu_index": 0, "pid": 900, "name": "sglang::scheduler_TP0", "used_mib": 9}
    )


def stranger_on_gpu(facts: Facts) -> None:
    facts["procs"]["processes"].append(
        pictures.process(901, "python3 train.py", None, ppid=1, sid=901, uid=2000, user="other")
    )
    facts["gpus"]["holders"].append({"gpu_index": 0, "pid": 901, "name": "python3", "used_mib": 4000})


def stranger_on_port(facts: Facts) -> None:
    facts["procs"]["listeners"] = [{"port": 8000, "pid": None, "uid": 2000}]


def rank_stopped(facts: Facts) -> None:
    facts["procs"]["processes"][2]["state"] = "T"


def started_before_the_fix(facts: Facts) -> None:
    for each in facts["procs"]["processes"]:
        each["start_time"] = STARTED_S - 3600


def old_config(facts: Facts) -> None:
    facts["configs"][DRAFT]["text"] = config([2, 30, 58])


def config_as_text(facts: Facts) -> None:
    facts["configs"][DRAFT]["text"] = config([-1, 2, 30]).replace("[\n", '"[').replace("]", ']"')


def no_config(facts: Facts) -> None:
    facts["configs"][DRAFT] = {
        "exists": False,
        "sha256": None,
        "symlink": None,
        "real_path": DRAFT,
        "text": None,
    }


def pyc(**more: Any) -> Change:
    entry = {
        "path": "x.pyc",
        "kind": "timestamp",
        "why": "time and size match",
        "believed": True,
        "stale": True,
    }

    def change(facts: Facts) -> None:
        facts["bytecode"][f"{ROOT}/{DEEPSEEK}"]["pycs"] = [{**entry, **more}]

    return change


def memory_not_told(facts: Facts) -> None:
    for gpu in facts["gpus"]["gpus"]:
        gpu["memory_used_mib"] = None


def holders_not_told(facts: Facts) -> None:
    facts["gpus"].update(holders=[], holders_known=False, why="the process list is [Not Supported]")


def leak(facts: Facts) -> None:
    facts["gpus"]["gpus"].append({"index": 2, "memory_used_mib": 70211, "memory_total_mib": 97887})


def leak_beside_a_rank(facts: Facts) -> None:
    """The node says that its list is short of somebody (remote/node/gpus.py, accounted_for)."""
    facts["gpus"]["gpus"][1]["memory_used_mib"] += 9000
    facts["gpus"].update(holders_known=False)


def holder_without_pid(facts: Facts) -> None:
    facts["gpus"]["holders"].append({"gpu_index": 0, "pid": None, "name": "[N/A]", "used_mib": None})


def other_draft_tokens(facts: Facts) -> None:
    facts["http"]["server_info"]["body"] = json.dumps(
        {**pictures.EFFECTIVE, "speculative_num_draft_tokens": 2}
    )


def arguments_not_told(facts: Facts) -> None:
    facts["http"]["server_info"] = {"status": 404, "elapsed_s": 0.0, "body": ""}


def one_rank_silent(facts: Facts) -> None:
    facts["log"]["matches"] = [m for m in facts["log"]["matches"] if "TP1" not in m["text"]]


def other_capture(facts: Facts) -> None:
    for match in facts["log"]["matches"]:
        match["text"] = match["text"].replace("[embed, in:3, in:31]", "[in:2, in:30, in:58]")


def log_absent(facts: Facts) -> None:
    facts["log"] = {"exists": False, "path": LOG}


def log_elsewhere(facts: Facts) -> None:
    facts["procs"]["processes"][0]["log_fds"] = ["/tmp/nohup.out"]


def log_cut_off(facts: Facts) -> None:
    facts["log"]["matches"] = facts["log"]["matches"][:2]


def hangs_with_200(facts: Facts) -> None:
    facts["http"]["generate"] = {"status": None, "error": "no answer within 60 s", "elapsed_s": 60.0}


def no_tokens(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = json.dumps({"meta_info": {"completion_tokens": 0}})


def not_sglang(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = "<html>hello</html>"


def unhealthy(facts: Facts) -> None:
    facts["http"]["health"] = {"status": 503, "elapsed_s": 20.0, "body": ""}


def no_weights(facts: Facts) -> None:
    facts["weights"].update(files={"config.json": 900}, shapes=None)


def narrow_fc(facts: Facts) -> None:
    facts["weights"]["shapes"]["fc.weight"] = [7168, 2 * 7168]


def no_eagle3_draft(facts: Facts) -> None:
    """It would load none of the weights: they are named as an EAGLE-3 draft's."""
    text = facts["configs"][DRAFT]["text"]
    facts["configs"][DRAFT]["text"] = text.replace("LlamaForCausalLMEagle3", "LlamaForCausalLM")


def no_head(facts: Facts) -> None:
    """It would be left at random values, and nothing would be accepted: no error anywhere."""
    del facts["weights"]["shapes"]["lm_head.weight"]


def pickled_weights(facts: Facts) -> None:
    facts["weights"].update(files={"config.json": 900, "pytorch_model.bin": 1_000_000}, shapes=None)


def other_interpreter(facts: Facts) -> None:
    launcher = facts["procs"]["processes"][0]
    launcher["argv"] = ["/usr/bin/python3", "-m", "sglang.launch_server", "--port", "8000"]


def other_search_path(facts: Facts) -> None:
    facts["procs"]["processes"][0]["env"] = {"PYTHONPATH": "/sgl-workspace/sglang/python"}


def started_beside_a_checkout(facts: Facts) -> None:
    facts["procs"]["processes"][0].update(cwd="/sgl-workspace/sglang/python", cwd_package=True)


def environment_hidden(facts: Facts) -> None:
    facts["procs"]["processes"][0]["env"] = None


GONE = {"process.single", "process.owner", "process.ranks", "process.after_fix", "gpu.holders"}
GONE |= {"log.boot", "health.http", "health.generate", "args.effective"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            no_server,
            {**dict.fromkeys(GONE, "fail"), "args.effective": "unknown", "wiring.overlap": "unknown"},
        ),
        (drop_rank, {"process.ranks": "fail"}),
        (rank_stopped, {"process.ranks": "fail"}),
        (orphan, {"process.single": "fail", "gpu.holders": "fail"}),
        (stranger_on_gpu, {"gpu.holders": "fail"}),
        (stranger_on_port, {"process.owner": "fail"}),
        (started_before_the_fix, {"process.after_fix": "fail"}),
        (old_config, {"config.values": "fail", "wiring.eager": "fail", "wiring.graph": "fail"}),
        (pyc(), {"bytecode.fresh": "fail"}),
        (pyc(kind="unchecked-hash"), {"bytecode.fresh": "fail"}),
        (pyc(stale=None), {"bytecode.fresh": "unknown"}),
        (pyc(believed=None, stale=None), {"bytecode.fresh": "unknown"}),
        (pyc(believed=False, stale=False), {}),
        (memory_not_told, {"gpu.holders": "unknown"}),
        (holders_not_told, {"gpu.holders": "unknown"}),
        (leak, {"gpu.holders": "fail"}),
        (holder_without_pid, {"gpu.holders": "unknown"}),
        (leak_beside_a_rank, {"gpu.holders": "fail"}),
        (other_draft_tokens, {"args.effective": "fail"}),
        (one_rank_silent, {"log.capture": "fail"}),
        (other_capture, {"log.capture": "fail"}),
        (log_absent, {"log.boot": "unknown", "log.capture": "unknown", "log.errors": "unknown"}),
        (log_elsewhere, {"log.boot": "fail", "log.capture": "unknown", "log.errors": "unknown"}),
        (log_cut_off, {"log.boot": "unknown", "log.capture": "unknown"}),
        (hangs_with_200, {"health.generate": "fail"}),
        (no_tokens, {"health.generate": "fail"}),
        (not_sglang, {"health.generate": "unknown"}),
        (unhealthy, {"health.http": "fail"}),
        (no_weights, {"config.draft": "fail"}),
        (narrow_fc, {"config.draft": "fail"}),
        (no_eagle3_draft, {"config.draft": "fail"}),
        (no_head, {"config.draft": "fail"}),
        (pickled_weights, {"config.draft": "unknown"}),
        (other_interpreter, {"source.file": "fail"}),
        (other_search_path, {"source.file": "fail"}),
        (started_beside_a_checkout, {"source.file": "fail"}),
        (environment_hidden, {"source.file": "unknown"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_by_its_check_and_by_no_other(change: Change, expected: dict[str, str]) -> None:
    assert not_passed(changed(change)) == expected


def test_a_config_that_is_not_there_or_of_another_type_fails() -> None:
    assert not_passed(changed(no_config))["config.values"] == "fail"
    assert not_passed(changed(config_as_text))["config.values"] == "fail"


def test_arguments_that_nobody_tells_are_unknown() -> None:
    found = not_passed(changed(arguments_not_told))
    assert found["args.effective"] == "unknown"  # the record in the log is not all of them
    assert set(found) <= {"args.effective", "wiring.overlap"}


def test_a_log_of_another_boot_tells_nothing_of_the_server_that_runs() -> None:
    def unasked_and_elsewhere(facts: Facts) -> None:
        log_elsewhere(facts)
        arguments_not_told(facts)
        words = ", ".join(f"{name}={value!r}" for name, value in pictures.EFFECTIVE.items())
        facts["log"]["matches"][0]["text"] = f"[2026-11-29 10:00:00] server_args=ServerArgs({words})"

    found = not_passed(changed(unasked_and_elsewhere))
    assert found["args.effective"] == "unknown"
    assert found["log.capture"] == "unknown"


def test_a_record_in_the_log_tells_the_arguments_of_the_server_that_runs() -> None:
    def unasked(facts: Facts) -> None:
        arguments_not_told(facts)
        words = ", ".join(f"{name}={value!r}" for name, value in pictures.EFFECTIVE.items())
        facts["log"]["matches"][0]["text"] = f"[2026-11-29 10:00:00] server_args=ServerArgs({words})"

    def unasked_and_gone(facts: Facts) -> None:
        unasked(facts)
        no_server(facts)

    assert not_passed(changed(unasked)) == {}
    assert not_passed(changed(unasked_and_gone))["args.effective"] == "unknown"


def test_a_file_that_is_gone_may_have_gone_after_the_start() -> None:
    found = not_passed(sources={**fixed(), DEEPSEEK: None})
    assert found["process.after_fix"] == "unknown"
    assert found["source.state"] == "fail"


def test_files_that_cannot_be_read_may_have_changed_after_the_start() -> None:
    facts = dict(picture().facts)
    facts["files"] = {**facts["files"], GRAPH: {"error": {"kind": "permission", "message": "not allowed"}}}
    assert not_passed(facts)["process.after_fix"] == "unknown"


def test_processes_that_cannot_be_read_may_import_another_tree() -> None:
    facts = healthy()
    facts["procs"] = {"error": {"kind": "permission", "message": "not allowed"}}
    assert not_passed(facts)["source.file"] == "unknown"


@pytest.mark.parametrize("more", [{}, {"restored": STARTED_S}])
def test_a_copy_that_was_patched_and_is_not_imported_is_named(more: dict[str, Any]) -> None:
    """It is on the interpreter's path, behind another one: what a deploy put there is not what runs."""
    other = "/opt/sglang/lib/python3.11/patched"
    facts = healthy()
    facts["package"]["copies"] = [{"root": other, "version": "0.5.9", "kind": "wheel", "why": "on the path"}]
    files = [{"named": f"{other}/{DEEPSEEK}"}, {"named": DRAFT}]
    facts["state"]["deploys"] = [{"id": "d1", "files": files, **more}]
    found = {check.id: check for check in prove(picture(facts, sources=pristine()))}
    assert found["source.file"].verdict == ("pass" if more else "fail")
    assert other in (found["source.file"].observed if not more else other)
    # What is imported has the fix: it is all the same what lies behind it.
    assert not_passed(facts) == {}


def test_a_mode_that_is_off_is_skipped_whatever_the_configuration() -> None:
    assert verdicts(changed(no_config))["wiring.overlap"] == "skip"


def test_unpatched_source_fails_on_state_behaviour_and_wiring() -> None:
    found = not_passed(sources=pristine())
    assert {id for id, verdict in found.items() if verdict == "fail"} >= {
        "source.state",
        "source.behaviour",
        "wiring.graph",
        "wiring.eager",
    }


def test_the_incident_replayed_names_the_graph_call_site() -> None:
    """Three edits and the config, and nothing else: prefill is right, and every decode step is wrong."""
    sources = {**fixed(), GRAPH: pristine()[GRAPH]}
    by_id = {check.id: check for check in prove(picture(sources=sources))}
    assert by_id["source.behaviour"].verdict == "pass"
    assert by_id["wiring.eager"].verdict == "pass"
    assert by_id["config.values"].verdict == "pass"
    graph = by_id["wiring.graph"]
    assert graph.verdict == "fail"
    assert graph.observed == "[in:2, in:30, in:58]"
    assert graph.evidence[0].source == f"{GRAPH}:365"


def test_a_file_that_the_node_does_not_compile_fails_with_its_line() -> None:
    bad = {"ok": False, "error": {"line": 2988, "message": "invalid syntax"}}
    broken = pictures.assemble(
        pictures.NODE,
        pictures.BUNDLE,
        pictures.picture().facts,
        fixed(),
        {**pictures.picture().compile_errors, DEEPSEEK: bad},
        uid=pictures.UID,
    )
    check = next(check for check in prove(broken) if check.id == "source.compiles")
    assert check.verdict == "fail"
    assert check.observed == f"{ROOT}/{DEEPSEEK}:2988: invalid syntax"


def test_what_does_not_pass_says_what_to_type() -> None:
    for change in (no_server, orphan, old_config, leak, log_absent, hangs_with_200, other_interpreter):
        for check in prove(picture(changed(change))):
            if check.verdict in ("fail", "unknown"):
                assert check.remedy, check.id
                assert check.expected, check.id
                assert check.observed, check.id


def test_every_check_of_the_contract_is_there() -> None:
    assert set(PROOFS) >= {
        *("source.file", "source.state", "source.compiles", "source.behaviour", "bytecode.fresh"),
        *("config.values", "wiring.eager", "wiring.graph", "wiring.overlap"),
        *("process.single", "process.owner", "process.ranks", "process.after_fix", "gpu.holders"),
        *("args.effective", "log.boot", "log.capture", "log.errors", "health.http", "health.generate"),
    }


def test_no_check_at_all_is_not_a_pass() -> None:
    assert checks.exit_code([]) == ExitCode.UNDETERMINED
    assert checks.exit_code([checks.skipped("a", "b", "c")]) == ExitCode.UNDETERMINED
