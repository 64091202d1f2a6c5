"""No set of faults makes a node look right: not together either, where one could hide the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote import checks
from remote.errors import ExitCode
from remote.proofs import prove
from tests import changes, fact_faults
from tests.changes import Sources
from tests.fact_faults import Change, Facts, pyc
from tests.pictures import DEEPSEEK, DRAFT, GRAPH, MODEL, fixed, healthy, picture, pristine

FILES = "files"


def edited(path: str, old: str, new: str) -> bytes:
    """A file of the fix in which somebody replaced one text."""
    text = (fixed()[path] or b"").decode()
    assert text.count(old) == 1, old
    return text.replace(old, new).encode()


@dataclass(frozen=True)
class Fault:
    """A change of facts, or of the node's sources."""

    name: str
    change: Change = lambda _: None
    sources: tuple[tuple[str, bytes | None], ...] = ()


def served_by_somebody_else(facts: Facts) -> None:
    facts["procs"]["listeners"] = [{"port": 8000, "pid": 950, "uid": 2000}]


def another_boot_of_the_kernel(facts: Facts) -> None:
    for each in facts["procs"]["processes"]:
        each["start_time"] -= 7200


def config_changed_after_the_start(facts: Facts) -> None:
    facts["configs"][DRAFT]["ctime_ns"] += int(3600e9)


def no_model_config(facts: Facts) -> None:
    facts["configs"][MODEL] = {"exists": False, "text": None}


def launcher_is_a_zombie(facts: Facts) -> None:
    facts["procs"]["processes"][0].update(state="Z", title="[python]", argv=[])


def a_rank_is_a_zombie(facts: Facts) -> None:
    facts["procs"]["processes"][1].update(state="Z", title="[sglang::schedul]", argv=[])


def no_gpu_tool(facts: Facts) -> None:
    facts["gpus"].update(available=False, why="nvidia-smi was not found", gpus=[], holders=[])
    facts["gpus"]["holders_known"] = False


def died_of_memory(facts: Facts) -> None:
    said = (
        "[2026-11-29 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    for number, text in enumerate(said, start=90):
        facts["log"]["matches"].append({"line": number, "text": text, "patterns": []})


def steps_lost_in_quoting(facts: Facts) -> None:
    reply = facts["http"]["server_info"]
    reply["body"] = reply["body"].replace('"speculative_num_steps": 5', '"speculative_num_steps": 3')


def no_package(facts: Facts) -> None:
    facts["package"] = {"imported": {}, "copies": []}


MORE: tuple[Change, ...] = (
    served_by_somebody_else,
    another_boot_of_the_kernel,
    config_changed_after_the_start,
    no_model_config,
    launcher_is_a_zombie,
    a_rank_is_a_zombie,
    no_gpu_tool,
    died_of_memory,
    steps_lost_in_quoting,
    no_package,
    fact_faults.no_config,
    fact_faults.config_as_text,
    fact_faults.arguments_not_told,
    pyc(kind="checked-hash"),
)
SECTIONS = ("package", "configs", "bytecode", "procs", "gpus", "log", "weights", "http")
CAPTURE = "aux_hidden_states.append(hidden_states + residual)"
SOURCES: dict[str, dict[str, bytes | None]] = {
    "nothing of the fix": pristine(),
    "the wheel's graph runner": {GRAPH: pristine()[GRAPH]},
    "the wheel's model": {DEEPSEEK: pristine()[DEEPSEEK]},
    "no model file": {DEEPSEEK: None},
    "an empty model file": {DEEPSEEK: b""},
    "captured in the wrong order": {
        DEEPSEEK: edited(DEEPSEEK, CAPTURE, "aux_hidden_states.insert(0, hidden_states + residual)")
    },
    "captured without the residual": {
        DEEPSEEK: edited(DEEPSEEK, CAPTURE, "aux_hidden_states.append(hidden_states)")
    },
}
UNREADABLE = {
    f"{name} cannot be read": Fault(f"{name} cannot be read", changes.unreadable(name)) for name in SECTIONS
}
FAULTS = (
    *(Fault(f"{change.__name__} {n}", change) for n, (change, ids) in enumerate(fact_faults.FAULTS) if ids),
    *(Fault(f"{change.__name__} of more", change) for change in MORE),
    *UNREADABLE.values(),
    *(Fault(name, sources=tuple(files.items())) for name, files in SOURCES.items()),
)


def broken(faults: Sequence[Fault]) -> tuple[Facts, Sources]:
    """The facts with these faults, one after the other; one that finds no place any more is left out."""
    facts, sources = healthy(), dict(fixed())
    # What cannot be read is that however it would have looked.
    for fault in sorted(faults, key=lambda fault: fault.name in UNREADABLE):
        tried = copy.deepcopy(facts)
        try:
            fault.change(tried)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
        facts = tried
        sources.update(fault.sources)
    return facts, sources


def verdicts(faults: Sequence[Fault]) -> dict[str, str]:
    facts, sources = broken(faults)
    return {check.id: check.verdict for check in prove(picture(facts, sources))}


@cache
def alone(fault: Fault) -> dict[str, str]:
    return verdicts([fault])


@cache
def touched(fault: Fault) -> frozenset[str]:
    """The sections of the observation that a fault changes."""
    facts, _ = broken([fault])
    whole: dict[str, Any] = healthy()
    found = {name for name in whole if facts[name] != whole[name]}
    return frozenset(found | ({FILES} if fault.sources else set()))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_alone_is_seen(fault: Fault) -> None:
    assert touched(fault)
    assert set(alone(fault).values()) & {"fail", "unknown"}


faults = st.lists(st.sampled_from(FAULTS), min_size=1, max_size=6, unique=True)


@settings(max_examples=120)
@given(faults)
def test_no_set_of_faults_is_a_success(chosen: list[Fault]) -> None:
    facts, sources = broken(chosen)
    found = prove(picture(facts, sources))
    code = checks.exit_code(found)
    assert code in (ExitCode.CHECK_FAILED, ExitCode.UNDETERMINED)
    for check in found:
        if check.verdict in ("fail", "unknown"):
            assert check.observed, check.id
            assert check.remedy, check.id


@settings(max_examples=120)
@given(st.sampled_from(FAULTS), faults)
def test_what_fails_alone_is_not_passed_because_of_another(fault: Fault, chosen: list[Fault]) -> None:
    """Where the others change nothing of what the fault is in, its checks pass no more than without them."""
    others = [each for each in chosen if not touched(each) & touched(fault)]
    found = verdicts([fault, *others])
    hidden = [id for id, verdict in alone(fault).items() if verdict == "fail" and found[id] == "pass"]
    assert not hidden, [each.name for each in others]
