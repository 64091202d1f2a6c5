"""One path in several spellings, wherever paths are held against each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.bench.guards import look
from remote.intent import draft_config_path, model_config_path
from remote.proofs import prove
from remote.sglang.adjustments import compare, same
from remote.sglang.failures import first_cause
from remote.sglang.modelpath import same_path, tidy
from remote.sglang.speculation import normalise
from tests import changes, pictures
from tests.bench.runs import quiet, seen

SPELLINGS = ["/models/kimi/", "/models//kimi", "//models/kimi//", "/models/./kimi"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_one_path(spelling: str) -> None:
    assert tidy(spelling) == "/models/kimi"
    assert same_path(spelling, "/models/kimi")
    assert same("model_path", spelling, "/models/kimi")
    assert compare({"model-path": spelling}, {"model_path": "/models/kimi"}) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/models/kimi", "/models/kimi2"),
        ("/models/kimi", "models/kimi"),
        ("/models/kimi", "/models/x/../kimi"),  # x may be a link
        ("/models/kimi", None),
        (None, None),
    ],
)
def test_what_may_be_another_path(one: str | None, other: str | None) -> None:
    assert not same_path(one, other)


def test_names_and_the_root_stay_as_they_are() -> None:
    assert [tidy(name) for name in ("moonshotai/Kimi-K2.5", "gpt2", "/")] == [
        "moonshotai/Kimi-K2.5",
        "gpt2",
        "/",
    ]
    assert not same("reasoning_parser", "a/", "a")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_server_that_was_started_by_hand_serves_the_same_model(spelling: str) -> None:
    draft = spelling.replace("/models", "/data").replace("kimi", "draft")
    found = changes.node(changes.args(model_path=spelling, speculative_draft_model_path=draft))
    assert changes.holding(found) == set()
    (check,) = prove(found, ["args.effective"])
    assert check.verdict == "pass"
    guards = {guard.id: guard for guard in look(seen(meanwhile=quiet(model_path=spelling)))}
    assert guards["right-server"].state == "ok"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_draft_that_is_the_target_in_another_spelling(spelling: str) -> None:
    asked: dict[str, Any] = {"model_path": "/models/kimi", "speculative_algorithm": "EAGLE3"}
    changed = normalise("0.5.9", {**asked, "speculative_draft_model_path": spelling})
    assert [each.name for each in changed if each.fatal] == ["speculative_draft_model_path"]
    found = changes.node()
    server = found.node.server.model_copy(update={"draft_model_path": spelling})
    found = replace(found, node=replace(found.node, server=server))
    (check,) = prove(found, ["config.draft"])
    assert (check.verdict, check.observed) == ("fail", "the target itself is given as the draft")


@pytest.mark.parametrize("spelling", ["/t", "/t/", "/t//"])
def test_its_failure_in_the_log_is_named_so(spelling: str) -> None:
    failure = first_cause(
        f"[10:00:00] server_args=ServerArgs(model_path='/t', speculative_draft_model_path='{spelling}',"
        " speculative_algorithm='EAGLE3')\n"
        "[10:00:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'\n"
    )
    assert failure is not None
    assert failure.code == "draft-is-target"


def test_config_files_lie_in_the_same_place() -> None:
    server = pictures.NODE.server.model_copy(
        update={"model_path": "/models/kimi/", "draft_model_path": "/data//draft/"}
    )
    assert (model_config_path(server), draft_config_path(server)) == (pictures.MODEL, pictures.DRAFT)
