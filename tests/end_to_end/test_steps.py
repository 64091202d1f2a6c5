"""The procedure by hand, one step after another: each does its own part, and says when there is none."""

from __future__ import annotations

import pytest

from tests.end_to_end.kit import DEEPSEEK, FIXED, Practice, Ran, alive


def step(node: Practice, command: str) -> Ran:
    return node.inv(command, "--yes", "--json").is_(0)


def changed(ran: Ran) -> dict[str, bool]:
    return {id: action["changed"] for id, action in ran.actions.items()}


def test_the_whole_procedure_step_by_step(practice: Practice) -> None:
    old, orphans = practice.server_pid(), set(practice.sglang())
    before = {name: practice.source(name).read_bytes() for name in FIXED}
    assert changed(step(practice, "push-fix")) == {"push-code": True, "push-config": True}
    assert all(practice.source(name).read_bytes() != before[name] for name in FIXED)
    assert practice.server_pid() == old

    practice.inv("practice.break", "unchecked-pyc").is_(0)
    (pyc,) = (practice.source(DEEPSEEK).parent / "__pycache__").glob("deepseek_v2.*.pyc")
    assert changed(step(practice, "purge-pycache")) == {"purge-pycache": True}
    assert not pyc.exists()
    assert changed(step(practice, "purge-pycache")) == {"purge-pycache": False}

    found = practice.inv("verify", "--json").is_(7)
    assert found.verdicts["source.state"] == "pass"
    assert found.verdicts["process.after_fix"] == found.verdicts["process.single"] == "fail"
    assert found.verdicts["gpu.holders"] == "fail"

    assert step(practice, "kill-stale").actions["kill-stale"]["changed"]
    step(practice, "stop")
    assert not [pid for pid in orphans if alive(pid)]
    assert changed(step(practice, "free-gpus")).keys() == {"free-gpus"}
    assert changed(step(practice, "stop"))["stop"] is False
    practice.inv("health", "--json").refuses(6, "practice", "inv restart")

    practice.settings(speed=0.5)
    assert changed(step(practice, "start")) == {"start": True}
    assert practice.inv("health", "--json").is_(0).actions["health"]["detail"].startswith("ready")
    pid = practice.server_pid()
    practice.inv("start", "--yes", "--json").refuses(5, "practice", f"pid {pid}", "inv restart")
    assert practice.inv("verify", "--json").is_(0).verdicts["log.capture"] == "pass"


def test_somebody_elses_process_on_the_gpu_is_not_waited_for(practice: Practice) -> None:
    practice.deploy()
    practice.inv("practice.break", "gpu-foreign").is_(0)
    old = practice.server_pid()
    (holder,) = [pid for pid, title in practice.sglang().items() if "import time" in title]
    ran = step(practice, "stop")
    assert changed(ran)["stop"]
    assert f"pid {holder}" in ran.actions["free-gpus"]["detail"]
    assert (alive(old), alive(holder)) == (False, True)
    before = practice.everything()
    practice.inv("free-gpus", "--yes", "--json").refuses(5, f"pid {holder}", "not ours", "GPU 0", "owner")
    assert practice.everything() == before
    practice.inv("practice.heal").is_(0)
    practice.deploy()


@pytest.mark.parametrize("fault", ["gpu-memory-unknown"])
def test_what_cannot_be_told_is_no_pass(practice: Practice, fault: str) -> None:
    """8, for a deploy that had nothing to do as well."""
    practice.deploy()
    practice.inv("practice.break", fault).is_(0)
    for command in (["verify"], ["deploy-fix", "--yes"]):
        ran = practice.inv(*command, "--json").is_(8)
        assert ran.verdicts["gpu.holders"] == "unknown"
        assert ran.document["error"] is None
    practice.inv("practice.heal").is_(0)
    practice.inv("verify", "--json").is_(0)
