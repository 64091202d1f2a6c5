"""A whole run against a scripted server: warm-up, measurement, what went on meanwhile, verdict, keeping."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from remote.bench import around, baselines, drive, run, warmup
from remote.bench.assemble import Options
from remote.bench.command import Asked, interrupted, options_of
from remote.bench.plan import Plan, plan
from remote.bench.prompts import warm_up
from remote.bench.result import Bench
from remote.checks import Check, failed
from remote.errors import ExitCode, InterruptedByUser, UnhealthyError, UsageError
from remote.ownership import Group, Ownership, Process
from remote.picture import Picture
from remote.proofs import prove
from remote.redact import KnownSecrets
from remote.reporting import Silent
from remote.session import Session
from tests import pictures
from tests.bench.kit import Exchange, Scripted, node, reply, serving, session
from tests.bench.runs import INFO
from tests.node.kit import ticks

TOKENS = 40
VERIFICATIONS = (11, 12, 13)  # accept lengths of 3.64, 3.33 and 3.08


@pytest.fixture(autouse=True)
def xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "fixops"


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"prompt {n}\n" for n in range(9)))
    return str(path)


@dataclass
class Place:
    """A node of which this process is the server."""

    session: Session
    server: Scripted
    log: Path
    picture: Picture
    checks: list[Check]

    def measure(self, options: Options, reporter: Any = None) -> Bench:
        return run.measure(self.session, self.picture, self.checks, reporter or Silent(), options)

    def ops(self) -> list[str]:
        return [op for op, _ in self.session.helper.asked]  # type: ignore[attr-defined]


def answer(exchange: Exchange, log: Path, tokens: int = TOKENS) -> None:
    """A request of `tokens`, with the lines that a server logs for it."""
    verify_ct = VERIFICATIONS[exchange.number % 3]
    client = exchange.connection.getpeername()[1]
    line = f'[2026-11-29 10:00:09] INFO:     127.0.0.1:{client} - "POST /generate HTTP/1.1" 200 OK\n'
    decode = "Decode batch, #running-req: 2, #token: 61, token usage: 0.01, accept len: 3.40, "
    decode += "accept rate: 0.57, cuda graph: True, gen throughput (token/s): 200.00, #queue-req: 0"
    with log.open("a") as file:
        file.write(f"{line}[2026-11-29 10:00:09 TP0] {decode}\n")
    exchange.stream(
        reply(tokens, verify_ct), first_s=0.002, rest_s=0.001 * verify_ct + 0.0001 * exchange.number
    )


@contextmanager
def place(
    tmp_path: Path, script: Callable[[Exchange], None] | None = None, **expect: float
) -> Iterator[Place]:
    log = tmp_path / "server.log"
    log.write_text("[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/models/kimi')\n")
    with serving(script or (lambda exchange: answer(exchange, log)), **INFO) as server:
        here = session(node(server.port, log, expect=expect), tmp_path / "state")
        facts = pictures.healthy()
        facts["procs"]["processes"][0]["pid"] = os.getpid()
        picture = pictures.picture(facts)
        us = Process(os.getpid(), ticks(os.getpid()), "server", "launcher", "ops", 0, 1, 1, "S", 1.0)
        owned = Ownership(Group(us, (us,), server.port), (), (), (), us, True)
        yield Place(here, server, log, replace(picture, ownership=owned), prove(pictures.picture()))


def test_a_log_of_another_server_tells_nothing_of_the_run(tmp_path: Path, prompts: str) -> None:
    """The measured one writes elsewhere: what stands in the inventory's log is another one's."""
    with place(tmp_path) as here:
        here.picture.facts["procs"]["processes"][0]["log_fds"] = ["/tmp/nohup.out"]
        found = here.measure(Options(asked(prompts)))
    assert found.logged is None
    why = "the log is not used: the server writes to /tmp/nohup.out, not to /logs/server.log"
    said = {guard.id: (guard.state, guard.detail) for guard in found.guards}
    assert [said[id] for id in ("other-load", "queueing", "cuda-graph")] == [("unknown", why)] * 3
    # Whether it is one boot is told by its processes.
    assert said["same-boot"][0] == "ok"


def asked(prompts: str, **more: Any) -> Plan:
    return plan(**{"prompts": prompts, "concurrency": 2, "max_tokens": TOKENS, **more})


def test_a_run_from_warm_up_to_the_journal(tmp_path: Path, prompts: str, xdg: Path) -> None:
    with place(tmp_path, accept_len=3.4) as here:
        found = here.measure(Options(asked(prompts), save_as="good"))
        assert (found.verdict.word, found.exit_code) == ("effective", ExitCode.OK), found.verdict.reasons
        assert [run.completion_tokens for run in found.requests] == [TOKENS] * 9
        assert {run.verify_ct for run in found.requests} == set(VERIFICATIONS)
        assert found.summary is not None
        assert found.summary.accept_len.median == pytest.approx(TOKENS / 12)
        assert found.summary.accept_rate.median == pytest.approx((TOKENS / 12 - 1) / 5)
        # Nine measured requests, and the warm-up's runs of two before them.
        measured = [body["text"] for body in here.server.seen if body["text"].startswith("prompt ")]
        assert sorted(measured) == [f"prompt {n}" for n in range(9)]
        assert found.warm_up is not None
        assert len(here.server.seen) == 9 + 2 * len(found.warm_up.rates)
        states = {guard.id: guard.state for guard in found.guards}
        assert states["same-boot"] == states["right-server"] == states["other-load"] == "ok"
        assert found.logged is not None
        assert found.logged["accept_len"] == 3.4
        # Kept here under its name and its id, and on the node in the journal.
        assert found.kept == str(xdg / "baselines" / "good.json")
        assert json.loads(Path(found.kept).read_text())["runs"] == found.to_json()["runs"]
        entries = here.session.request("journal_read", {"limit": 9})["entries"]
        assert [entry["phase"] for entry in entries] == ["begin", "end"]
        assert entries[1]["bench"]["verdict"] == "effective"
        assert entries[1]["bench"]["accept_len"]["median"] == pytest.approx(3.33, abs=0.01)
        assert not (tmp_path / "state" / "lock").exists()


def test_the_next_run_is_paired_with_it(tmp_path: Path, prompts: str) -> None:
    with place(tmp_path) as here:
        here.measure(Options(asked(prompts), save_as="good"))
        found = here.measure(Options(asked(prompts), baseline=baselines.find("good")))
    assert found.comparison is not None
    assert found.comparison.accept_len.pairs == 9
    assert found.comparison.same_outputs == (9, 9)
    assert found.to_json()["baseline"]["name"] == "good"
    assert found.to_json()["baseline"]["accept_len"]["median"] == pytest.approx(3.33, abs=0.01)


def test_an_engineer_who_stops_it_keeps_what_was_measured(tmp_path: Path, prompts: str, xdg: Path) -> None:
    """Ctrl-C comes as KeyboardInterrupt in whatever this thread does: here, showing the progress."""

    class Stopping(Silent):
        def progress(self, text: str) -> None:
            if " of 9 requests" in text:
                raise KeyboardInterrupt

    def script(exchange: Exchange) -> None:
        if exchange.body["text"] == "prompt 5":
            exchange.connection.recv(1)  # never answered
        else:
            answer(exchange, tmp_path / "server.log")

    with place(tmp_path, script, accept_len=3.4) as here:
        found = here.measure(Options(asked(prompts), save_as="half"), Stopping())
    assert found.interrupted
    assert 1 <= len(found.requests) < 9
    assert found.verdict.word == "inconclusive"
    assert "complete: interrupted" in found.verdict.reasons[0]
    assert found.saved_as is None
    assert not (xdg / "baselines").exists()
    error = interrupted(found)
    assert error.exit_code == ExitCode.INTERRUPTED
    assert error.data["runs"] == found.to_json()["runs"]


def test_a_stop_within_the_warm_up_is_told(
    tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> tuple[dict[str, Any], bool]:
        return {"requests": []}, True

    monkeypatch.setattr(drive, "_ask", stopped)
    with place(tmp_path) as here, pytest.raises(InterruptedByUser, match="nothing was measured"):
        here.measure(Options(asked(prompts)))


def test_a_server_that_fails_every_request_is_no_measurement(tmp_path: Path, prompts: str) -> None:
    def script(exchange: Exchange) -> None:
        exchange.json({"error": {"message": "Unauthorized"}}, "401 Unauthorized")

    with place(tmp_path, script) as here, pytest.raises(UnhealthyError) as caught:
        here.measure(Options(asked(prompts)))
    assert "HTTP 401" in caught.value.message


def test_a_server_that_verify_found_silent_is_not_asked(tmp_path: Path, prompts: str) -> None:
    with place(tmp_path) as here:
        here.checks.append(failed("health.generate", "tokens", "timeout", remedy="inv restart"))
        with pytest.raises(UnhealthyError, match="nothing to measure"):
            here.measure(Options(asked(prompts)))
        assert here.server.seen == []


def test_requests_that_fail_are_in_no_figure(tmp_path: Path, prompts: str) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.body["text"] in ("prompt 2", "prompt 4"):
            exchange.json({"error": {"message": "out of memory"}}, "500 Internal Server Error")
        else:
            answer(exchange, tmp_path / "server.log")

    with place(tmp_path, script, accept_len=3.4) as here:
        found = here.measure(Options(asked(prompts)))
    assert len(found.requests) == 7
    assert [failure.prompt for failure in found.failures] == ["prompts:3", "prompts:5"]
    assert found.verdict.word == "inconclusive"
    assert found.to_json()["failures"][0]["error"].startswith("HTTP 500")


def test_others_requests_are_found_in_the_log(tmp_path: Path, prompts: str) -> None:
    def script(exchange: Exchange) -> None:
        with (tmp_path / "server.log").open("a") as file:
            file.write('[10:00:09] INFO:     10.0.0.7:999 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n')
        answer(exchange, tmp_path / "server.log")

    with place(tmp_path, script) as here:
        found = here.measure(Options(asked(prompts)))
    guard = next(guard for guard in found.guards if guard.id == "other-load")
    assert guard.state == "spoils"
    assert "9 requests of others" in guard.detail


def test_another_boot_in_between_is_seen(tmp_path: Path, prompts: str) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.body["text"] == "prompt 4":
            with (tmp_path / "server.log").open("a") as file:
                file.write("[10:00:09] server_args=ServerArgs(model_path='/models/kimi')\n")
        answer(exchange, tmp_path / "server.log")

    with place(tmp_path, script, accept_len=3.4) as here:
        found = here.measure(Options(asked(prompts)))
    assert found.verdict.word == "inconclusive"
    assert "same-boot" in found.verdict.reasons[0]


def test_a_locked_node_is_measured_but_not_written_to(tmp_path: Path, prompts: str, xdg: Path) -> None:
    said: list[str] = []

    class Noting(Silent):
        def note(self, text: str) -> None:
            said.append(text)

    with place(tmp_path) as here:
        other = session(here.session.node, tmp_path / "state")
        other.request("lock", {"who": "alice@desk", "command": "deploy-fix", "deploy_id": "x", "wait_s": 0})
        found = here.measure(Options(asked(prompts)), Noting())
        assert here.session.request("journal_read", {"limit": 9})["entries"] == []
        other.request("unlock", {})
    assert found.kept is not None
    assert "alice@desk" in " ".join(said)
    assert list((xdg / "bench" / "here").iterdir())


@pytest.mark.parametrize(("pid", "state"), [(4711, "spoils"), (os.getpid(), "ok")], ids=["other", "own"])
def test_a_lock_of_our_own_command_is_nobody_elses(
    tmp_path: Path, prompts: str, pid: int, state: str
) -> None:
    """deploy-fix --bench looks at the node while it still holds the lock."""
    with place(tmp_path) as here:
        here.session.helper.hello["pid"] = os.getpid()
        lock = {"who": "alice@desk", "command": "deploy-fix", "pid": pid}
        facts = {**here.picture.facts, "state": {"lock": lock, "lock_alive": True}}
        here.picture = replace(here.picture, facts=facts)
        found = here.measure(Options(asked(prompts)))
    guard = next(guard for guard in found.guards if guard.id == "node-locked")
    assert guard.state == state


def test_a_server_that_does_not_let_us_in_is_not_called_unhealthy(tmp_path: Path, prompts: str) -> None:
    """`inv verify` and `inv health` say whose key is wrong; `inv bench` said 6, and to look at its health."""
    with place(tmp_path) as here:
        here.picture.facts["http"]["generate"] = {"status": 401, "body": ""}  # type: ignore[index]
        found = here.measure(Options(asked(prompts)))
        assert here.server.seen == []
    assert found.summary is None
    assert found.exit_code == ExitCode.UNDETERMINED
    assert "the server wants an API key" in found.verdict.reasons[0]


def test_the_api_key_goes_along_and_is_kept_nowhere(
    tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_KEY", "hunter2hunter2")
    with place(tmp_path) as here:
        args = {"api-key": "${BENCH_KEY}"}
        keyed = replace(here.session.node, server=here.session.node.server.model_copy(update={"args": args}))
        here.session.node, here.session.secrets = keyed, KnownSecrets(["hunter2hunter2"])
        # A server that shows its key in a place where nobody would look for one.
        here.server.info["tokenizer_path"] = "/models/hunter2hunter2"
        found = here.measure(Options(asked(prompts)))
        assert {headers["authorization"] for headers in here.server.headers} == {"Bearer hunter2hunter2"}
        journal = json.dumps(here.session.request("journal_read", {"limit": 9}))
    assert found.kept is not None
    assert "hunter2" not in Path(found.kept).read_text() + journal


def test_it_gives_up_settling_after_a_dozen_runs(
    tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "settled", lambda _: False)
    with place(tmp_path) as here:
        found = drive.warm_up(here.session, asked(prompts), Silent())
    assert len(found.rates) == warmup.MAX_RUNS


class Told(Silent):
    def __init__(self) -> None:
        self.ok: list[str] = []
        self.not_so: list[str] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def done(self, id: str, detail: str, *, changed: bool) -> None:  # noqa: ARG002
        self.ok.append(f"{id} {detail}")

    def failed(self, id: str, detail: str) -> None:
        self.not_so.append(f"{id} {detail}")


def test_a_baseline_that_is_replaced_is_told(tmp_path: Path, prompts: str) -> None:
    """It took the place of another one without a word."""
    with place(tmp_path) as here:
        for notes in ([], ["the baseline 'good' that was there is replaced"]):
            told = Told()
            here.measure(Options(asked(prompts), save_as="good"), told)
            assert [note for note in told.notes if "baseline" in note] == notes


@pytest.mark.parametrize("failing", [True, False])
def test_verify_is_not_ok_where_a_check_fails(
    failing: bool, tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place(tmp_path) as here:
        bad = failed("wiring.graph", "all", "none", remedy="inv diagnose")
        monkeypatch.setattr(run, "observe", lambda *_: here.picture)
        monkeypatch.setattr(run, "prove", lambda _: [bad] if failing else [])
        monkeypatch.setattr(run, "measure", lambda *_: None)
        told = Told()
        run.bench(here.session, pictures.BUNDLE, told, Options(asked(prompts)))
    assert (told.ok, told.not_so) == (
        ([], ["verify wiring.graph"]) if failing else (["verify no check fails"], [])
    )


def test_what_is_said_while_it_runs() -> None:
    event = {"done": 6, "of": 24, "running": 4, "tokens": 1500, "failed": 0, "elapsed_s": 10.0}
    assert drive.progress_line(event) == "6 of 24 requests, 150 output tok/s so far, about 20 s left"
    assert "2 failed" in drive.progress_line({**event, "failed": 2})
    assert drive.progress_line({**event, "done": 0, "elapsed_s": 0.0}) == "0 of 24 requests"


def test_options_are_judged_before_any_node_is_reached(prompts: str) -> None:
    assert options_of(Asked(prompts=prompts, requests=3)).plan.order == (
        "prompts:1",
        "prompts:2",
        "prompts:3",
    )
    wrongs = (Asked(baseline="nothing-like-it"), Asked(save_as="../x"), Asked(prompts="/none"))
    # A variable of the shell that is not set: without its baseline the run could be effective all the same.
    for wrong in (*wrongs, Asked(baseline=""), Asked(save_as="")):
        with pytest.raises(UsageError):
            options_of(wrong)


def test_around_a_deploy_the_second_run_is_held_against_the_first(tmp_path: Path, prompts: str) -> None:
    with place(tmp_path) as here:
        args = (here.session, here.picture, here.checks, Silent(), asked(prompts))
        first = around.before(*args)
        both = around.after(*args, first)
    assert both.before is not None
    assert both.after is not None
    assert both.after.baseline is not None
    assert both.after.baseline.name == around.BEFORE
    # The same fix was in effect in both: no gain is asked for. (The speed is the test machine's affair.)
    accept = both.after.verdict.claims[0]
    assert accept.figure == "accept_len"
    # With the few answers of a test the interval may hold a loss too; never is one claimed.
    assert accept.outcome in ("reached", "unclear"), accept.reason
    assert both.exit_code == both.after.exit_code
    assert set(both.to_json()) == {"before", "after"}


def test_a_run_before_that_measured_nothing_does_not_end_the_deploy(tmp_path: Path, prompts: str) -> None:
    """The old server died after its warm-up: as a baseline that run was an error, after the deploy."""
    answered = [True]

    def script(exchange: Exchange) -> None:
        if answered[0] or exchange.body["text"] == warm_up().text:
            answer(exchange, tmp_path / "server.log")

    with place(tmp_path, script) as here:
        args = (here.session, here.picture, here.checks, Silent(), asked(prompts))
        answered[0] = False
        first = around.before(*args)
        answered[0] = True
        both = around.after(*args, first)
    assert both.before is not None
    assert both.before.requests == ()
    assert both.after is not None
    assert both.after.baseline is None


def test_a_deploy_that_failed_its_checks_is_not_measured(tmp_path: Path, prompts: str) -> None:
    with place(tmp_path) as here:
        checks = [*here.checks, failed("wiring.graph", "all", "none", remedy="inv diagnose")]
        found = around.after(here.session, here.picture, checks, Silent(), asked(prompts), None)
        assert here.server.seen == []
    assert found.after is None


def test_a_silent_old_server_is_no_reason_not_to_deploy(tmp_path: Path, prompts: str) -> None:
    with place(tmp_path) as here:
        checks = [*here.checks, failed("health.generate", "tokens", "timeout", remedy="inv restart")]
        found = around.before(here.session, here.picture, checks, Silent(), asked(prompts))
    assert found.before is None
