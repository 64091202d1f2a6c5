"""Each check: passes on a healthy node, fails on its fault, and is unknown where evidence is missing.

One change to the facts of a healthy node, and every check that does not pass because of it is named:
so no other check may give a false fail, and none a false pass.
"""

from __future__ import annotations

from typing import Any

import pytest

from remote import checks
from remote.errors import ExitCode
from remote.proofs import PROOFS, prove
from tests import pictures
from tests.fact_faults import (
    FAULTS,
    LOG_CHECKS,
    Change,
    Facts,
    arguments_not_told,
    config_as_text,
    hangs_with_200,
    leak,
    log_absent,
    log_elsewhere,
    log_into_a_pipe,
    log_of_another_port,
    log_of_the_day_before,
    no_config,
    no_server,
    old_config,
    orphan,
    other_copies,
    other_interpreter,
    other_weights_since_the_start,
    runs_in,
    started_as,
)
from tests.pictures import (
    DEEPSEEK,
    DRAFT,
    EXE,
    GRAPH,
    INTERPRETER,
    PYTHON,
    ROOT,
    STARTED_S,
    fixed,
    healthy,
    picture,
    pristine,
)


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
    assert {check.verdict for check in prove(on_gpus, ["gpu.holders"])} == {"unknown"}
    assert {check.verdict for check in prove(pictures.on_cpu(on_gpus), ["gpu.holders"])} == {"skip"}


def test_bytecode_that_was_purged_under_a_server_may_be_loaded_in_it() -> None:
    """It was stale, the engineer removed it, and nothing shows any more what the server has in memory."""
    facts = healthy()
    facts["state"]["purged"] = STARTED_S - 60.0
    assert not_passed(facts) == {}
    facts["state"]["purged"] = STARTED_S + 60.0
    assert not_passed(facts) == {"process.after_fix": "fail"}
    (check,) = prove(picture(facts), ["process.after_fix"])
    assert "before the bytecode of its modules changed" in check.observed
    assert "inv restart" in check.remedy


def test_who_has_the_devices_open_is_told_where_the_list_is_not_whole() -> None:
    """Case 061: nvidia-smi lists nobody, and fuser shows two children that were not ended."""
    facts = healthy()
    rank = facts["procs"]["processes"][1]["pid"]
    opened = [{"pid": pid, "name": "python3", "user": "ops", "path": "/dev/nvidia0"} for pid in (rank, 20511)]
    facts["gpus"] |= {"holders": [], "holders_known": False, "device_file_holders": opened}
    (check,) = prove(picture(facts), ["gpu.holders"])
    assert check.verdict == "unknown"
    assert [(e.source, e.text) for e in check.evidence] == [
        ("/dev/nvidia0", "open in pid 20511 python3 (user ops)")
    ]


def test_where_no_server_runs_the_inventory_tells_which_modes_there_will_be() -> None:
    """On the CPU only --enable-torch-compile makes graphs, and it is off unless asked for."""
    facts = healthy()
    no_server(facts)
    verdicts_on_cpu = {c.id: c.verdict for c in prove(pictures.on_cpu(picture(facts)))}
    assert (verdicts_on_cpu["wiring.graph"], verdicts(facts)["wiring.graph"]) == ("skip", "pass")


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
    if section in ("node", "startable"):
        return  # neither is evidence for a check
    assert not_passed(facts), f"without {section} everything passed"


@pytest.mark.parametrize(("change", "expected"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_is_found_by_its_check_and_by_no_other(change: Change, expected: dict[str, str]) -> None:
    assert not_passed(changed(change)) == expected


def test_what_is_said_of_the_configuration_and_the_capture_has_its_evidence() -> None:
    good = {check.id: check for check in prove(picture())}["config.values"]
    assert any("eagle_aux_hidden_state_layer_ids = [-1, 2, 30]" in each.text for each in good.evidence)
    silent = healthy()
    silent["log"]["matches"] = [line for line in silent["log"]["matches"] if "capture" not in line["text"]]
    none = {check.id: check for check in prove(picture(silent))}["log.capture"]
    assert (none.verdict, none.evidence[0].source) == ("fail", pictures.LOG)


def test_a_config_that_is_not_there_or_of_another_type_fails() -> None:
    assert not_passed(changed(no_config))["config.values"] == "fail"
    assert not_passed(changed(config_as_text))["config.values"] == "fail"


def test_arguments_that_nobody_tells_are_unknown() -> None:
    found = not_passed(changed(arguments_not_told))
    assert found["args.effective"] == "unknown"  # the record in the log is not all of them
    assert set(found) <= {"args.effective", "wiring.overlap"}


def recorded(facts: Facts, **changed_args: Any) -> None:
    """The log holds the whole record of the arguments, and the server does not tell them itself."""
    arguments_not_told(facts)
    words = ", ".join(f"{name}={value!r}" for name, value in {**pictures.EFFECTIVE, **changed_args}.items())
    facts["log"]["matches"][0]["text"] = f"[2026-11-29 10:00:00] server_args=ServerArgs({words})"


@pytest.mark.parametrize(
    "whose", [log_elsewhere, log_into_a_pipe, log_of_another_port, log_of_the_day_before]
)
def test_a_log_of_another_boot_tells_nothing_of_the_server_that_runs(whose: Change) -> None:
    """Not its arguments either: with graphs off, an unpatched graph runner would be none of its concern."""
    facts = healthy()
    recorded(facts, disable_cuda_graph=True)
    whose(facts)
    found = verdicts(facts, sources={**fixed(), GRAPH: pristine()[GRAPH]})
    assert {id: found[id] for id in ("args.effective", *LOG_CHECKS[1:])} == {
        "args.effective": "unknown",
        "log.capture": "unknown",
        "log.errors": "unknown",
    }
    assert found["wiring.graph"] == "fail"


def test_the_last_boot_is_the_servers_in_whatever_zone_its_times_are() -> None:
    """The record's time is local, UTC-12 to UTC+14, and comes some seconds after the process's start."""
    for stamp in ("2026-11-28 22:00:00", "2026-11-29 10:00:00", "2026-11-30 00:00:00"):
        facts = healthy()
        record = facts["log"]["matches"][0]
        record["text"] = record["text"].replace("2026-11-29 10:00:00", stamp)
        assert not_passed(facts) == {}


def test_a_record_in_the_log_tells_the_arguments_of_the_server_that_runs() -> None:
    def recorded_and_gone(facts: Facts) -> None:
        recorded(facts)
        no_server(facts)

    assert not_passed(changed(recorded)) == {}
    assert not_passed(changed(recorded_and_gone))["args.effective"] == "unknown"
    off = healthy()
    recorded(off, disable_cuda_graph=True)
    assert verdicts(off)["wiring.graph"] == "skip"


def test_a_key_that_the_inventory_spells_out_is_neither_compared_nor_shown() -> None:
    """The record in the log shows it masked, so it equals nothing."""

    def with_key(facts: Facts, key: str) -> None:
        arguments_not_told(facts)
        words = ", ".join(f"{name}={value!r}" for name, value in pictures.EFFECTIVE.items())
        facts["log"]["matches"][0]["text"] = f"[10:00:00] server_args=ServerArgs({words}, api_key={key})"

    for key, verdict in (("'hunter2hunter2'", "pass"), ("None", "fail")):
        facts = changed(lambda facts, key=key: with_key(facts, key))  # type: ignore[misc]
        found = prove(pictures.with_args(picture(facts), api_key="hunter2hunter2"))
        (check,) = [check for check in found if check.id == "args.effective"]
        assert check.verdict == verdict
        assert "hunter2" not in str(found)


def test_a_file_that_is_gone_may_have_gone_after_the_start() -> None:
    found = not_passed(sources={**fixed(), DEEPSEEK: None})
    assert found["process.after_fix"] == "unknown"
    assert found["source.state"] == "fail"


def test_files_that_cannot_be_read_may_have_changed_after_the_start() -> None:
    facts = dict(picture().facts)
    facts["files"] = {**facts["files"], GRAPH: {"error": {"kind": "permission", "message": "not allowed"}}}
    assert not_passed(facts)["process.after_fix"] == "unknown"


def test_other_weights_since_the_start_are_shown_with_both_times() -> None:
    """Only files that a server loads: an optimizer's state, or a pickle beside safetensors, is none."""
    facts = changed(other_weights_since_the_start)
    (check,) = prove(picture(facts), ["process.after_fix"])
    weights = f"{DRAFT.removesuffix('/config.json')}/model.safetensors"
    assert check.observed == f"started 2026-11-29 09:59:50.00 UTC, before {weights} changed"
    assert [(each.source, each.text) for each in check.evidence] == [
        ("/proc/100/stat", "started 2026-11-29 09:59:50.00 UTC"),
        (weights, "changed 2026-11-29 10:00:50.00 UTC"),
    ]
    assert check.remedy == "inv restart --node blackwell"
    beside = healthy()
    late_ns = int((STARTED_S + 60) * 1e9)
    beside["weights"]["ctimes_ns"] |= dict.fromkeys(("optimizer.pt", "pytorch_model.bin", "README"), late_ns)
    assert not_passed(beside) == {}


def test_weights_that_cannot_be_read_may_have_changed_after_the_start() -> None:
    facts = healthy()
    facts["weights"] = {"error": {"kind": "permission", "message": "/data/draft: not allowed"}}
    (check,) = prove(picture(facts), ["process.after_fix"])
    assert (check.verdict, check.observed) == (
        "unknown",
        "/data/draft: not allowed: when it changed cannot be told",
    )


def test_processes_that_cannot_be_read_may_import_another_tree() -> None:
    facts = healthy()
    facts["procs"] = {"error": {"kind": "permission", "message": "not allowed"}}
    assert not_passed(facts)["source.file"] == "unknown"


@pytest.mark.parametrize(
    "change",
    [
        # The shebang of the sglang script names another link of the same environment.
        started_as(
            "/opt/sglang/bin/python3", interpreter=runs_in("/opt/sglang/bin/python3", "/opt/sglang", EXE)
        ),
        started_as("python", interpreter=INTERPRETER),
        started_as(PYTHON, exe=f"{EXE} (deleted)"),
    ],
    ids=["another name", "found on PATH", "updated since"],
)
def test_the_same_interpreter_by_another_name_passes_beside_other_copies(change: Change) -> None:
    facts = changed(change)
    other_copies(facts)
    assert not_passed(facts) == {}


def test_the_base_interpreter_is_enough_where_there_is_one_sglang_only() -> None:
    assert not_passed(changed(started_as("python", interpreter=None))) == {}


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


def test_without_a_server_the_modes_are_those_of_the_next_one() -> None:
    """By the inventory, as the hypotheses have it; an old boot's arguments in the log are nobody's."""
    facts = healthy()
    recorded(facts, disable_cuda_graph=True, enable_two_batch_overlap=True)
    no_server(facts)
    found = verdicts(facts, sources={**fixed(), GRAPH: pristine()[GRAPH]})
    assert (found["wiring.graph"], found["wiring.overlap"]) == ("fail", "skip")


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
