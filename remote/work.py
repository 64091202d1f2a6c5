"""A change in progress: the session, the picture it was planned from, its id, and the lock."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .checks import Check, exit_code, tally
from .errors import ExitCode, FixopsError, InterruptedByUser, NodeError
from .node_errors import translate
from .observe import owners_now
from .ownership import Process, news
from .picture import Picture
from .plan import Action, Plan
from .reporting import Reporter
from .session import Event, Session

# What tells the processes that it ends, or would end.
ENDS = ("kill-stale", "stop")
# The last entry of a command in the journal: nothing that `inv history` shows.
UNLOCK = "unlock"
# Puts files back after another action failed: its own outcome is none of that one's.
RESTORE = "restore"


@dataclass(frozen=True)
class Done:
    """One action as it was carried out. `processes` only where some were ended.

    `known` is false where it could not be seen whether it came true.
    """

    id: str
    changed: bool
    detail: str
    processes: tuple[dict[str, Any], ...] | None = None
    known: bool = True

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"id": self.id, "changed": self.changed, "detail": self.detail}
        if self.processes is not None:
            value["processes"] = list(self.processes)
        return value


def replaced_files(actions: Iterable[dict[str, Any]]) -> bool:
    """Whether actions, as in JSON, replaced a file: else a rollback would undo an earlier deploy."""
    return any(each["changed"] for each in actions if each["id"] in ("push-code", "push-config"))


def way_back(actions: Iterable[dict[str, Any]], node: str) -> str:
    """What is added to the hint of a server that does not come up."""
    return f", or go back: inv rollback --node {node}" if replaced_files(actions) else ""


def unchanged(action: Action) -> Done:
    """An action for which there was nothing to do: ended processes are told all the same, none."""
    return Done(action.id, False, action.detail, () if action.id in ENDS else None)


def planned_json(plan: Plan) -> tuple[dict[str, Any], ...]:
    """The actions of a dry run: nothing changed, and whether it would."""
    return tuple(_planned(action, plan) for action in plan.actions)


def _planned(action: Action, plan: Plan) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": action.id,
        "changed": False,
        "would_change": action.would_change,
        "detail": action.detail,
    }
    if action.diff:
        value["diff"] = action.diff
    if action.id in ENDS:
        value["processes"] = [{"pid": p.pid, "title": p.title, "ended_by": "none"} for p in plan.to_end]
    return value


def new_id(now_s: float | None = None) -> str:
    """An id of a deploy or boot: its time in UTC, and a few digits against a second one at once."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    return f"{stamp}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Work:
    """`actions` grows as they come true: what was done is told also when a later one fails."""

    session: Session
    deploy_id: str
    command: str
    reporter: Reporter
    actions: list[Done] = field(default_factory=list)
    # What the node was asked to change, by action, and whether it answered.
    begun: dict[str, bool] = field(default_factory=dict)
    # What it was planned on.
    seen: Picture | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was changed: what only waited is no operation on the node."""
        return any(done.changed for done in self.actions)

    def told(self) -> dict[str, Any]:
        """For the node's entry when the work ends early."""
        return {"deploy_id": self.deploy_id, "actions": [done.to_json() for done in self.actions]}

    def interrupted(self) -> InterruptedByUser:
        """What was done until now, and what was begun."""
        node, done = self.session.node.name, [each.id for each in self.actions if each.changed]
        parts = [f"{', '.join(done)} done"] if done else []
        parts += [f"{action} begun" for action, answered in self.begun.items() if not answered]
        what = f"it may have been changed: {'; '.join(parts)}" if self.begun else "nothing was changed"
        return InterruptedByUser(
            f"{node}: interrupted, {what}",
            hint=f"inv status --node {node}, then the command again",
            node=node,
            data=self.told(),
        )

    def change(
        self,
        op: str,
        params: dict[str, Any],
        *,
        action: str,
        detail: str,
        timeout_s: float = 120.0,
        on_event: Event | None = None,
    ) -> dict[str, Any]:
        """A request that changes the node: journalled there before and after."""
        journal = self.journal(action, detail)
        self.begun[action] = False
        reply = self.session.request(op, params, timeout_s=timeout_s, on_event=on_event, journal=journal)
        self.begun[action] = True
        return reply

    def watched(self, action: str, detail: str, step: Callable[[], Done]) -> Done:
        """A step that changes nothing and may fail, journalled all the same: how a start went is for whoever
        comes after. Nobody waits for the journal; one that cannot be written spoils nothing."""
        entry = self.journal(action, detail)
        self._append({**entry, "phase": "begin"})
        try:
            done = step()
        except FixopsError as error:
            message = self.session.secrets.clean(error.message)
            end = {"outcome": "error", "kind": error.code, "message": message}
            self._append({**entry, "phase": "end", **end})
            raise
        detail, outcome = self.session.secrets.clean(done.detail), "ok" if done.known else "unknown"
        self._append({**entry, "phase": "end", "outcome": outcome, "detail": detail})
        return done

    def verified(self, checks: Sequence[Check]) -> None:
        """The verdict on what was done, for the journal."""
        outcome = {ExitCode.OK: "ok", ExitCode.CHECK_FAILED: "failed"}.get(exit_code(checks), "unknown")
        not_passed = [each.id for each in checks if each.verdict in ("fail", "unknown")]
        detail = tally(checks) + (f": {', '.join(not_passed)}" if not_passed else "")
        entry = self.journal("verify", detail)
        self._append({**entry, "phase": "begin"}, {**entry, "phase": "end", "outcome": outcome})

    def failed(self, error: FixopsError) -> None:
        """The action that was begun last did not come true, although the node answered: processes that did
        not end, memory that did not come back. Its entry in the journal says `ok` until this corrects it."""
        action = next(reversed(self.begun), RESTORE)
        done = {RESTORE, *(each.id for each in self.actions)}
        if action in done or not self.begun[action]:
            return
        end = {"outcome": "error", "kind": error.code, "message": self.session.secrets.clean(error.message)}
        entry = {**self.journal(action, ""), "phase": "end", "corrects": True, **end}
        with suppress(NodeError):
            self.session.submit("journal_append", {"entries": [entry]})

    def _append(self, *entries: dict[str, Any]) -> None:
        """Into the journal of what was changed, without waiting."""
        if self.changed:
            with suppress(NodeError):
                self.session.submit("journal_append", {"entries": list(entries)})

    def journal(self, action: str, detail: str) -> dict[str, Any]:
        """Who does what in which deploy: what is written on the node before and after."""
        return {
            "deploy_id": self.deploy_id,
            "command": self.command,
            "who": self.session.who,
            "action": action,
            "detail": self.session.secrets.clean(detail),
        }


class Outdated(Exception):
    """Something changed on the node between the reading that was planned on and the lock: plan anew.

    Its text says what that was.
    """


def _by(operation: dict[str, Any]) -> Outdated:
    """`operation`: a journal's entry, or a lock's holder."""
    return Outdated(f"{operation.get('who')} changed the node meanwhile ({operation.get('command')})")


def last_operation(journal: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The last entry of a journal that an operation on the node wrote (a benchmark's note is none)."""
    return next((entry for entry in reversed(journal) if "op" in entry), None)


@contextmanager
def locked(
    session: Session,
    command: str,
    reporter: Reporter,
    *,
    seen: Picture | None,
    ends: Iterable[Process] = (),
    wait_s: float = 0.0,
) -> Iterator[Work]:
    """Hold the node's lock. LockedError names the holder when another engineer has it.

    `seen` is what the work was planned on, None where nothing was, and `ends` are the processes that it will
    end: Outdated when an operation was journalled since, or a process is there that the plan does not know.
    """
    work = Work(session, new_id(), command, reporter, seen=seen)

    def waiting(event: dict[str, Any]) -> None:
        other = event.get("waiting") or {}
        reporter.note(f"waiting for the lock of {other.get('who')} ({other.get('command')})")

    reply = session.request(
        "lock",
        {"who": session.who, "command": command, "deploy_id": work.deploy_id, "wait_s": wait_s},
        timeout_s=wait_s + 30.0,
        on_event=waiting,
    )
    taken = reply.get("took_over")
    if taken:
        reporter.note(f"took over the lock of {taken.get('who')}, whose command no longer runs")
    try:
        if seen is not None:
            _refuse_outdated(reply, seen.journal)
            _refuse_other_processes(session, seen, ends)
        yield work
    except FixopsError as error:
        work.failed(error)
        error.data = {**work.told(), **error.data}
        raise
    except KeyboardInterrupt:
        raise work.interrupted() from None
    finally:
        # The helper's end releases it too: an error here must not hide the one that brought us here.
        if session.helper.alive:
            # Journalled, so that whoever looked while we only waited for health plans anew. Not where nothing
            # was changed: that is no deploy.
            journal = work.journal(UNLOCK, "") if work.changed else None
            if session.request("unlock", {}, journal=journal).get("released") is False:
                reporter.note(f"the lock was taken away meanwhile: inv history --node {session.node.name}")


def await_lock(session: Session, holder: dict[str, Any], reporter: Reporter, *, wait_s: float) -> NoReturn:
    """Somebody else is at work: LockedError, or with `wait_s` Outdated as soon as they are done."""
    if not wait_s:
        raise translate(NodeError("locked", "", {"holder": holder}), session.node.name, "lock")
    with locked(session, "wait", reporter, seen=None, wait_s=wait_s):
        raise _by(holder)


def _refuse_outdated(reply: dict[str, Any], seen: list[dict[str, Any]]) -> None:
    """Outdated when the lock was waited for, or an operation was journalled since `seen`."""
    latest = last_operation(reply["journal_tail"])
    if reply["waited_for"] is not None:
        raise _by(reply["waited_for"])
    if latest is not None and latest != last_operation(seen):
        raise _by(latest)


def _refuse_other_processes(session: Session, seen: Picture, ends: Iterable[Process]) -> None:
    """Outdated when somebody started or ended a server by hand: no journal tells of that."""
    now = owners_now(session, seen)
    if seen.ownership is None or now is None:
        return  # they could not be read: a plan that needs them was refused
    found = news(seen.ownership, now, ends)
    if found is not None:
        raise Outdated(f"the node's processes changed meanwhile ({found})")
