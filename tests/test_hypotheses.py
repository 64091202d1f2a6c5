"""Every hypothesis: holds on its fault, is refuted on a healthy node, is unknown without evidence.

A fault is one change to the facts of a healthy node (tests/changes.py); its sources are SGLang's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from remote.diagnose import conclude
from remote.hypotheses import HYPOTHESES, scatter, weigh
from tests import fact_faults, pictures
from tests.changes import (
    COMMUNICATOR,
    IDS,
    Change,
    Sources,
    args,
    deployed_to,
    died,
    draft,
    everyone,
    hangs,
    holding,
    ids,
    launcher,
    no_draft_config,
    no_model_config,
    no_residual,
    no_server,
    no_verification,
    node,
    not_python,
    not_sglang,
    pickled,
    pyc,
    scatter_allowed,
    shapes,
    silent,
    stranger,
    target,
    three_edits,
    unreadable,
    verdicts,
    weights,
)
from tests.pictures import DEEPSEEK, DRAFT, LOG, MODEL, STARTED_S, healthy, picture, pristine


def numbered(table: Sequence[tuple[Any, ...]]) -> list[str]:
    """Names for the tests of a table whose first column is the hypothesis."""
    return [f"{id}-{number}" for number, (id, *_) in enumerate(table)]


# -- holds -------------------------------------------------------------------------------------------

# (hypothesis, the fault's changes, sources, what else holds because of it)
FAULTS: list[tuple[str, list[Change], Callable[[], Sources] | None, set[str]]] = [
    ("wrong-server", [stranger], None, set()),
    ("wrong-server", [args(model_path="/models/other")], None, set()),
    ("two-installs", [launcher(env={"PYTHONPATH": "/sgl-workspace/sglang/python"})], None, set()),
    ("two-installs", [fact_faults.other_interpreter], None, set()),
    ("two-installs", [fact_faults.other_environment], None, set()),
    ("two-installs", [fact_faults.other_executable], None, set()),
    (
        "two-installs",
        [deployed_to("/opt/other/site-packages")],
        pristine,
        {"fix-incomplete", "graph-capture"},
    ),
    ("two-installs", [args(version="0.5.8")], None, set()),
    ("simulated-acceptance", [launcher(env={"SGLANG_SIMULATE_ACC_LEN": "3.5"})], None, set()),
    ("draft-path", [weights(exists=False, problem="no such directory", files={}, shapes=None)], None, set()),
    ("draft-path", [args(speculative_draft_model_path="/data/other")], None, set()),
    ("draft-path", [args(speculative_draft_model_path=None)], None, set()),
    ("draft-path", [no_draft_config], None, set()),
    ("draft-is-target", [lambda f: f["configs"][DRAFT].update(real_path=MODEL)], None, set()),
    (
        "draft-is-target",
        [args(speculative_draft_model_path="/models/kimi")],
        None,
        {"draft-path"},
    ),
    ("draft-weights", [weights(files={"config.json": 900}, shapes=None)], None, set()),
    ("draft-weights", [weights(files={"model.safetensors": 130})], None, set()),
    ("draft-weights", [weights(shards=["model-00002-of-00002.safetensors"])], None, set()),
    ("draft-weights", [weights(shapes=None, problem="model.safetensors: a header of 0 bytes")], None, set()),
    ("draft-architecture", [draft(architectures=["LlamaForCausalLM"])], None, set()),
    ("draft-architecture", [draft(architectures=...)], None, set()),
    ("draft-layers", [draft(num_hidden_layers=61)], None, set()),
    ("draft-vocabulary", [draft(draft_vocab_size=128256)], None, set()),
    ("draft-vocabulary", [shapes(lm_head__weight=None)], None, set()),
    ("draft-vocabulary", [shapes(d2t=[151936])], None, set()),
    ("draft-vocabulary", [draft(vocab_size=163840), shapes(d2t=None)], None, set()),
    ("draft-fc-width", [shapes(fc__weight=[7168, 2 * 7168])], None, set()),
    ("draft-fc-width", [shapes(fc__weight=[7168, 3 * 4096])], None, set()),
    (
        "wrapper-class",
        [target(architectures=["KimiK25ForConditionalGeneration"])],
        pristine,
        {"fix-incomplete"},
    ),
    ("missing-residual", [], no_residual, {"fix-incomplete"}),
    ("fix-incomplete", [], pristine, {"graph-capture"}),
    ("fix-incomplete", [], lambda: {**pictures.fixed(), DEEPSEEK: None}, set()),
    ("fix-incomplete", [], lambda: {**pictures.fixed(), DEEPSEEK: b""}, set()),
    ("layer-ids", [ids(2, 30, 58)], None, set()),
    ("layer-ids", [ids(0, 3, 31)], None, set()),
    ("layer-ids", [lambda f: f["configs"][DRAFT].update(text="{")], None, set()),
    ("graph-capture", [], three_edits, set()),
    ("two-batch-overlap", [args(enable_two_batch_overlap=True)], None, set()),
    ("tp-sharded-embedding", [args(enable_attn_tp_input_scattered=True)], scatter_allowed, set()),
    ("stale-bytecode", [pyc(stale=True)], None, set()),
    ("stale-process", [everyone(start_time=STARTED_S - 3600)], None, set()),
    ("speculation-off", [args(speculative_algorithm=None)], None, set()),
    ("speculation-off", [no_verification], None, set()),
    ("algorithm-alias", [args(speculative_algorithm="EAGLE")], None, set()),
    ("algorithm-alias", [args(speculative_algorithm="NEXTN"), no_draft_config], None, {"draft-path"}),
    ("draft-tokens-adjusted", [args(speculative_num_draft_tokens=2)], None, set()),
    ("not-serving", [no_server], None, set()),
    ("not-serving", [died], None, set()),
    ("not-serving", [hangs], None, set()),
]


@pytest.mark.parametrize(("id", "changes", "sources", "others"), FAULTS, ids=numbered(FAULTS))
def test_it_holds_on_its_fault_and_no_other_does(
    id: str, changes: list[Change], sources: Callable[[], Sources] | None, others: set[str]
) -> None:
    found = node(*changes, sources=sources() if sources else None)
    assert holding(found) == {id, *others}
    each = next(each for each in weigh(found) if each.id == id)
    assert each.says
    assert each.remedy.count("blackwell") == 1, each.remedy


def test_a_healthy_node_refutes_every_hypothesis_with_a_reason() -> None:
    found = weigh(picture())
    assert {each.id: each.verdict for each in found} == dict.fromkeys(IDS, "refuted")
    assert all(each.says for each in found)
    assert all(each.evidence for each in found)


# -- unknown -----------------------------------------------------------------------------------------

BLIND: list[tuple[str, list[Change], Callable[[], Sources] | None]] = [
    ("wrong-server", [unreadable("procs")], None),
    ("two-installs", [unreadable("package")], None),
    ("two-installs", [launcher(env=None)], None),
    ("two-installs", [fact_faults.interpreter_not_told], None),
    ("simulated-acceptance", [everyone(env=None)], None),
    ("simulated-acceptance", [unreadable("procs")], None),
    ("draft-path", [unreadable("weights")], None),
    ("draft-path", [silent], None),
    ("draft-weights", [unreadable("weights")], None),
    ("draft-architecture", [no_draft_config], None),
    ("draft-architecture", [unreadable("configs")], None),
    ("draft-layers", [draft(num_hidden_layers=...)], None),
    ("draft-layers", [unreadable("weights")], None),
    ("draft-vocabulary", [pickled], None),
    ("draft-fc-width", [pickled], None),
    ("draft-fc-width", [no_model_config], None),
    ("wrapper-class", [], not_python),
    ("missing-residual", [], not_python),
    ("fix-incomplete", [no_model_config], None),
    ("layer-ids", [no_draft_config], None),
    ("layer-ids", [no_model_config], None),
    ("graph-capture", [], not_python),
    ("two-batch-overlap", [silent], None),
    ("tp-sharded-embedding", [silent], scatter_allowed),
    ("stale-bytecode", [pyc(stale=None)], None),
    ("stale-bytecode", [unreadable("bytecode")], None),
    ("stale-process", [no_server], None),
    ("stale-process", [unreadable("procs")], None),
    ("speculation-off", [silent], None),
    ("algorithm-alias", [silent], None),
    ("draft-tokens-adjusted", [silent], None),
    ("not-serving", [not_sglang], None),
    ("not-serving", [unreadable("http")], None),
]


@pytest.mark.parametrize(("id", "changes", "sources"), BLIND, ids=numbered(BLIND))
def test_without_evidence_it_is_unknown(
    id: str, changes: list[Change], sources: Callable[[], Sources] | None
) -> None:
    each = next(e for e in weigh(node(*changes, sources=sources() if sources else None)) if e.id == id)
    assert each.verdict == "unknown", each
    assert each.says
    assert "blackwell" in each.remedy


def test_every_hypothesis_is_tried_both_ways() -> None:
    assert {id for id, *_ in FAULTS} == set(IDS)
    # Without a draft path the first one holds; where paths are known, equality is known.
    assert {id for id, *_ in BLIND} == set(IDS) - {"draft-is-target"}


def test_nothing_known_holds_nothing_and_refutes_nothing() -> None:
    nothing = {name: {"error": {"kind": "internal", "message": "x"}} for name in (*healthy(), "files")}
    found = verdicts(picture(nothing, sources={}))
    known = {id for id, verdict in found.items() if verdict != "unknown"}
    assert known == {"draft-is-target"}  # told by the inventory alone


# -- the finer points --------------------------------------------------------------------------------


def test_input_scatter_asked_for_is_not_used_with_eagle3() -> None:
    found = node(args(enable_attn_tp_input_scattered=True, speculative_algorithm="EAGLE3"))
    each = next(e for e in weigh(found) if e.id == "tp-sharded-embedding")
    assert each.verdict == "refuted"
    assert each.evidence[0].source == f"{COMMUNICATOR}:186"


@pytest.mark.parametrize("version", ["0.5.5", "0.5.5.post3", "0.5.12", "0.5.20", "0.5.21", "0.5.23"])
def test_input_scatter_is_excluded_or_absent_in_every_release(version: str) -> None:
    asked_for = node(args(enable_attn_tp_input_scattered=True))
    cause = next(each for each in HYPOTHESES if each.id == "tp-sharded-embedding")
    found = HYPOTHESES[cause](cause, replace(asked_for, sources=pictures.released(version)))
    assert found.verdict == "refuted", found
    assert any(path in found.evidence[0].source for path in scatter.FILES)


@pytest.mark.parametrize("value", ["-1", "0", "", "off"])
def test_a_simulated_length_that_is_not_above_zero_is_off(value: str) -> None:
    assert "simulated-acceptance" not in holding(node(launcher(env={"SGLANG_SIMULATE_ACC_LEN": value})))


def test_a_file_that_does_not_compile_is_a_cause() -> None:
    bad = {"ok": False, "error": {"line": 2988, "message": "invalid syntax"}}
    found = replace(picture(sources=not_python()), compile_errors={DEEPSEEK: bad})
    each = next(e for e in weigh(found) if e.id == "fix-incomplete")
    assert each.verdict == "holds"
    assert each.says.endswith("deepseek_v2.py:2988: invalid syntax")
    assert each.remedy == "inv deploy-fix --fix eagle3-embedding-capture --from-pristine --node blackwell"


@pytest.mark.parametrize("root", [pictures.ROOT, "/opt/other/site-packages"])
def test_where_the_imported_files_are_patched_earlier_deploys_elsewhere_are_history(root: str) -> None:
    assert holding(node(deployed_to(root))) == set()


def test_a_deploy_that_was_put_back_patched_nothing() -> None:
    found = node(deployed_to("/opt/other/site-packages", restored=1.0), sources=pristine())
    assert "two-installs" not in holding(found)


def test_wrong_wiring_in_a_mode_that_is_off_is_no_cause() -> None:
    found = node(args(disable_cuda_graph=True), sources=three_edits())
    assert verdicts(found)["graph-capture"] == "refuted"
    off = verdicts(node(no_model_config, args(disable_cuda_graph=True)))
    assert (off["graph-capture"], off["two-batch-overlap"]) == ("refuted", "refuted")


def test_on_a_stopped_server_the_wiring_is_that_of_the_next_one() -> None:
    found = conclude(node(no_server, sources=three_edits()))
    assert found.cause is not None
    assert found.cause.id == "graph-capture"
    assert [mode.applies for mode in found.modes] == [True, True, False]


def test_a_log_that_is_absent_takes_no_answer_away() -> None:
    found = node(lambda facts: facts.update(log={"exists": False, "path": LOG}))
    assert holding(found) == set()


def test_how_another_server_ended_is_not_how_ours_did() -> None:
    """Both append to one file; ours is gone, and what failed in the log was on another port."""
    of_ours = next(e for e in weigh(node(died)) if e.id == "not-serving")
    assert "OutOfMemoryError" in of_ours.says
    of_another = next(e for e in weigh(node(died, fact_faults.log_of_another_port)) if e.id == "not-serving")
    assert (of_another.verdict, of_another.says) == ("holds", "no server of ours runs")
