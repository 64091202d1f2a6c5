"""`inv diagnose`: the first cause and the command to type, the JSON, the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from remote import bundles
from remote.diagnose import Diagnosis, conclude
from remote.errors import ExitCode
from remote.render import diagnose as page
from remote.render.console import THEME
from tests import pictures
from tests.changes import (
    IDS,
    Change,
    Sources,
    died,
    draft,
    everyone,
    ids,
    no_server,
    node,
    pyc,
    stranger,
    three_edits,
)
from tests.pictures import GRAPH, STARTED_S, healthy, picture

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
    named = "two-installs, simulated-acceptance"
    assert found.answer == f"no known cause holds, and 2 could not be decided: {named}"
    assert found.next == "inv restart --node blackwell"


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
    page.show(found, verbose=verbose)
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
    assert answer[1] == "next:   inv deploy-fix --fix eagle3-embedding-capture --node blackwell"


def test_the_page_shows_the_evidence_of_all_with_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    found = conclude(picture())
    assert "/proc/100/stat" not in printed(found, monkeypatch)
    assert "/proc/100/stat" in printed(found, monkeypatch, verbose=True)
    assert "the draft is the target itself" in printed(found, monkeypatch, verbose=True)


def test_the_page_says_of_what_a_mode_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(conclude(node(ids(-1, 2, 30, 58))), monkeypatch)
    assert "prefill (eager)     DIES RuntimeError: mat1 and mat2 shapes" in text
