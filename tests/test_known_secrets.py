"""The values of `${VAR}` on a node are read off what runs there, and masked wherever they would be shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote import checks, fixes, redact, status
from remote.bench import verdict
from remote.errors import InventoryError
from remote.intent import capturing_ranks, endpoint, expected_ranks, our_gpus
from remote.inventory import Node, command
from remote.proofs import source
from remote.redact import KnownSecrets, clean_tree
from remote.secrets import on_node
from remote.sglang import boots
from tests import pictures
from tests.changes import node as healthy


def node(args: dict[str, Any], env: dict[str, str] | None = None) -> Node:
    entry = pictures.NODE.server
    return replace(
        pictures.NODE, server=entry.model_copy(update={"args": {**entry.args, **args}, "env": env or {}})
    )


def runs(argv: list[str], env: dict[str, str] | None = None, boot: list[str] | None = None) -> dict[str, Any]:
    """The facts of one process, and of a boot on record."""
    record = {"record": {"argv": boot, "env": {}}} if boot else {}
    return {"procs": {"processes": [{"argv": argv, "env": env}]}, "state": {"boots": [record]}}


NAMED = node({"served-model-name": "kimi-${STAGE}-${PLACE}"})


def started(where: Node, **values: str) -> list[str]:
    """The command line that a start with these variables has."""
    argv = command(where)
    for name, value in values.items():
        argv = [word.replace(f"${{{name}}}", value) for word in argv]
    return argv


def test_of_a_server_started_from_this_inventory() -> None:
    assert on_node(NAMED, runs(started(NAMED, STAGE="blue", PLACE="attic")), []) == {"blue", "attic"}


def test_of_a_server_started_by_hand_with_other_arguments() -> None:
    line = ["python", "-m", "sglang.launch_server", "--served_model_name=kimi-blue-attic", "--port", "8000"]
    assert on_node(NAMED, runs(line), []) == {"blue", "attic"}
    other = ["python", "-m", "sglang.launch_server", "--served-model-name", "her-own-name"]
    assert on_node(NAMED, runs(other), []) == {"her-own-name"}


def test_of_a_boot_whose_references_this_inventory_has_lost() -> None:
    facts = runs(started(NAMED, STAGE="blue", PLACE="attic"), boot=command(NAMED))
    assert on_node(node({}), facts, []) == {"blue", "attic"}


def test_of_the_command_in_front_of_the_arguments() -> None:
    entry = pictures.NODE.server.model_copy(update={"command": ["wrap", "--as", "${WHO}", "python"]})
    wrapped = replace(pictures.NODE, server=entry)
    assert on_node(wrapped, runs(started(wrapped, WHO="nobody-else")), []) == {"nobody-else"}


def test_of_a_variable() -> None:
    where = node({}, {"PYTHONPATH": "/srv/${PLACE}:/opt"})
    assert on_node(where, runs(["python"], {"PYTHONPATH": "/srv/attic:/opt"}), []) == {"attic"}


def test_of_what_the_log_tells_of_a_server_that_is_gone() -> None:
    assert on_node(NAMED, {}, [{"served_model_name": "kimi-blue-attic", "port": 8000}]) == {"blue", "attic"}
    several = node({"lora-paths": ["base=/b", "own=${PLACE}"]})
    assert "attic" in on_node(several, {}, [{"lora_paths": ["base=/b", "own=attic"]}])


def test_a_default_that_the_inventory_spells_out_elsewhere_is_no_value() -> None:
    """A server that was started by hand without a name: SGLang logs the model's path as its name."""
    path = NAMED.server.model_path
    assert on_node(NAMED, {}, [{"model_path": path, "served_model_name": path}]) == set()


@pytest.mark.parametrize(
    "facts",
    [{}, {"procs": {"error": {}}, "state": {"error": {}}}, runs([], None), runs(["--served-model-name"])],
)
def test_nothing_is_known_where_nothing_was_read(facts: dict[str, Any]) -> None:
    assert on_node(NAMED, facts, []) == set()


def test_what_the_helper_masked_is_no_value() -> None:
    where = node({"api-key": "${KEY}"})
    assert on_node(where, runs(started(where, KEY="***")), []) == set()


_value = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda text: text != "***"
)


@given(_value, st.text("ab-/", max_size=3), st.text("ab-/", max_size=3))
def test_whatever_stands_around_a_reference(value: str, before: str, behind: str) -> None:
    where = node({"served-model-name": f"{before}${{X}}{behind}"})
    assert on_node(where, runs(started(where, X=value)), []) == {value}


def test_the_longest_is_masked_first_and_short_ones_are_not() -> None:
    known = KnownSecrets(["attic", "attic-shelf"])
    known.learn(["v3"])
    assert known.clean("v3 on attic-shelf, attic") == "v3 on ***, ***"


def test_a_value_is_masked_as_records_and_replies_write_it() -> None:
    """A password with a backslash or a quote stands in them with one more."""
    value = "at\\tic'and\"cellar"
    known = KnownSecrets([value])
    assert known.clean(f"served_model_name={value!r}, x") == "served_model_name='***', x"
    assert known.clean(json.dumps({"name": value})) == '{"name": "***"}'


def test_a_whole_result_is_cleaned_and_its_figures_stay() -> None:
    found = healthy()
    cleaned = clean_tree(found, KnownSecrets([found.node.server.model_path]).clean)
    assert cleaned.ownership == found.ownership
    assert found.boot is not None
    assert cleaned.boot.args["model_path"] == "***"
    assert cleaned.boot.args["tp_size"] == found.boot.args["tp_size"]
    assert cleaned.sources == found.sources


def test_no_value_can_take_the_place_of_a_verdict() -> None:
    kinds = (checks.Verdict, fixes.State, status.State, boots.State, verdict.Word)
    words = [word for kind in kinds for word in get_args(kind)]
    assert len(words) > 20
    assert KnownSecrets(words).values == ()
    assert all(re.fullmatch("[a-z-]+", word) for word in redact._WORDS)


@pytest.mark.parametrize(
    ("here", "there", "verdict"),
    [
        ("/srv/attic", "/srv/attic", "pass"),
        ("/srv/attic", "/srv/cellar", "fail"),
        (None, "/srv/attic", "unknown"),
    ],
)
def test_a_search_path_by_reference_is_the_one_that_is_set_here(
    monkeypatch: pytest.MonkeyPatch, here: str | None, there: str, verdict: str
) -> None:
    """It was compared as `${TREES}`, and failed whatever the server had."""
    monkeypatch.delenv("TREES", raising=False)
    if here is not None:
        monkeypatch.setenv("TREES", here)
    facts = pictures.healthy()
    facts["procs"]["processes"][0]["env"] = {"PYTHONPATH": there}
    found = replace(pictures.picture(facts), node=node({}, {"PYTHONPATH": "${TREES}"}))
    check = source.file(found)
    assert check.verdict == verdict
    assert ("export TREES" in check.remedy) is (verdict == "unknown")


def test_host_and_ranks_by_reference_are_those_that_are_set_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server was asked at the host `${PLACE}`, and one rank was expected of eight."""
    where = node({"host": "${PLACE}", "tp-size": "${RANKS}"})
    monkeypatch.setenv("PLACE", "::")
    monkeypatch.setenv("RANKS", "8")
    assert endpoint(where.server)["host"] == "::1"
    assert (expected_ranks(where.server), capturing_ranks(where.server)) == (8, 8)
    monkeypatch.delenv("PLACE")
    with pytest.raises(InventoryError, match=r"wants \$\{PLACE\}, which is not set") as caught:
        endpoint(where.server)
    assert "export PLACE=" in caught.value.hint


def test_the_gpus_by_reference_are_those_that_are_set_here(monkeypatch: pytest.MonkeyPatch) -> None:
    where = node({}, {"CUDA_VISIBLE_DEVICES": "${GPUS}"})
    monkeypatch.setenv("GPUS", "2,3")
    assert our_gpus(where) == {2, 3}
    monkeypatch.delenv("GPUS")
    assert our_gpus(where) is None
