"""SGLang 0.5.14 to 0.5.23 capture the embedding themselves: no edit, other ids, and every proof holds there.

Which versions those are, and which ids they need, is found with the wiring engine in the released source.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from remote import checks, plan, wiring
from remote.checks import Check
from remote.errors import ExitCode, RefusedError
from remote.fixes import config_values, evaluate
from remote.picture import Picture
from remote.proofs import prove
from tests import pictures
from tests.fixkit import BUNDLES, FULL, THREE
from tests.fixkit import VERSIONS as EDITED
from tests.wheels import record_sha256
from tests.wiring.support import CONTRACT, K25, V3, compute, pristine

IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"
# Every release up to 0.5.23 that the edits do not cover.
NATIVE = (
    *("0.5.14", "0.5.15", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18", "0.5.19"),
    *("0.5.20", "0.5.21", "0.5.22", "0.5.23"),
)
UNCOVERED = ("0.5.13", "0.5.13.post1")


@cache
def found_ids(version: str, architecture: str) -> list[int] | None:
    return wiring.native_ids(pristine(version, architecture), version, architecture, 61, CONTRACT)


# -- what the bundle says, against what the engine finds ---------------------------------------------


@pytest.mark.parametrize("version", NATIVE)
@pytest.mark.parametrize("architecture", [V3, K25])
def test_the_bundles_ids_are_those_that_the_released_source_needs(version: str, architecture: str) -> None:
    assert FULL.is_native(version)
    assert found_ids(version, architecture) == config_values(FULL, version)[IDS]


@pytest.mark.parametrize("version", UNCOVERED)
def test_a_version_that_neither_captures_nor_takes_the_edits_is_uncovered(version: str) -> None:
    assert found_ids(version, V3) is None
    assert found_ids(version, K25) is None
    for bundle in BUNDLES.values():
        state = evaluate(bundle, version, {}, {})
        assert state.state == "uncovered"
        assert version in (state.problem or "")
    assert config_values(FULL, version) == {}


@pytest.mark.parametrize("version", ["0.5.5", "0.5.9", "0.5.10.post1", "0.5.11", "0.5.12.post1"])
def test_a_version_that_takes_the_edits_does_not_capture_by_itself(version: str) -> None:
    assert found_ids(version, V3) is None
    assert not FULL.is_native(version)


def test_no_version_is_both_and_the_ids_differ() -> None:
    assert not [version for version in EDITED if FULL.is_native(version)]
    assert not [version for version in NATIVE if THREE.is_covered(version)]
    assert config_values(FULL, "0.5.12.post1") == {IDS: [-1, 2, 30]}
    assert config_values(FULL, "0.5.14") == config_values(FULL, "0.5.23") == {IDS: [0, 3, 31]}
    assert not FULL.is_covered("0.5.24")


@pytest.mark.parametrize("version", ["0.5.14", "0.5.17", "0.5.23"])
def test_the_edited_versions_ids_are_wrong_there(version: str) -> None:
    """0.5.14 and newer never capture -1, and say so only as a crash in the draft's fc or in the packer."""
    found = compute(pristine(version), version, [-1, 2, 30])
    assert wiring.compare(found.eager, CONTRACT) == wiring.compare(found.graph, CONTRACT) == "crash"


# -- a node with such a version ----------------------------------------------------------------------


@cache
def files_of(version: str) -> dict[str, bytes | None]:
    return pictures.released(version)


def facts(version: str, ids: list[int]) -> dict[str, Any]:
    """A node with the released files, and a log without the fix's marker: nothing there logs it."""
    known = pictures.healthy()
    known["package"]["imported"]["version"] = version
    known["configs"][pictures.DRAFT]["text"] = pictures.config(ids)
    known["log"]["matches"] = [each for each in known["log"]["matches"] if "capture" not in each["text"]]
    return known


def node(version: str, ids: list[int], **sources: bytes) -> Picture:
    return pictures.picture(facts(version, ids), {**files_of(version), **sources})


def by_id(picture: Picture) -> dict[str, Check]:
    return {check.id: check for check in prove(picture)}


@pytest.mark.parametrize("version", ["0.5.14", "0.5.19", "0.5.23"])
def test_every_proof_passes_with_the_right_ids(version: str) -> None:
    found = by_id(node(version, [0, 3, 31]))
    assert {id: check.verdict for id, check in found.items() if check.verdict != "pass"} == {
        "log.capture": "skip",
        "wiring.overlap": "skip",
    }
    assert checks.exit_code(found.values()) == ExitCode.OK
    assert f"SGLang {version}" in found["log.capture"].observed
    assert found["source.state"].observed == "native"
    assert any("needs no edit" in each.text for each in found["source.state"].evidence)


@pytest.mark.parametrize("version", ["0.5.14", "0.5.23"])
def test_with_the_edited_versions_ids_the_configuration_and_the_wiring_fail(version: str) -> None:
    found = by_id(node(version, [-1, 2, 30]))
    failed = {id for id, check in found.items() if check.verdict == "fail"}
    assert failed == {"config.values", "wiring.eager", "wiring.graph"}
    assert found["source.behaviour"].verdict == "pass"  # the source alone can do it


@pytest.mark.parametrize("version", ["0.5.14", "0.5.23"])
def test_only_the_configuration_is_edited(version: str) -> None:
    picture = node(version, [2, 30, 58])
    planned = plan.build(picture, prove(picture))
    assert planned.code == ()
    (write,) = planned.config
    assert json.loads(write.content)["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 3, 31]
    assert {action.id for action in planned.actions if action.would_change} >= {"push-config", "start"}
    in_place = node(version, [0, 3, 31])
    assert not plan.build(in_place, prove(in_place)).changes


def test_a_changed_file_is_native_by_version_but_the_behaviour_is_computed() -> None:
    """`native` is what the version number says; the claim about effect is made from the file itself."""
    version = "0.5.23"
    content = files_of(version)[pictures.DEEPSEEK] or b""
    broken = content.replace(b"self.model.layers_to_capture = list(layer_ids)", b"pass")
    assert broken != content
    picture = node(version, [0, 3, 31], **{pictures.DEEPSEEK: broken})
    found = by_id(picture)
    assert picture.fix is not None
    assert (picture.fix.state, picture.fix.local_changes) == ("native", True)
    assert found["source.state"].observed == "native (with local changes)"
    assert found["source.behaviour"].verdict == "fail"
    assert found["wiring.graph"].verdict == "fail"


def test_without_a_record_local_changes_are_unknown() -> None:
    version = "0.5.23"
    sources = {pictures.DEEPSEEK: files_of(version)[pictures.DEEPSEEK], pictures.GRAPH: None}
    state = evaluate(FULL, version, sources, {})
    assert [(file.path, file.local_changes) for file in state.files] == [(pictures.DEEPSEEK, None)]
    record = {pictures.DEEPSEEK: record_sha256(version, pictures.DEEPSEEK)}
    assert evaluate(FULL, version, sources, record).local_changes is False


def test_a_server_older_than_the_installed_files_fails_there_too() -> None:
    known = facts("0.5.23", [0, 3, 31])
    for each in known["procs"]["processes"]:
        each["start_time"] = pictures.STARTED_S - 3600
    found = by_id(pictures.picture(known, files_of("0.5.23")))
    assert {id for id, check in found.items() if check.verdict == "fail"} == {"process.after_fix"}


@pytest.mark.parametrize("version", UNCOVERED)
def test_on_an_uncovered_version_nothing_is_planned(version: str) -> None:
    picture = node(version, [0, 3, 31])
    with pytest.raises(RefusedError) as refused:
        plan.build(picture, prove(picture))
    assert refused.value.exit_code == ExitCode.REFUSED
    assert version in refused.value.message
    found = by_id(picture)
    assert found["source.state"].verdict == "fail"
    assert "pass" not in {found[id].verdict for id in ("wiring.eager", "wiring.graph", "source.behaviour")}
