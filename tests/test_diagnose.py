"""Every hypothesis: holds on its fault, is refuted on a healthy node, is unknown without evidence.

A fault is one change to the facts of a healthy node (tests/pictures.py); its sources are SGLang's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from remote import bundles
from remote.diagnose import Diagnosis, conclude
from remote.errors import ExitCode
from remote.hypotheses import HYPOTHESES, scatter, weigh
from remote.picture import Picture
from remote.render import diagnose as page
from remote.render.console import THEME
from tests import pictures
from tests.pictures import DEEPSEEK, DRAFT, GRAPH, LOG, MODEL, ROOT, STARTED_S, config, healthy, picture

Facts = dict[str, Any]
Sources = dict[str, bytes | None]
Change = Callable[[Facts], None]
COMMUNICATOR = "sglang/srt/layers/communicator.py"
IDS = [cause.id for cause in HYPOTHESES]


def verdicts(found: Picture) -> dict[str, str]:
    return {each.id: each.verdict for each in weigh(found)}


def holding(found: Picture) -> set[str]:
    return {id for id, verdict in verdicts(found).items() if verdict == "holds"}


def node(*changes: Change, sources: Sources | None = None) -> Picture:
    facts = healthy()
    for change in changes:
        change(facts)
    return picture(facts, sources)


# -- changes -----------------------------------------------------------------------------------------


def args(**values: Any) -> Change:
    """The server's arguments as it tells them; None takes one away."""

    def change(facts: Facts) -> None:
        told = {**pictures.EFFECTIVE, **values}
        known = {name: value for name, value in told.items() if value is not ...}
        facts["http"]["server_info"]["body"] = json.dumps(known)

    return change


def silent(facts: Facts) -> None:
    """Neither the server nor its log tells the arguments."""
    facts["http"]["server_info"] = {"status": 404, "elapsed_s": 0.0, "body": ""}


def unreadable(section: str) -> Change:
    def change(facts: Facts) -> None:
        facts[section] = {"error": {"kind": "permission", "message": "not allowed"}}

    return change


def ids(*layers: int) -> Change:
    def change(facts: Facts) -> None:
        facts["configs"][DRAFT]["text"] = config(list(layers))

    return change


def draft(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        text = {**json.loads(facts["configs"][DRAFT]["text"]), **values}
        facts["configs"][DRAFT]["text"] = json.dumps({k: v for k, v in text.items() if v is not ...})

    return change


def target(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        facts["configs"][MODEL]["text"] = json.dumps(
            {**json.loads(facts["configs"][MODEL]["text"]), **values}
        )

    return change


def no_draft_config(facts: Facts) -> None:
    facts["configs"][DRAFT].update(exists=False, text=None)


def no_model_config(facts: Facts) -> None:
    facts["configs"][MODEL].update(exists=False, text=None)


def shapes(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        found = {**facts["weights"]["shapes"], **{k.replace("__", "."): v for k, v in values.items()}}
        facts["weights"]["shapes"] = {k: v for k, v in found.items() if v is not None}

    return change


def pickled(facts: Facts) -> None:
    facts["weights"].update(files={"pytorch_model.bin": 1_000_000}, shapes=None)


def weights(**values: Any) -> Change:
    return lambda facts: facts["weights"].update(values)


def no_server(facts: Facts) -> None:
    facts["procs"] = {"processes": [], "listeners": []}
    facts["gpus"]["holders"] = []
    refused = {"status": None, "error": "refused", "elapsed_s": 0.0}
    facts["http"] = {name: dict(refused) for name in facts["http"]}


def launcher(**values: Any) -> Change:
    return lambda facts: facts["procs"]["processes"][0].update(values)


def everyone(**values: Any) -> Change:
    def change(facts: Facts) -> None:
        for each in facts["procs"]["processes"]:
            each.update(values)

    return change


def stranger(facts: Facts) -> None:
    facts["procs"]["listeners"] = [{"port": 8000, "pid": None, "uid": 2000}]


def copies(facts: Facts) -> None:
    facts["package"]["copies"] = [
        {"root": "/sgl-workspace/sglang/python", "version": "0.5.9", "kind": "source", "why": "on sys.path"}
    ]


def pyc(stale: bool | None) -> Change:
    entry = {
        "path": "x.pyc",
        "kind": "timestamp",
        "why": "time and size match",
        "believed": True,
        "stale": stale,
    }

    def change(facts: Facts) -> None:
        facts["bytecode"][f"{ROOT}/{DEEPSEEK}"]["pycs"] = [entry]

    return change


def no_verification(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = json.dumps({"meta_info": {"completion_tokens": 8}})


def hangs(facts: Facts) -> None:
    facts["http"]["generate"] = {"status": None, "error": "no answer within 60 s", "elapsed_s": 60.0}


def not_sglang(facts: Facts) -> None:
    facts["http"]["generate"]["body"] = "<html>hello</html>"


def died(facts: Facts) -> None:
    no_server(facts)
    facts["log"]["matches"] = [
        *facts["log"]["matches"][:2],
        {
            "line": 3,
            "text": "[2026-11-29 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):"
            "\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "patterns": [],
        },
    ]


# -- sources -----------------------------------------------------------------------------------------


def edited(path: str, old: bytes, new: bytes) -> Sources:
    sources = pictures.fixed()
    content = sources[path]
    assert content is not None
    assert content.count(old) >= 1
    return {**sources, path: content.replace(old, new)}


def no_residual() -> Sources:
    """Both captures in the loop, the one of a gathered state too."""
    return edited(DEEPSEEK, b"hidden_states + residual", b"hidden_states")


def three_edits() -> Sources:
    """As in the incident: the model file is patched, and nothing else."""
    return {**pictures.fixed(), GRAPH: pictures.pristine()[GRAPH]}


def scatter_allowed() -> Sources:
    return edited(
        COMMUNICATOR,
        b'            and get_global_server_args().speculative_algorithm != "EAGLE3"\n',
        b"",
    )


def not_python() -> Sources:
    return {**pictures.fixed(), DEEPSEEK: b"class (:\n"}


def numbered(table: Sequence[tuple[Any, ...]]) -> list[str]:
    """Names for the tests of a table whose first column is the hypothesis."""
    return [f"{id}-{number}" for number, (id, *_) in enumerate(table)]


# -- holds -------------------------------------------------------------------------------------------

# (hypothesis, the fault's changes, sources, what else holds because of it)
FAULTS: list[tuple[str, list[Change], Callable[[], Sources] | None, set[str]]] = [
    ("wrong-server", [stranger], None, set()),
    ("wrong-server", [args(model_path="/models/other")], None, set()),
    ("two-installs", [launcher(env={"PYTHONPATH": "/sgl-workspace/sglang/python"})], None, set()),
    (
        "two-installs",
        [launcher(argv=["/usr/bin/python3", "-m", "sglang.launch_server"])],
        None,
        set(),
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
        pictures.pristine,
        {"fix-incomplete"},
    ),
    ("missing-residual", [], no_residual, {"fix-incomplete"}),
    ("fix-incomplete", [], pictures.pristine, {"graph-capture"}),
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
    assert {each.id for each in found if not each.evidence} <= {"stale-bytecode"}


# -- unknown -----------------------------------------------------------------------------------------

BLIND: list[tuple[str, list[Change], Callable[[], Sources] | None]] = [
    ("wrong-server", [unreadable("procs")], None),
    ("two-installs", [unreadable("package")], None),
    ("two-installs", [copies, launcher(env=None)], None),
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


def test_wrong_wiring_in_a_mode_that_is_off_is_no_cause() -> None:
    found = node(args(disable_cuda_graph=True), sources=three_edits())
    assert verdicts(found)["graph-capture"] == "refuted"


def test_on_a_stopped_server_the_wiring_is_that_of_the_next_one() -> None:
    found = conclude(node(no_server, sources=three_edits()))
    assert found.cause is not None
    assert found.cause.id == "graph-capture"
    assert [mode.applies for mode in found.modes] == [True, True, False]


# -- the answer --------------------------------------------------------------------------------------


def incident(bundle: str) -> Diagnosis:
    facts = healthy()
    three = bundles.find_bundle(bundle)
    before = picture(facts, three_edits())
    found = pictures.assemble(
        pictures.NODE, three, before.facts, before.sources, before.compile_errors, uid=pictures.UID
    )
    return conclude(found)


@pytest.mark.parametrize("bundle", ["eagle3-three-edits", "eagle3-embedding-capture"])
def test_the_incident_is_explained_and_the_command_is_one_that_mends_it(bundle: str) -> None:
    """With either fix as the one in question, the answer is the call that captures the graphs."""
    found = incident(bundle)
    assert found.cause is not None
    assert found.cause.id == "graph-capture"
    assert found.answer == f"graph-capture: decode gets [in:2, in:30, in:58], set by {GRAPH}:365"
    assert found.next == "inv deploy-fix --fix eagle3-embedding-capture --node blackwell"
    assert found.exit_code == ExitCode.OK


@pytest.mark.parametrize(
    ("changes", "sources", "first", "next_"),
    [
        # Somebody else's server explains everything that is measured.
        ([stranger, ids(2, 30, 58)], None, "wrong-server", "end it with its owner, then: inv start"),
        # A restart would not help while the disk is wrong.
        ([everyone(start_time=STARTED_S - 9)], three_edits, "graph-capture", "inv deploy-fix"),
        ([pyc(stale=True), everyone(start_time=STARTED_S - 9)], None, "stale-bytecode", "inv deploy-fix"),
        ([ids(2, 30, 58)], pictures.pristine, "fix-incomplete", "inv deploy-fix"),
        # A server that died of its draft is not helped by another start.
        (
            [no_server, draft(architectures=["LlamaForCausalLM"])],
            None,
            "draft-architecture",
            "set draft_model",
        ),
        ([died], None, "not-serving", "inv logs --errors"),
    ],
)
def test_the_first_cause_is_the_one_to_act_on(
    changes: list[Change], sources: Callable[[], Sources] | None, first: str, next_: str
) -> None:
    found = conclude(node(*changes, sources=sources() if sources else None))
    assert found.cause is not None
    assert found.cause.id == first
    assert found.next.startswith(next_)


def test_without_a_cause_the_open_ones_are_named() -> None:
    found = conclude(node(everyone(env=None)))
    assert found.cause is None
    assert found.answer == "no known cause holds, and 1 could not be decided: simulated-acceptance"
    assert found.next == "inv status --node blackwell"


def test_a_healthy_node_is_for_the_benchmark() -> None:
    found = conclude(picture())
    assert found.cause is None
    assert "eager and graph give the draft what it was trained on" in found.answer
    assert found.next == "inv bench --node blackwell"


def test_on_an_uncovered_version_no_deploy_is_advised() -> None:
    facts = healthy()
    facts["package"]["imported"]["version"] = "0.5.13"
    found = conclude(picture(facts, pictures.released("0.5.13")))
    assert found.cause is not None
    assert found.cause.id == "fix-incomplete"
    assert found.next == "inv fixes --node blackwell"


def test_on_a_native_version_the_ids_are_the_cause_and_the_deploy_sets_them() -> None:
    facts = healthy()
    facts["package"]["imported"]["version"] = "0.5.23"
    found = conclude(picture(facts, pictures.released("0.5.23")))
    assert found.cause is not None
    assert found.cause.id == "layer-ids"
    assert "[0, 3, 31]" in found.answer
    assert found.next == "inv deploy-fix --fix eagle3-embedding-capture --node blackwell"


# -- shapes ------------------------------------------------------------------------------------------


def test_json_is_the_contracts() -> None:
    document = incident("eagle3-embedding-capture").to_json()
    assert document["node"] == "blackwell"
    assert document["wiring"] == {
        "contract": ["embed", "in:3", "in:31"],
        "eager": ["embed", "in:3", "in:31"],
        "graph": ["in:2", "in:30", "in:58"],
        "overlap": ["embed"],
    }
    assert [each["id"] for each in document["hypotheses"]] == IDS
    for each in document["hypotheses"]:
        assert each["verdict"] in ("holds", "refuted", "unknown")
        assert all(set(evidence) == {"source", "text"} for evidence in each["evidence"])
    assert document["answer"]["cause"] == "graph-capture"
    json.dumps(document)


def printed(found: Diagnosis, monkeypatch: pytest.MonkeyPatch, *, verbose: bool = False) -> str:
    out = StringIO()
    console = Console(file=out, theme=THEME, width=80, highlight=False, color_system=None)
    monkeypatch.setattr(page, "console", lambda: console)
    page.show(found, verbose=verbose, clean=lambda text: text.replace("blackwell", "[hidden]"))
    return out.getvalue()


def test_the_page_is_readable_at_80_columns_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(incident("eagle3-embedding-capture"), monkeypatch)
    lines = [line.rstrip() for line in text.splitlines()]
    assert "\x1b" not in text
    body, answer = lines[:-2], lines[-2:]
    assert max(len(line) for line in body) <= 80
    assert "decode (CUDA graph) WRONG in:2, in:30, in:58" in body
    assert "two-batch overlap   off   embed" in body
    order = [line.split()[0] for line in body if line.startswith(("HOLDS", "no  "))]
    assert order == ["HOLDS"] + ["no"] * (len(IDS) - 1)
    assert answer[0].startswith("answer: graph-capture: decode gets [in:2, in:30, in:58]")
    # What may hold a secret goes through the cleaner.
    assert answer[1] == "next:   inv deploy-fix --fix eagle3-embedding-capture --node [hidden]"


def test_the_page_shows_the_evidence_of_all_with_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    found = conclude(picture())
    assert "/proc/100/stat" not in printed(found, monkeypatch)
    assert "/proc/100/stat" in printed(found, monkeypatch, verbose=True)
    assert "the draft is the target itself" in printed(found, monkeypatch, verbose=True)


def test_a_log_that_is_absent_takes_no_answer_away() -> None:
    found = node(lambda facts: facts.update(log={"exists": False, "path": LOG}))
    assert holding(found) == set()
