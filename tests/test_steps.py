"""The steps by themselves: each plans its own part, and is refused by nothing but what is in its own way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from remote import steps
from remote.errors import ExitCode, RefusedError, UnhealthyError, UsageError
from remote.picture import Picture
from remote.redact import KnownSecrets
from remote.steps import Stepped
from tests import pictures
from tests.changes import no_server, unreadable
from tests.fact_faults import orphan, pyc, started_before_the_fix, stranger_on_gpu, stranger_on_port
from tests.pictures import DEEPSEEK, ROOT, healthy, pristine


def foreign_edit() -> dict[str, bytes | None]:
    """Somebody's own edit, which the bundle does not fit."""
    text = pristine()[DEEPSEEK] or b""
    return {**pristine(), DEEPSEEK: text.replace(b"self.layers_to_capture = []", b"x = list()")}


def node(*changes: Any, sources: dict[str, bytes | None] | None = None) -> Picture:
    facts = healthy()
    for change in changes:
        change(facts)
    return pictures.picture(facts, sources)


@dataclass
class Scripted:
    """A session with a node that ends what it is told to end, and has its memory back at once."""

    picture: Picture
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    who: str = "tester@here"
    alive: bool = True
    hello: dict[str, Any] = field(default_factory=lambda: {"uid": pictures.UID})
    freed: bool = True
    journal: list[dict[str, Any]] = field(default_factory=list)
    secrets: KnownSecrets = field(default_factory=KnownSecrets)

    @property
    def node(self) -> Any:
        return self.picture.node

    @property
    def helper(self) -> Scripted:
        return self

    def request(self, op: str, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.asked[op] = params
        ended = [{**each, "ended_by": "TERM", "left": None} for each in params.get("processes", [])]
        replies = {
            "lock": {"took_over": None, "waited_for": None, "journal_tail": []},
            "observe": {"procs": self.picture.facts["procs"]},
            "terminate": {"processes": ended},
            "gpu_wait": {"freed": self.freed, "waited_s": 0.1, "gpus": [], **NOBODY_HOLDS_IT},
            "unlock": {},
        }
        return replies[op]

    def submit(self, op: str, params: dict[str, Any]) -> None:
        assert op == "journal_append"
        self.journal += params["entries"]

    def begin(self, *_: str) -> None: ...
    def progress(self, _: str) -> None: ...
    def done(self, *_: str, changed: bool) -> None: ...
    def failed(self, *_: str) -> None: ...
    def note(self, _: str) -> None: ...


NOBODY_HOLDS_IT: dict[str, Any] = {"holders": [], "device_file_holders": []}
VERBS = {
    "stop": steps.stop,
    "start": steps.start_only,
    "free-gpus": steps.free,
    "restart": steps.restart,
}


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `inv NAME` on a session."""

    def run(name: str, session: Scripted, *, dry_run: bool = False) -> Stepped:
        monkeypatch.setattr(steps, "observe_settled", lambda *_, **__: session.picture)
        verb = VERBS.get(name)
        ways: dict[str, Any] = {"confirm": lambda _: True, "dry_run": dry_run, "wait_s": 0.0}
        if verb is None:
            return steps.run_step(session, pictures.BUNDLE, session, name, **ways)  # type: ignore[arg-type]
        return verb(session, pictures.BUNDLE, session, **ways)  # type: ignore[arg-type]

    return run


def actions(found: Stepped) -> dict[str, dict[str, Any]]:
    return {action["id"]: action for action in found.actions}


@pytest.mark.parametrize("sources", [None, pristine(), foreign_edit()], ids=["fixed", "pristine", "foreign"])
@pytest.mark.parametrize("more", [[], [started_before_the_fix], [stranger_on_gpu], [pyc()]])
def test_kill_stale_ends_what_is_stale_and_leaves_the_server(
    step: Any, sources: Any, more: list[Any]
) -> None:
    session = Scripted(node(orphan, *more, sources=sources))
    (action,) = step("kill-stale", session).actions
    assert [each["pid"] for each in action["processes"]] == [900]
    assert [each["pid"] for each in session.asked["terminate"]["processes"]] == [900]
    quiet = Scripted(node(*more, sources=sources))
    assert actions(step("kill-stale", quiet))["kill-stale"]["processes"] == []
    assert quiet.asked == {}


@pytest.mark.parametrize("name", ["kill-stale", "purge-pycache"])
def test_arguments_and_edits_are_in_the_way_of_what_touches_them_alone(step: Any, name: str) -> None:
    found = pictures.with_args(node(sources=foreign_edit()), **{"speculative-num-steps": "1"})
    assert not any(action["changed"] for action in step(name, Scripted(found)).actions)
    with pytest.raises(UsageError, match="would become 2"):
        step("push-fix", Scripted(found))
    with pytest.raises(RefusedError, match="does not fit"):
        step("push-fix", Scripted(node(sources=foreign_edit())))


def test_purge_removes_stale_bytecode_alone(step: Any) -> None:
    (action,) = step("purge-pycache", Scripted(node(pyc(), sources=foreign_edit())), dry_run=True).actions
    assert action["would_change"]
    fresh = node(pyc(stale=False), sources=pristine())
    (action,) = step("purge-pycache", Scripted(fresh), dry_run=True).actions
    assert not action["would_change"], "what a push would change is not stale yet"


@pytest.mark.parametrize("name", ["kill-stale", "stop"])
def test_processes_that_cannot_be_read_are_not_none(step: Any, name: str) -> None:
    with pytest.raises(RefusedError, match="could not be read"):
        step(name, Scripted(node(unreadable("procs"))))


@pytest.mark.parametrize(
    ("name", "id", "pids"),
    [
        ("kill-stale", "kill-stale", {900}),
        ("stop", "stop", {100, 101, 102, 900}),
        ("restart", "kill-stale", {100, 101, 102, 900}),
    ],
)
def test_a_dry_run_tells_what_it_would_end(step: Any, name: str, id: str, pids: set[int]) -> None:
    found = actions(step(name, Scripted(node(orphan)), dry_run=True))[id]
    assert {each["pid"] for each in found["processes"]} == pids
    assert all(each["title"] and each["ended_by"] == "none" for each in found["processes"])
    assert actions(step("stop", Scripted(node(no_server)), dry_run=True))["stop"]["processes"] == []


def memory_in_use(facts: dict[str, Any]) -> None:
    facts["gpus"]["gpus"][0]["memory_used_mib"] = 4000


def test_memory_that_somebody_else_holds_is_not_waited_for(step: Any) -> None:
    session = Scripted(node(no_server, stranger_on_gpu, memory_in_use))
    with pytest.raises(RefusedError) as caught:
        step("free-gpus", session)
    assert caught.value.exit_code == ExitCode.REFUSED
    for word in ("pid 901", "python3 train.py", "other", "GPU 0"):
        assert word in caught.value.message
    assert "owner" in caught.value.hint
    assert session.asked == {}


@pytest.mark.parametrize("others", [[], [stranger_on_port]])
def test_memory_that_nobody_else_is_seen_to_hold_is_waited_for(step: Any, others: list[Any]) -> None:
    session = Scripted(node(no_server, memory_in_use, *others))
    assert actions(step("free-gpus", session))["free-gpus"]["changed"]


@pytest.mark.parametrize("freed", [True, False])
def test_the_journal_does_not_say_ok_of_memory_that_did_not_come_back(step: Any, freed: bool) -> None:
    """The node answered, and that was `ok`."""
    session = Scripted(node(no_server, memory_in_use), freed=freed)
    if freed:
        step("free-gpus", session)
        assert session.journal == []
        return
    with pytest.raises(UnhealthyError, match="still in use"):
        step("free-gpus", session)
    (entry,) = session.journal
    assert (entry["action"], entry["outcome"], entry["corrects"]) == ("free-gpus", "error", True)
    assert "still in use" in entry["message"]


@pytest.mark.parametrize("name", ["free-gpus", "start"])
def test_what_an_earlier_server_left_is_to_be_ended_first(step: Any, name: str) -> None:
    """A start beside it dies for want of memory, and its memory comes back to no wait."""
    session = Scripted(node(no_server, orphan, memory_in_use))
    with pytest.raises(RefusedError, match=r"stale processes are in the way, pid .*900") as caught:
        step(name, session)
    assert "inv kill-stale --node blackwell" in caught.value.hint
    assert session.asked == {}


def test_stop_ends_our_server_beside_somebody_elses_process(step: Any) -> None:
    """And waits for the GPU that is ours alone."""
    session = Scripted(node(stranger_on_gpu))
    found = actions(step("stop", session))
    assert found["stop"]["changed"]
    assert {each["pid"] for each in found["stop"]["processes"]} == {100, 101, 102}
    assert session.asked["gpu_wait"]["indices"] == [1]
    told = "not ours to end: pid 901 python3 train.py of other holds 4000 MiB of GPU 0"
    assert told in found["free-gpus"]["detail"]


def on_every_gpu(facts: dict[str, Any]) -> None:
    stranger_on_gpu(facts)
    facts["gpus"]["holders"].append({"gpu_index": 1, "pid": 901, "name": "python3", "used_mib": 4000})


def on_some_gpu(facts: dict[str, Any]) -> None:
    stranger_on_gpu(facts)
    facts["gpus"]["holders"][-1]["gpu_index"] = None


@pytest.mark.parametrize("stranger", [on_every_gpu, on_some_gpu])
def test_stop_waits_for_nothing_where_no_gpu_is_ours_alone(step: Any, stranger: Any) -> None:
    session = Scripted(node(stranger))
    found = actions(step("stop", session))
    assert (found["stop"]["changed"], found["free-gpus"]["changed"]) == (True, False)
    assert "pid 901" in found["free-gpus"]["detail"]
    assert "gpu_wait" not in session.asked


def test_stop_plans_no_wait_where_nothing_runs(step: Any) -> None:
    found = actions(step("stop", Scripted(node(no_server))))
    assert (found["stop"]["detail"], found["free-gpus"]["detail"]) == ("nothing runs", "nothing to free")


def test_the_module_that_is_stale_is_the_one_that_is_named() -> None:
    assert steps.STEPS["purge-pycache"].plan(node(pyc())).purge == (f"{ROOT}/{DEEPSEEK}",)
