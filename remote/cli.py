"""One command from its options to its exit code: nodes, sessions, errors, the JSON document.

What a command does with one node is a function `each(session, reporter) -> Result`; this module
runs it on every node named, and turns whatever happens into the contract's exit codes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

from . import inventory, secrets
from .errors import (
    WORST_FIRST,
    ExitCode,
    FixopsError,
    InternalError,
    InterruptedByUser,
    NotBegun,
    UsageError,
    worst,
)
from .hints import Given
from .inventory import Inventory, Node
from .redact import KnownSecrets, clean_tree
from .render.console import aim, console, next_step, print_error, print_json
from .render.reporter import TerminalReporter
from .render.show import message
from .reporting import Reporter, Silent
from .session import Session, open_session
from .sidebyside import side_by_side

SCHEMA = 1
# What became of a command on one node of a group.
_WORDS = {
    ExitCode.OK: "done",
    ExitCode.BUG: "met a bug",
    ExitCode.USAGE: "wrongly asked",
    ExitCode.CONNECT: "not reached",
    ExitCode.LOCKED: "locked",
    ExitCode.REFUSED: "refused",
    ExitCode.UNHEALTHY: "not healthy",
    ExitCode.CHECK_FAILED: "failed a check",
    ExitCode.UNDETERMINED: "not determined",
    ExitCode.INEFFECTIVE: "not effective",
    ExitCode.INTERRUPTED: "interrupted",
}
# A group is read side by side; more connections at once than this only wait for each other.
MAX_PARALLEL = 32


class Result(Protocol):
    """What a command found out on one node."""

    @property
    def exit_code(self) -> ExitCode: ...

    def to_json(self) -> dict[str, Any]: ...


@runtime_checkable
class Failing(Protocol):
    """A result whose exit code may be that of an error: then `failure` says which."""

    @property
    def failure(self) -> FixopsError | None: ...


@dataclass(frozen=True)
class Plain:
    """A result that is its own JSON, and good as it is."""

    entry: dict[str, Any]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        return self.entry


Shown = TypeVar("Shown")
Each = Callable[[Session, Reporter], Result]
Show = Callable[[Any], None]


@dataclass(frozen=True)
class Options:
    """What every command takes."""

    command: str
    node: str | None = None
    inventory: str | None = None
    json: bool = False
    fix: str | None = None
    # What else was given that makes it another command: `--to ID`.
    own: tuple[str, ...] = ()

    @property
    def again(self) -> str:
        """The command as it was typed, to which a hint adds --yes or --dry-run."""
        return shlex.join(["inv", self.command, *self.own])

    def given(self, *, several: bool = False) -> Given:
        return Given(self.node, self.fix, self.inventory, several, os.environ.get("FIXOPS_INVENTORY"))


@dataclass(frozen=True)
class Outcome:
    """What came of a command on one node: a result or an error, both where an error has something to show."""

    node: str
    result: Result | None
    error: FixopsError | None

    @property
    def exit_code(self) -> ExitCode:
        if self.error is not None:
            return self.error.exit_code
        assert self.result is not None
        return self.result.exit_code

    @property
    def failure(self) -> FixopsError | None:
        """What is printed as the error. A verdict (7, 8, 9) is none."""
        return self.error or (self.result.failure if isinstance(self.result, Failing) else None)

    def to_json(self) -> dict[str, Any]:
        failure = self.failure
        found = {"node": self.node, **failure.data} if failure else {}
        if self.result is not None:
            found = self.result.to_json()
        return {**found, "error": error_json(failure)} if failure else found


def error_json(error: FixopsError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def guarded(options: Options, body: Callable[[], ExitCode]) -> NoReturn:
    """Run a command's body; every way out of it ends here, with one message and one exit code."""
    aim(options.given())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it is told as Ctrl-C is
    try:
        code = body()
    except KeyboardInterrupt:
        code = finish(options, [], _interrupted(options))
    except FixopsError as error:
        code = finish(options, [], error)
    except Exception:
        code = finish(options, [], _bug())
    finally:
        aim(Given())
    sys.exit(int(code))


def _bug() -> InternalError:
    """The exception that is being handled: its traceback on stderr, and the error that says so."""
    sys.stderr.write(clean_text(traceback.format_exc()))
    return InternalError("a bug in fixops (traceback above)", hint="please report it")


def _interrupted(options: Options) -> FixopsError:
    return InterruptedByUser("interrupted", hint=f"{options.again} again is safe")


def finish(
    options: Options,
    outcomes: Sequence[Outcome],
    error: FixopsError | None = None,
    *,
    more: Mapping[str, Any] | None = None,
) -> ExitCode:
    """Print the JSON document (with `more` in it) or the errors; return the exit code of it all."""
    if options.json:
        outcomes = [_renderable(outcome) for outcome in outcomes]
    failures = [error] if error else [each.failure for each in outcomes]
    errors = [each for each in failures if each is not None]
    for each in errors:
        each.hint = next_step(each.hint, each.node)
    code = error.exit_code if error else worst([outcome.exit_code for outcome in outcomes])
    first = next((each for each in errors if each.exit_code == code), None)
    if options.json:
        document = {
            "schema": SCHEMA,
            "command": options.command,
            "ok": code == ExitCode.OK,
            "exit_code": int(code),
            "nodes": [outcome.to_json() for outcome in outcomes],
            "error": error_json(first) if first else None,
            **(more or {}),
        }
        print_json(clean_tree(document, clean_text))
    # What ended many nodes at once is told once.
    stopped = [each for each in errors if isinstance(each, InterruptedByUser)]
    for each in errors:
        if not isinstance(each, NotBegun) and each not in stopped[1:]:
            print_error(_clean_error(each))
    if len(outcomes) > 1:
        message(_tally(outcomes))
    return code


def _tally(outcomes: Sequence[Outcome]) -> str:
    """A group in one line: how many nodes are done, and which are not and why."""
    by_word: dict[str, list[str]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: WORST_FIRST.index(outcome.exit_code)):
        word = "not begun" if isinstance(outcome.error, NotBegun) else _WORDS[outcome.exit_code]
        by_word.setdefault(word, []).append(outcome.node)
    done = len(by_word.pop(_WORDS[ExitCode.OK], []))
    others = [f"{len(names)} {word}: {', '.join(names)}" for word, names in by_word.items()]
    return f"{len(outcomes)} nodes: " + "; ".join([f"{done} done", *others])


def _renderable(outcome: Outcome) -> Outcome:
    """The outcome; where a bug keeps it from being JSON, that error in its place: the others are shown."""
    try:
        json.dumps(outcome.to_json())
    except Exception:
        return Outcome(outcome.node, None, _on(outcome.node, _bug()))
    return outcome


# Of the nodes that this command works on: never printed.
_known = KnownSecrets()


def clean_text(text: str) -> str:
    """`text` without secrets: for what is printed as it came from a node."""
    return _known.clean(text)


def clean(value: Shown) -> Shown:
    """A result or a plan without secrets: for its view."""
    found: Shown = clean_tree(value, clean_text)
    return found


def _clean_error(error: FixopsError) -> FixopsError:
    error.message, error.hint = clean_text(error.message), clean_text(error.hint)
    error.data = clean_tree(error.data, clean_text)
    return error


def load_inventory(options: Options) -> tuple[Inventory, list[Node]]:
    found = inventory.load(options.inventory, only=options.node)
    nodes = found.select(options.node)
    aim(options.given(several=len(nodes) > 1))
    for node in nodes:
        _known.learn(secrets.values(node.server, os.environ))
    return found, nodes


def on_nodes(
    options: Options,
    nodes: Sequence[Node],
    each: Each,
    show: Show,
    *,
    parallel: bool,
    go_on: bool = False,
    show_several: Callable[[Sequence[Any]], None] | None = None,
) -> ExitCode:
    """Run `each` on every node: side by side when it only reads, else one after another.

    `show_several`: a group's results in one picture.

    A changing command stops at the first node that it could not finish: the rest of the group keeps
    what it has, and is named. `go_on`: one that only reads, but one node at a time, goes on unless it was
    interrupted.
    """
    if parallel and len(nodes) > 1:
        found = side_by_side(lambda node: _one(node, each, Silent()), nodes, MAX_PARALLEL)
        told = [
            outcome or Outcome(node.name, None, _on(node.name, _interrupted(options)))
            for node, outcome in zip(nodes, found, strict=True)
        ]
        if show_several is not None:
            return finish(options, _shown_together(options, told, show_several))
        return finish(options, [shown(options, outcome, show) for outcome in told])
    outcomes: list[Outcome] = []
    for node in nodes:
        reporter = TerminalReporter(console(to_stderr=options.json), node.name, clean_text)
        try:
            outcome = _one(node, each, reporter)
        except KeyboardInterrupt:
            outcome = Outcome(node.name, None, _on(node.name, _interrupted(options)))
        finally:
            reporter.close()
        outcome = shown(options, outcome, show)
        outcomes.append(outcome)
        if outcome.failure is not None and not parallel:
            if go_on and outcome.exit_code != ExitCode.INTERRUPTED:
                continue
            break
    outcomes += [_not_begun(options, node, outcomes[-1].node) for node in nodes[len(outcomes) :]]
    return finish(options, outcomes)


def _not_begun(options: Options, node: Node, stopped_at: str) -> Outcome:
    text = f"{node.name}: not begun, inv {options.command} stopped at {stopped_at}"
    return Outcome(node.name, None, NotBegun(text, hint="mend that node first", node=node.name))


def shown(options: Options, outcome: Outcome, show: Show) -> Outcome:
    """Show what came of a node. A bug in showing it is that node's error: the others are shown."""
    if options.json or outcome.result is None:
        return outcome
    try:
        show(clean(outcome.result))
    except Exception:
        return replace(outcome, error=_on(outcome.node, _bug()))
    return outcome


def _shown_together(
    options: Options, outcomes: Sequence[Outcome], show: Callable[[Sequence[Any]], None]
) -> list[Outcome]:
    """A group in one picture: a bug in it is an error of every node that it was to show."""
    results = [clean(outcome.result) for outcome in outcomes if outcome.result is not None]
    if options.json or not results:
        return list(outcomes)
    try:
        show(results)
    except Exception:
        error = _bug()
        return [replace(each, error=each.error or _on(each.node, copy(error))) for each in outcomes]
    return list(outcomes)


def _one(node: Node, each: Each, reporter: Reporter) -> Outcome:
    def in_session(node: Node) -> Result:
        with open_session(node, _known) as session:
            return each(session, reporter)

    return without_session(node, in_session)


def without_session(node: Node, each: Callable[[Node], Result]) -> Outcome:
    """What needs no helper on the node. A bug on one node is that node's error: the others are reported."""
    try:
        return Outcome(node.name, each(node), None)
    except FixopsError as error:
        return Outcome(node.name, None, _on(node.name, error))
    except Exception:
        return Outcome(node.name, None, _on(node.name, _bug()))


def _on(node: str, error: FixopsError) -> FixopsError:
    """The error, which tells the node by the inventory's name: an address alone does not."""
    if error.node is None:
        error.node, error.message = node, f"{node}: {error.message}"
    return error


def only(options: Options, nodes: Sequence[Node], flag: str) -> Node:
    """The one node, for what fills the terminal until Ctrl-C."""
    if len(nodes) > 1:
        named = ", ".join(node.name for node in nodes)
        raise UsageError(
            f"{flag} shows one node, and these are {len(nodes)}: {named}",
            hint=f"inv {options.command} {flag} --node {nodes[0].name}",
        )
    return nodes[0]


def refuse_invoke_dry(options: Options, dry: bool) -> None:
    """`inv --dry` would make every remote command an empty success: it is refused."""
    if dry:
        guarded(options, _refuse_dry)


def _refuse_dry() -> NoReturn:
    raise UsageError("inv --dry does not work with fixops", hint="use --dry-run behind the command's name")


def must_confirm(options: Options, *, yes: bool, dry_run: bool) -> None:
    """Without a terminal nobody can be asked: such a run says --yes, or changes nothing."""
    if not yes and not dry_run and not sys.stdin.isatty():
        raise UsageError(
            f"inv {options.command} changes {options.node or 'the node'}, and there is no terminal to ask on",
            hint=f"{options.again} --yes, or --dry-run to see what it would do",
        )


def ask(question: str) -> bool:
    """A yes-or-no question on the terminal, asked on stderr."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
