"""Incidents in a log, and which of them is the first cause of a failure.

Eight ranks print eight tracebacks, the launcher prints "Received sigquit" before, between or after them,
and a harmless traceback may precede the ready line. So: exceptions are collected in order as incidents;
an incident of a process that SGLang gives up on counts at once, any other traceback only if no sign of
life follows it; consequences of another rank's end count only when nothing else is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from . import model_import
from .failure_rules import SECONDARY, Context, classify
from .lines import Entry
from .modelpath import same_path
from .redact import redact_text

_MAX_CAUSE = 2_000
_MAX_FRAMES = 12_000

# What a model that is not the one asked for may end in.
_MODEL_CODES = ("unknown", "eagle3-hook-missing", "model-arch", "draft-arch", "draft-shape", "warmup")

# managers/*.py: "X hit an exception: Traceback ..."; entrypoints/http_server.py: the warm-up.
_FATAL_HEAD = re.compile(r"\w{3,40} hit an exception: ")
_WARMUP_HEAD = re.compile(r"Initialization failed\. warmup error")
_HARMLESS_HEAD = re.compile(r"freeze_gc failed|Exception in ASGI application|Pyspy failed|py-spy")
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,8}(?:[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt|Timeout|Fault|Failure)|Exception)(?::.*)?\s*$",
    re.DOTALL,
)
_FRAME = re.compile(r"[ \t|+]{1,40}File \"(?P<file>[^\"\n]{1,1000})\", line \d")
_CHAIN = re.compile(r"(?:The above exception was|During handling of the above exception)")
# utils/watchdog.py; managers/scheduler.py up to 0.5.8 ("Watchdog timeout (self.watchdog_timeout=300)").
_WATCHDOG = re.compile(r"\b[Ww]atchdog timeout \(self\.watchdog_timeout=")
_SOFT = re.compile(r"self\.soft=True")
_BIND = re.compile(r"\[Errno (?:98|48|10048)\] error while attempting to bind on address")
_ARGPARSE = re.compile(
    r"^\S{1,200}: error: (?:argument|unrecognized arguments|the following arguments|ambiguous option|one of)"
)
# utils/watchdog.py (0.5.11+); entrypoints/engine.py.
_CRASHED = re.compile(r"Subprocess \S{1,80} \(pid=\d+\) crashed with exit code (?P<code>-?\d+)")
_DEAD = re.compile(r"Rank \d+ scheduler is dead")
_EXIT_CODE = re.compile(r"^Exit code: (?P<code>-?\d+)")
_ABORTED = re.compile(
    r"^(?:Killed|(?:Bus error|Segmentation fault|Aborted)(?: \(core dumped\))?)\s*$|^Fatal Python error: "
)
# Unstamped lines that are no part of an exception's message.
_INTERRUPTS = re.compile(
    rf"{_ABORTED.pattern}|{_ARGPARSE.pattern}|(?:Rank \d+ scheduler is dead|Exit code: )"
)
_GIVEN_UP = re.compile(
    r"(?i:received sigquit from a child proc|SIGQUIT received\.|SIGTERM/SIGQUIT/Exception triggered)"
)
_GLOO = re.compile(r"\[E\S{0,20} [^\]]{0,60}ProcessGroup\w+\.cpp:\d+\]")


@dataclass(frozen=True)
class Failure:
    """Why a boot failed. `code`: see docs of the interface; "unknown" when no rule knows the text.
    `cause`: the text of `line` (1-based in the file), secrets masked. `ranks`: who reported the same.
    `stage`: of the start-up when it happened. `note`: what to know about it, null for most."""

    code: str
    cause: str
    line: int
    ranks: tuple[str, ...] = ()
    stage: str = "starting"
    note: str | None = None


@dataclass(frozen=True)
class _Incident:
    """A traceback being read, or just read: `found` is set from its first exception line on. `stage`: of
    the start-up when it began. `frames`, `raised_in`: see `Context`."""

    kind: str  # "fatal", "warmup", "bare", "harmless"
    head: Entry
    stage: str
    frames: str = ""
    raised_in: str = ""
    in_traceback: bool = True
    found: Failure | None = None


@dataclass(frozen=True)
class State:
    """Everything that a boot's log said about failing so far.

    `fatal`: first cause that counts. `secondary`: first consequence. `tentative`: a traceback that counts
    unless a sign of life follows. `given_up`: the launcher's own word that a child failed."""

    fatal: Failure | None = None
    secondary: Failure | None = None
    tentative: Failure | None = None
    given_up: Failure | None = None
    incident: _Incident | None = None
    dead: Failure | None = None
    watchdogs: int = 0
    imports: tuple[model_import.ImportFailure, ...] = ()
    lost: model_import.ImportFailure | None = None
    target_path: str | None = None
    draft_path: str | None = None
    algorithm: str | None = None
    types: tuple[str, ...] = ()


def definite(state: State) -> Failure | None:
    """The first cause of what certainly is a failure; None as long as there is none."""
    first = state.fatal
    if state.tentative and (state.given_up or first) and (first is None or state.tentative.line < first.line):
        first = state.tentative
    if first is None and state.given_up:
        return state.secondary or state.dead or state.given_up
    return first or state.dead


def suspected(state: State) -> Failure | None:
    """`definite`, or the traceback that counts if nothing follows: right once the process has ended."""
    return definite(state) or state.tentative or state.secondary


def has_doubts(state: State) -> bool:
    """Whether a sign of life would clear something up."""
    return state.tentative is not None or state.secondary is not None


def with_arguments(state: State, values: dict[str, object]) -> State:
    """`state` knowing the effective arguments of this boot."""

    def text(name: str) -> str | None:
        value = values.get(name)
        return value if isinstance(value, str) else None

    return replace(
        state,
        target_path=text("model_path"),
        draft_path=text("speculative_draft_model_path"),
        algorithm=text("speculative_algorithm"),
    )


def _context(state: State, incident: _Incident | None, stage: str) -> Context:
    no_own = state.draft_path is None or same_path(state.draft_path, state.target_path)
    missing = state.target_path is not None and no_own
    return Context(
        frames=incident.frames if incident else "",
        raised_in=incident.raised_in if incident else "",
        stage=stage,
        draft_is_target=state.algorithm == "EAGLE3" and missing,
        target_type=state.types[0] if state.types else None,
        draft_type=state.types[1] if len(state.types) > 1 else None,
        warmup=incident is not None and incident.kind == "warmup",
    )


def _failure(code: str, item: Entry, stage: str, note: str | None = None, rank: str = "") -> Failure:
    cause = redact_text(item.message.strip())[:_MAX_CAUSE]
    rank = rank or item.rank
    return Failure(code, cause, item.number, (rank,) if rank else (), stage, note)


def _first(current: Failure | None, new: Failure) -> Failure:
    """The earlier of two; the same finding of another rank only adds the rank."""
    if current is None:
        return new
    if current.code == new.code and (current.cause == new.cause or current.code != "unknown"):
        ranks = current.ranks + tuple(rank for rank in new.ranks if rank not in current.ranks)
        return replace(current, ranks=ranks)
    return current


def _count(state: State, incident: _Incident) -> State:
    """`state` with the finding of an incident that has been read to its end."""
    found = incident.found
    if found is None:
        if incident.kind not in ("fatal", "warmup"):
            return state
        code = "warmup" if incident.kind == "warmup" else "unknown"
        found = _failure(code, incident.head, incident.stage)
    if incident.kind == "harmless":
        return state
    if found.code == "unknown" and SECONDARY.search(found.cause):
        return replace(state, secondary=_first(state.secondary, found))
    if incident.kind == "bare":
        return replace(state, tentative=_first(state.tentative, found))
    return replace(state, fatal=_first(state.fatal, found))


def _imported(state: State, found: Failure) -> Failure:
    """The failed import behind a failure of a model that SGLang does not find."""
    if found.code not in _MODEL_CODES:
        return found
    lost = state.lost
    if lost is None and (match := model_import.UNSUPPORTED.search(found.cause)):
        lost = model_import.responsible(
            state.imports, re.sub(r"\W.*", "", match.group("archs").lstrip("'\""))
        )
    if lost is None:
        return found
    note = f"seen as: {found.cause}"
    return Failure("model-import", lost.text, lost.line, found.ranks, found.stage, note)


def _read_exception(state: State, incident: _Incident, item: Entry, stage: str) -> _Incident:
    """The incident after an exception line or a line of its message."""
    known = classify(item.text, _context(state, incident, stage))
    if incident.found is not None and (
        known is None or incident.found.code not in ("unknown", "warmup", "bad-argument")
    ):
        return incident
    if (
        incident.found is not None
        and known is not None
        and known[0] in ("warmup", "bad-argument", incident.found.code)
    ):
        return incident
    code, note = known or ("unknown", None)
    return replace(incident, found=_imported(state, _failure(code, item, stage, note, incident.head.rank)))


def _continue(state: State, incident: _Incident, item: Entry, stage: str) -> State:
    """An unstamped line behind the head of an incident."""
    text = item.text
    if text.startswith(_TRACEBACK):
        return replace(state, incident=replace(incident, in_traceback=True))
    if not text.strip() or _CHAIN.match(text):
        return state
    if incident.in_traceback and text[0] in " \t|+":
        frames = incident.frames if len(incident.frames) > _MAX_FRAMES else f"{incident.frames}{text[:400]}\n"
        frame = _FRAME.match(text)
        raised_in = frame.group("file") if frame else incident.raised_in
        return replace(state, incident=replace(incident, frames=frames, raised_in=raised_in))
    return replace(state, incident=replace(_read_exception(state, incident, item, stage), in_traceback=False))


def _opens(item: Entry, stage: str) -> _Incident | None:
    """The incident that a line begins."""
    text = item.message
    if _FATAL_HEAD.match(text):
        return _Incident("fatal", item, stage)
    if _WARMUP_HEAD.match(text):
        return _Incident("warmup", item, stage)
    if _HARMLESS_HEAD.search(text[:200]):
        return _Incident("harmless", item, stage)
    if text.startswith(_TRACEBACK):
        return _Incident("bare", item, stage)
    return None


def _exit(state: State, item: Entry, code: int, stage: str) -> State:
    """A child that ended with `code`: below 0 a signal, which is a cause of its own."""
    if code in (-7, 135):
        return replace(
            state, fatal=_first(state.fatal, _failure("shm-full", item, stage, "SIGBUS: /dev/shm is full"))
        )
    if code == 0:
        return state
    note = "SIGKILL: the kernel's OOM killer, or somebody's kill -9" if code == -9 else None
    dead = _failure("rank-died", item, stage, note)
    if code < 0 and state.dead is not None:
        dead = replace(state.dead, note=note)
    if code < 0 and code != -3:
        return replace(state, fatal=_first(state.fatal, dead), dead=state.dead or dead)
    return replace(state, dead=state.dead or dead)


def _watchdog(state: State, item: Entry, _match: re.Match[str], stage: str) -> State:
    if _SOFT.search(item.text):
        return state
    failure = _failure("watchdog", item, stage)
    return replace(state, fatal=_first(state.fatal, failure), watchdogs=state.watchdogs + 1)


def _aborted(state: State, item: Entry, _match: re.Match[str], stage: str) -> State:
    code = "shm-full" if "Bus error" in item.text else "rank-died"
    return replace(state, secondary=_first(state.secondary, _failure(code, item, stage)))


def _process_group(state: State, item: Entry, _match: re.Match[str], stage: str) -> State:
    if not SECONDARY.search(item.text):
        return state
    return replace(state, secondary=_first(state.secondary, _failure("nccl", item, stage)))


def _fatal(code: str) -> Callable[[State, Entry, re.Match[str], str], State]:
    return lambda state, item, _match, stage: replace(
        state, fatal=_first(state.fatal, _failure(code, item, stage))
    )


# Lines that tell of a failure by themselves.
_SINGLE: tuple[tuple[re.Pattern[str], Callable[[State, Entry, re.Match[str], str], State]], ...] = (
    (_WATCHDOG, _watchdog),
    (_BIND, _fatal("port-in-use")),
    (_CRASHED, lambda state, item, match, stage: _exit(state, item, int(match.group("code")), stage)),
    (_EXIT_CODE, lambda state, item, match, stage: _exit(state, item, int(match.group("code")), stage)),
    (
        _DEAD,
        lambda state, item, _match, stage: replace(
            state, dead=state.dead or _failure("rank-died", item, stage)
        ),
    ),
    (_ARGPARSE, _fatal("bad-argument")),
    (
        _GIVEN_UP,
        lambda state, item, _match, stage: replace(
            state, given_up=state.given_up or _failure("unknown", item, stage)
        ),
    ),
    (_ABORTED, _aborted),
    (_GLOO, _process_group),
)


def _single(state: State, item: Entry, stage: str) -> State:
    text = item.message[:1_000]
    for pattern, action in _SINGLE:
        match = pattern.search(text)
        if match:
            return action(state, item, match, stage)
    return state


# Text that every line of `_single` and of the import failures contains: other lines are passed over fast.
_TELLING = re.compile(
    r"atchdog timeout|\[Errno|xit code|is dead|error: |(?i:sigquit)|Killed|Bus error|Segmentation|Aborted"
    r"|Fatal Python|ProcessGroup|Ignore import error|has no SGLang implementation"
)


def _imports(state: State, item: Entry) -> State:
    failure = model_import.read(item.number, item.message)
    if failure is not None:
        return replace(state, imports=(*state.imports, failure)[:500])
    if match := model_import.FALLBACK.search(item.message):
        lost = model_import.responsible(state.imports, match.group("arch"))
        return replace(state, lost=state.lost or lost)
    return state


def step(state: State, item: Entry, *, stage: str = "starting", alive: bool = False) -> State:
    """`state` after one entry. `alive`: the entry is a sign of life, so earlier tentative tracebacks were
    harmless."""
    incident = state.incident
    opened = _opens(item, stage)
    starts_over = opened is not None and (incident is None or item.stamp is not None)
    if incident is not None:
        if item.stamp is None and not starts_over and not _INTERRUPTS.match(item.text):
            return _continue(state, incident, item, stage)
        state = replace(_count(state, incident), incident=None)
    if opened is not None:
        return replace(state, incident=opened)
    if alive:
        return replace(state, tentative=None, secondary=None) if has_doubts(state) else state
    if _TELLING.search(item.text):
        return _single(_imports(state, item), item, stage)
    if item.stamp is None and _EXCEPTION.match(item.text):
        bare = _Incident("bare", item, stage)
        return replace(state, incident=replace(_read_exception(state, bare, item, stage), in_traceback=False))
    return state


def finish(state: State) -> State:
    """`state` at the end of the log: an incident that is being read is complete."""
    if state.incident is None:
        return state
    return replace(_count(state, state.incident), incident=None)
