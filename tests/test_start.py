"""`inv start` on a node that is a script: what is asked of it, and what is made of its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from remote import steps
from remote.errors import ExitCode, UnhealthyError
from remote.plan import Action, Plan
from remote.redact import KnownSecrets
from remote.reporting import Silent
from remote.start import start_server
from remote.steps import Stepped
from remote.work import Outdated, Work
from tests import changes, pictures

STARTED = {
    "boot_id": "b1",
    "pid": 4711,
    "starttime_ticks": 1,
    "start_time": 1.0,
    "log": "/logs/x.log",
    "alive": True,
    "kept": None,
}
NOBODY = {"processes": [], "listeners": []}
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@dataclass
class Scripted:
    """A session with a node on which no server runs."""

    procs: dict[str, Any] = field(default_factory=lambda: {"procs": NOBODY})
    started: dict[str, Any] = field(default_factory=lambda: dict(STARTED))
    log: str = ""
    asked: list[str] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)
    node: Any = pictures.NODE
    who: str = "tester@here"
    alive: bool = True
    hello: dict[str, Any] = field(default_factory=lambda: {"uid": pictures.UID})
    secrets: KnownSecrets = field(default_factory=KnownSecrets)

    @property
    def helper(self) -> Scripted:
        return self

    def request(self, op: str, _: dict[str, Any], **__: Any) -> dict[str, Any]:
        self.asked.append(op)
        replies = {
            "lock": {"took_over": None, "waited_for": None, "journal_tail": []},
            "observe": self.procs,
            "start": self.started,
            "unlock": {},
        }
        return replies[op]

    def submit(
        self, op: str, params: dict[str, Any], *, on_event: Callable[..., None] | None = None, **_: Any
    ) -> Any:
        self.asked.append(op)
        if on_event is None:
            self.journal += params["entries"]
            return None
        on_event({"log": self.log, "offset": len(self.log)})
        on_event({"alive": False, "exit": None})
        return SimpleNamespace(poll=lambda _: True, cancel=lambda: None)


def start(session: Scripted, monkeypatch: pytest.MonkeyPatch) -> Stepped:
    monkeypatch.setattr(steps, "observe_settled", lambda *_, **__: changes.node(changes.no_server))
    return steps.start_only(
        session,  # type: ignore[arg-type]
        pictures.BUNDLE,
        Silent(),
        confirm=lambda _: True,
        dry_run=False,
        wait_s=0.0,
    )


def test_a_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Scripted()
    (action,) = start(session, monkeypatch).actions
    assert action["changed"]
    assert session.asked == ["lock", "observe", "start", "unlock"]


def test_a_server_that_ended_at_once_is_told_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Scripted(started={**STARTED, "alive": False}, log=OOM)
    with pytest.raises(UnhealthyError, match=r"gpu-oom: .*OutOfMemoryError") as caught:
        start(session, monkeypatch)
    assert caught.value.exit_code == ExitCode.UNHEALTHY
    (action,) = caught.value.data["actions"]
    assert (action["id"], action["changed"]) == ("start", True)
    begin, end = session.journal
    assert (begin["action"], begin["phase"]) == ("health", "begin")
    assert (end["outcome"], "gpu-oom" in end["message"]) == ("error", True)


def test_no_second_server_is_started_beside_one_that_a_supervisor_started_anew() -> None:
    """systemd's `Restart=always`, a loop in a script: both would load onto the same GPUs."""
    session = Scripted(procs={"procs": {**pictures.healthy()["procs"], "listeners": []}})
    seen = changes.node(changes.no_server)
    work = Work(session, "d1", "restart", Silent(), seen=seen)  # type: ignore[arg-type]
    ended = tuple(changes.node().ownership.to_end())  # type: ignore[union-attr]
    plan = Plan((Action("start", True, "its code changes"),), to_end=ended, restart=True)
    with pytest.raises(UnhealthyError, match="is there again as pid 100, started by pid 1:") as caught:
        start_server(work, plan)
    assert "systemctl status 100" in caught.value.hint
    assert session.asked == ["observe"]


def test_a_server_that_somebody_started_by_hand_meanwhile_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading that was planned on and the lock, which no journal tells of."""
    by_hand = pictures.healthy()["procs"]
    session = Scripted(procs={"procs": {**by_hand, "listeners": []}})
    with pytest.raises(Outdated, match="pid 100 is the server now"):
        start(session, monkeypatch)
    assert session.asked == ["lock", "observe", "unlock"]
