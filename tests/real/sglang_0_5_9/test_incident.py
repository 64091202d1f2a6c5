"""The incident from beginning to end on SGLang 0.5.9, and what breaks there, told apart.

In order: each test leaves the node as the next one says that it finds it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.kit import DEEPSEEK, Ran
from tests.real import probe
from tests.real.kit import TIMEOUT_S, Real, ask, generate, state_of, title_of
from tests.support import wait_until

CONTRACT = ["embed", "in:2", "in:4"]
# What a server without a GPU cannot have: graphs, and holders of GPUs. Two-batch overlap is off.
SKIPPED = {"wiring.graph", "wiring.overlap", "gpu.holders"}
# A server that is not there does not say what its arguments are.
NOT_TOLD = {"args.effective"}
# What only a server that runs can show.
NEEDS_A_SERVER = {
    "process.single",
    "process.owner",
    "process.ranks",
    "process.after_fix",
    "log.boot",
    "health.http",
    "health.generate",
}


def accept_length(document: dict[str, Any]) -> float:
    return float(document["nodes"][0]["summary"]["accept_len"]["median"])


def not_good(verdicts: dict[str, str], unknown: Set[str] = frozenset()) -> set[str]:
    """What fails; what is unknown must be what may be."""
    assert {id for id, verdict in verdicts.items() if verdict == "unknown"} == unknown
    assert {id for id, verdict in verdicts.items() if verdict == "skip"} >= SKIPPED
    return {id for id, verdict in verdicts.items() if verdict == "fail"}


def test_the_server_of_the_incident_is_sick_and_says_nothing(node: Real) -> None:
    """It generates, its log shows no failure: only the checks that look at what reaches the draft fail."""
    before = node.inv("verify", "--json").is_(7)
    assert not_good(before.verdicts) == {
        "source.state",
        "source.behaviour",
        "config.values",
        "wiring.eager",
        "log.capture",
    }
    assert before.entry["wiring"]["contract"] == CONTRACT
    assert before.entry["wiring"]["eager"] == ["in:2", "in:4", "in:5"]
    measured = node.bench("--anyway", "--save-as", "before").document
    assert measured["nodes"][0]["verdict"] == "no-baseline"
    assert accept_length(measured) < 2


def test_the_fix_is_applied_and_effective(node: Real) -> None:
    deployed = node.deploy()
    assert not not_good(deployed.verdicts)
    assert [id for id, action in deployed.actions.items() if action["changed"]] == [
        "push-code",
        "push-config",
        "purge-pycache",
        "kill-stale",
        "start",
    ]
    assert {each["ended_by"] for each in deployed.actions["kill-stale"]["processes"]} == {"TERM"}
    wiring = node.inv("verify", "--json").is_(0).entry["wiring"]
    assert wiring["eager"] == wiring["graph"] == CONTRACT
    measured = compared(node)
    assert measured.is_(0).entry["verdict"] == "effective"
    assert accept_length(measured.document) >= 3
    again = node.deploy()
    assert not [id for id, action in again.actions.items() if action["changed"]]


def test_the_reply_says_what_the_draft_is_worth(node: Real) -> None:
    """The same figure from one reply and from the server itself, and the text of a server without the fix."""
    meta = generate(node.server_port, 64)["meta_info"]
    assert meta["completion_tokens"] == 64
    assert 3 <= meta["completion_tokens"] / meta["spec_verify_ct"] <= 6
    _, info = ask(node.server_port, "GET", "/get_server_info")
    assert info["internal_states"][0]["avg_spec_accept_length"] > 3


def test_sglangs_own_client_measures_the_same_server(node: Real) -> None:
    """The second opinion: throughput by bench_serving, and no accept length claimed from it."""
    found = node.bench("--client", "sglang").entry
    assert found["load"]["client"] == "sglang"
    assert (found["summary"]["requests"], found["summary"]["failed"], found["failures"]) == (6, 0, [])
    assert found["summary"]["output_tok_s"]["median"] > 0
    assert found["summary"]["accept_len"]["median"] is None


def test_arguments_that_sglang_would_change_are_refused(node: Real, tmp_path: Path) -> None:
    changed = node.inventory(
        tmp_path / "steps.yaml",
        lambda content: server(content)["args"].update({"speculative-num-steps": 1}),
    )
    node.inv("deploy-fix", "--yes", "--json", "--inventory", changed).refuses(
        2, "speculative_num_draft_tokens", "6", "2"
    )


def test_a_stopped_scheduler_and_a_second_server_on_the_port(node: Real) -> None:
    """The first server is stopped: it holds its port and answers 503. The second, started by hand with fewer
    steps, logs that it is ready, and is not: its port was taken, and its draft tokens were changed."""
    scheduler, log = node.child("sglang::scheduler"), node.root / "logs" / "second.log"
    by_hand = node.started_by_hand(log, {"--speculative-num-steps": "1"})
    try:
        with stopped(scheduler):
            verified = node.inv("verify", "--json").is_(7)
            assert not_good(verified.verdicts) >= {"process.ranks", "health.http", "health.generate"}
            assert "state T" in verified.checks["process.ranks"]["observed"]
        # Not before: its warm-up asks its own address, and the first server answers.
        by_hand.wait(TIMEOUT_S)
    finally:
        by_hand.kill()
        by_hand.wait()
    text = log.read_bytes().decode(errors="replace")  # lines end in \n alone: a progress bar's \r is none
    assert "The server is fired up and ready to roll!" in text
    (boot,) = node.boots("--file", str(log))
    assert (boot["state"], boot["ready_at"]) == ("failed", None)
    assert boot["failure"]["code"] == "port-in-use"
    assert "address already in use" in text.split("\n")[boot["failure"]["line"] - 1]
    adjusted = {each["name"]: each["effective"] for each in boot["adjusted"]}
    assert adjusted["speculative_num_draft_tokens"] == 2
    assert boot["args_record"] == "complete"
    node.inv("verify", "--json").is_(0)


def test_the_launcher_is_killed(node: Real) -> None:
    """0.5.9 ties its children to it (PR_SET_PDEATHSIG): nothing is left, and the log says nothing."""
    assert probe.launcher_killed(server_of(node)) == probe.LAUNCHER_KILLED
    assert not_good(node.inv("verify", "--json").is_(7).verdicts, NOT_TOLD) == NEEDS_A_SERVER
    node.inv("health", "--json").refuses(6, "no server of ours runs")
    assert node.boots()[-1]["state"] == "ready"
    node.restart().is_(0)


def test_the_scheduler_is_killed(node: Real) -> None:
    """The launcher of 0.5.9 does not notice: its child stays a zombie, and nothing is answered any more."""
    assert probe.scheduler_killed(server_of(node)) == probe.SCHEDULER_KILLED
    verified = node.inv("verify", "--json").is_(7)
    assert not_good(verified.verdicts) >= {"process.ranks", "health.http", "health.generate"}
    assert verified.checks["process.ranks"]["observed"] == "0 of 1 schedulers alive"
    node.restart().is_(0)


def test_sigterm_while_a_request_is_in_flight(node: Real) -> None:
    """The request is finished; new ones are turned away with 503; then the server ends by itself."""
    port, launcher = node.server_port, node.server_pid()
    replies: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: replies.append(generate(port, 400)))
    asking.start()
    wait_until(lambda: running_requests(port) > 0, what="the request's start")
    os.kill(launcher, signal.SIGTERM)
    wait_until(lambda: health(port) == 503, what="503 from /health")
    asking.join(TIMEOUT_S)
    assert replies[0]["meta_info"]["completion_tokens"] == 400
    wait_until(lambda: state_of(launcher) in ("", "Z"), TIMEOUT_S, what="the server's end")
    assert not_good(node.inv("verify", "--json").is_(7).verdicts, NOT_TOLD) == NEEDS_A_SERVER
    boot = node.boots()[-1]
    assert (boot["state"], boot["stage"], boot["failure"]) == ("stopped", "stopping", None)


def test_a_patched_file_with_a_syntax_error(node: Real) -> None:
    """SGLang ignores the file at first, and ends much later for want of its model class."""
    with changed(node.source(DEEPSEEK), lambda text: text + "\n_left_open = (\n"):
        node.restart().refuses(6, "model-import", "deepseek_v2.py", "never closed")
        failed = node.inv("verify", "--json").is_(7)
        assert failed.verdicts["source.compiles"] == failed.verdicts["log.errors"] == "fail"
        assert failed.verdicts["wiring.eager"] == "unknown"
        boot = node.boots()[-1]
        assert (boot["state"], boot["stage"], boot["failure"]["code"]) == (
            "failed",
            "loading-target",
            "model-import",
        )


def test_the_configuration_without_the_code(node: Real) -> None:
    """An unfiltered -1 asks for the input of layer 0, which has no residual yet: it dies at the warm-up."""
    pristine = (node.root / "pristine" / DEEPSEEK).read_text(encoding="utf-8")
    with changed(node.source(DEEPSEEK), lambda _: pristine):
        node.restart().refuses(6, "TypeError", "warmup")
        failed = node.inv("verify", "--json").is_(7)
        assert failed.verdicts["wiring.eager"] == failed.verdicts["source.behaviour"] == "fail"
        assert "NoneType" in failed.entry["wiring"]["eager"]["error"]
        assert failed.checks["source.state"]["observed"] == "partial"
        boot = node.boots()[-1]
        assert (boot["state"], boot["stage"]) == ("failed", "warmup")
        assert "NoneType" in boot["failure"]["cause"]


def test_a_draft_that_is_not_there(node: Real, tmp_path: Path) -> None:
    elsewhere = node.inventory(
        tmp_path / "draft.yaml",
        lambda content: server(content).update(draft_model_path=str(node.root / "eagle3" / "drafft")),
    )
    node.inv("deploy-fix", "--yes", "--json", "--inventory", elsewhere).refuses(5, "drafft", "does not exist")
    node.inv("restart", "--yes", "--json", "--inventory", elsewhere).refuses(6, "weights-missing", "drafft")
    failed = node.inv("verify", "--json", "--inventory", elsewhere).is_(7)
    assert failed.verdicts["config.draft"] == failed.verdicts["log.errors"] == "fail"
    assert node.boots()[-1]["failure"]["code"] == "weights-missing"


def test_rollback_leads_back_to_where_it_began(node: Real) -> None:
    back = node.inv("rollback", "--yes", "--json").is_(0)
    assert not not_good(back.verdicts)
    assert (node.root / "pristine" / DEEPSEEK).read_bytes() == node.source(DEEPSEEK).read_bytes()
    assert json.loads(node.draft.read_text())["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]
    assert back.entry["wiring"]["eager"] == ["in:2", "in:4", "in:5"]
    measured = node.bench("--anyway", "--baseline", "before").document
    assert accept_length(measured) < 2
    assert measured["nodes"][0]["verdict"] != "effective"
    assert title_of(node.child("sglang::scheduler")).startswith("sglang::scheduler")


def compared(node: Real) -> Ran:
    """Measured against `before`; again, at most twice, where others' load leaves the speed open."""
    for _ in range(3):
        found = node.bench("--baseline", "before")
        claims = {each["figure"]: each["outcome"] for each in found.entry["claims"]}
        assert claims["accept_len"] == "reached"
        if found.entry["verdict"] != "inconclusive":
            break
    return found


def server_of(node: Real) -> probe.Server:
    return probe.Server(node.server_pid(), node.server_port, node.log)


def server(content: dict[str, Any]) -> dict[str, Any]:
    (found,) = content["servers"].values()
    assert isinstance(found, dict)
    return found


def health(port: int) -> int:
    try:
        return ask(port, "GET", "/health", timeout_s=30)[0]
    except OSError:
        return 0


def running_requests(port: int) -> int:
    """As the server counts them. (/get_load is of 0.5.9.)"""
    _, loads = ask(port, "GET", "/get_load")
    return sum(int(each["num_reqs"]) for each in loads)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def changed(path: Path, change: Any) -> Iterator[None]:
    """The file with other content for a while, as somebody writes it: with a new time."""
    before = path.read_text(encoding="utf-8")
    path.write_text(change(before), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")
