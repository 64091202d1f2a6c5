"""Every message leads to an entry that is there, and every command of the page is one."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys

import pytest
from rich.console import Console

from remote import runbook
from remote.checks import Check, Verdict
from remote.errors import ConnectError, FixopsError, LockedError, RefusedError, UnhealthyError, UsageError
from remote.proofs import PROOFS
from remote.render.checks import print_checks
from remote.render.console import print_error
from remote.sglang.failure_rules import RULES
from tests.end_to_end.kit import PROJECT
from tests.runbook.page import PAGE, Block, scripts

ENTRIES = {entry.symptom: entry for entry in runbook.entries(runbook.page())}
WANTED = (
    *("accept-length-low", "applied-no-effect", "health-never-ready", "up-but-hanging", "port-taken"),
    *("out-of-memory-at-start", "gpu-memory-not-freed", "patch-does-not-fit", "is-what-runs-what-we-meant"),
    *("cannot-connect", "locked"),
)
# The codes that the interface promises, beside those of the rules.
FAILURE_CODES = (
    *("gpu-oom", "kv-pool-too-small", "port-in-use", "internal-port-conflict", "nccl", "model-import"),
    *("eagle3-hook-missing", "draft-is-target", "draft-arch", "draft-vocab", "draft-shape", "draft-layers"),
    *("draft-context", "bad-argument", "weights-missing", "shm-full", "rank-died", "watchdog", "warmup"),
    "unknown",
)


def literal_codes() -> set[str]:
    """The codes that remote/sglang gives to failures outside its rules."""
    found = set()
    for node in ast.walk(ast.parse((PROJECT / "remote/sglang/incidents.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"_failure", "_fatal", "Failure"}:
            found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    assert "rank-died" in found
    return {str(code) for code in found}


def literal_reasons() -> set[str]:
    """Every `reason` in the data of an error outside the connection, whose errors have one entry."""
    found = set()
    for path in (PROJECT / "remote").glob("*.py"):
        if path.name.startswith(("ssh", "trust", "hostkeys", "proxycommand")):
            continue
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'"reason": "([a-z-]+)"|\breason = "([a-z-]+)"', text))
        found |= {("", other) for other in re.findall(r'\breason = .* else "([a-z-]+)"', text)}
    return {one or other for one, other in found}


def tasks() -> set[str]:
    listed = subprocess.run(
        [sys.executable, "-m", "invoke", "--list", "--list-format=json"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(listed.stdout)
    inner = {f"practice.{task['name']}" for each in document["collections"] for task in each["tasks"]}
    return {task["name"] for task in document["tasks"]} | inner


def test_the_page_has_the_entries_that_are_wanted() -> None:
    assert set(WANTED) <= set(ENTRIES)


def test_each_entry_has_all_of_its_parts() -> None:
    for symptom, entry in ENTRIES.items():
        assert entry.commands, symptom
        for part in ("**You see**", "**Read it.**", "**Next.**|**Next**,", "**Escalate**"):
            assert any(each in entry.text for each in part.split("|")), f"{symptom} has no {part}"
        assert entry.text.index("```console") < entry.text.index("**Read it.**"), symptom


def test_every_check_leads_to_an_entry() -> None:
    assert set(runbook.CHECKS) == set(PROOFS)
    assert set(runbook.CHECKS.values()) <= set(ENTRIES)
    assert {symptom for _, symptom in runbook.OBSERVED if symptom} <= set(ENTRIES)


def test_every_failure_in_a_log_leads_to_an_entry() -> None:
    codes = {rule.code for rule in RULES} | set(FAILURE_CODES) | literal_codes()
    assert set(runbook.FAILURES) == codes
    assert set(runbook.FAILURES.values()) <= set(ENTRIES)


def test_the_entry_about_failures_explains_each_code() -> None:
    table = re.findall(r"^\| ([a-z0-9, -]+) \|", ENTRIES["health-never-ready"].text, flags=re.MULTILINE)
    explained = {code for row in table for code in row.split(", ")}
    assert explained >= set(runbook.FAILURES) - {"unknown"}


def test_every_reason_of_an_error_leads_to_an_entry() -> None:
    assert set(runbook.REASONS) == literal_reasons()
    assert set(runbook.REASONS.values()) | set(runbook.ERRORS.values()) <= set(ENTRIES)
    assert runbook.INEFFECTIVE in ENTRIES


def test_a_servers_state_leads_to_an_entry() -> None:
    for state, stale, symptom in (
        ("up", False, None),
        ("starting", False, None),
        ("sick", False, "up-but-hanging"),
        ("down", False, "health-never-ready"),
        ("up", True, "gpu-memory-not-freed"),
    ):
        assert runbook.of_state(state, stale=stale) == symptom
        assert symptom is None or symptom in ENTRIES


@pytest.mark.parametrize(
    ("error", "symptom"),
    [
        (ConnectError("x"), "cannot-connect"),
        (ConnectError("x", data={"reason": "refused"}), "cannot-connect"),
        (LockedError("x"), "locked"),
        (RefusedError("x"), "refused"),
        (RefusedError("x", data={"reason": "port-foreign"}), "port-taken"),
        (UnhealthyError("x", data={"failure": None}), "health-never-ready"),
        (UnhealthyError("x", data={"failure": "gpu-oom"}), "out-of-memory-at-start"),
        (UnhealthyError("x", data={"reason": "no-generation"}), "up-but-hanging"),
        (UsageError("x"), None),
        (FixopsError("x"), None),
    ],
)
def test_an_error_names_its_entry(
    error: FixopsError, symptom: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runbook.of_error(error) == symptom
    print_error(error)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("runbook: ")]
    assert said == ([f"runbook: inv runbook {symptom}"] if symptom else [])


@pytest.mark.parametrize(
    ("id", "observed", "symptom"),
    [
        ("wiring.graph", "[in:2, in:30, in:58]", "applied-no-effect"),
        ("process.ranks", "1 of 2 schedulers alive", "up-but-hanging"),
        ("process.ranks", "no server of ours runs", "health-never-ready"),
        ("process.owner", "nobody listens on port 8000", "health-never-ready"),
        ("process.owner", "root's pid 1 (nginx) listens there", "port-taken"),
        ("health.generate", "refused", "health-never-ready"),
        ("health.generate", "timeout", "up-but-hanging"),
        ("log.errors", "gpu-oom: torch.OutOfMemoryError: CUDA out of memory", "out-of-memory-at-start"),
        ("log.boot", "port-in-use: [Errno 98]", "port-taken"),
        ("source.state", "partial", "is-what-runs-what-we-meant"),
        ("source.state", "foreign (with local changes)", "patch-does-not-fit"),
        ("source.state", "a-fix covers SGLang >=0.5.5,<0.5.13, not 0.5.13", "patch-does-not-fit"),
    ],
)
@pytest.mark.parametrize("verdict", ["fail", "unknown"])
def test_a_check_that_did_not_pass_names_its_entry(
    id: str, observed: str, symptom: str, verdict: Verdict
) -> None:
    assert runbook.of_check(id, observed) == symptom
    assert f"inv runbook {symptom}" in printed(Check(id, verdict, "better", observed, remedy="inv x"))


@pytest.mark.parametrize("verdict", ["pass", "skip"])
def test_a_check_that_passed_names_none(verdict: Verdict) -> None:
    assert "runbook" not in printed(Check("wiring.graph", verdict, "it", "it"))


def printed(check: Check) -> str:
    out = Console(width=100, file=io.StringIO())
    print_checks(out, "n", [check])
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_every_command_of_the_page_is_a_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\$ |`|: |next +)inv ([a-z][a-z.-]*)", text, flags=re.MULTILINE))
    assert len(named) > 12
    assert named - tasks() == set()


def test_every_entry_the_page_sends_to_is_there() -> None:
    text = runbook.page()
    sent = set(re.findall(r"inv runbook ([a-z][a-z.-]*)", text))
    known = {name for table in runbook.TABLES for name in table} | set(ENTRIES)
    assert sent - known == set()


def test_only_what_reads_or_is_shown_with_yes_changes_a_practice_node_in_the_test() -> None:
    """A command that asks would hang nobody here, but it would show a refusal instead of what it does."""
    asking = {"deploy-fix", "restart", "start", "stop", "rollback", "kill-stale", "free-gpus", "push-fix"}
    for script in scripts(PAGE.read_text(encoding="utf-8")):
        for item in script.items:
            if isinstance(item, Block) and item.command.split()[0] in asking:
                assert {"--yes", "--dry-run"} & set(item.command.split()), item.command
