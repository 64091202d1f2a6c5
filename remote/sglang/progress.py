"""How far a starting server is, read from its log as it grows.

    state = feed(State(), chunk)      # any chunk of text, in order
    state.stage, state.percent, state.detail, state.ready, state.failure

A pure fold: any way to cut the log into chunks gives the same state. Ready means: this boot logged
"The server is fired up and ready to roll!" and nothing since says that it failed or stops. A second
server on a taken port logs that line too, after "address already in use", and exits. That the process
is alive, and that the listener is this process, is the caller's to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import args, incidents, ranks
from .incidents import Failure
from .lines import MAX_SEGMENT, Entry, entry, of_line
from .records import HEAD
from .stages import WORK, Mark, Stage, is_bar, mark

_END = re.compile(r"[\r\n]")


@dataclass(frozen=True)
class Load:
    """One load of weights. `shards`: None until a bar told. `type`: the class, None until loaded."""

    shards: int | None = None
    type: str | None = None


@dataclass(frozen=True)
class State:
    """State of one boot's start-up. `percent`: of the running step, 0 to 100, None if it shows none.
    `detail`: e.g. "loading target shards 3/8". `position`: grows with each line that moved anything, so that
    a caller can tell progress from silence. `suspect`: a traceback that is a failure if the process has
    ended. `draft_like_target`: the second load looks like the first, so the draft may be the target."""

    stage: Stage = "starting"
    percent: float | None = None
    detail: str = ""
    ready_at: str | None = None
    was_ready: bool = False
    stopping: bool = False
    position: int = 0
    loads: tuple[Load, ...] = ()
    has_record: bool = False
    seen_life: bool = False
    incidents: incidents.State = field(default_factory=incidents.State)
    # Inner state: what each group of ranks went through, and the unfinished line.
    _begun: frozenset[str] = frozenset()
    _loaded: frozenset[int | None] = frozenset()
    _ended: frozenset[str] = frozenset()
    _line: int = 1
    _tail: str = ""
    _skip: bool = False

    @property
    def failure(self) -> Failure | None:
        """The first cause of a certain failure."""
        return incidents.definite(self.incidents)

    @property
    def suspect(self) -> Failure | None:
        """The failure if the process has ended: `failure`, or a traceback that nothing followed."""
        return incidents.suspected(incidents.finish(self.incidents))

    @property
    def ready(self) -> bool:
        """The ready line of this boot was logged, and it neither failed nor stops."""
        return self.was_ready and not self.stopping and self.failure is None

    @property
    def draft_like_target(self) -> bool:
        """Two loads with the same class: the draft is probably the target (case of a missing draft path)."""
        if len(self.loads) < 2:
            return False
        first, second = self.loads[:2]
        if first.type is not None and second.type is not None:
            return first.type == second.type
        return first.shards is not None and first.shards == second.shards and first.shards > 1


def _loading(state: State, item: Entry, *, begins: bool) -> State:
    """State as weights are about to be loaded by the rank of `item`: the target's, or after it the draft's.

    A rank that loads for the second time loads the draft. Ranks of one DP group pass barriers together,
    so once one of them has loaded or captured, the next `Init torch distributed` is the draft's."""
    group = ranks.data_parallel(item.rank)
    key = f"{item.rank} {begins}"
    # An excerpt may begin after the target was loaded.
    unseen = not any(begun.endswith("True") for begun in state._begun) if begins else True
    again = key in state._begun or (group in state._loaded and unseen)
    if again:
        first = state.stage != "loading-draft"
        loads = (*state.loads, Load()) if first and len(state.loads) < 2 else state.loads
        detail = "loading the draft" if begins else "starting the draft worker"
        return replace(
            state, stage="loading-draft", percent=None, detail=detail, loads=loads or (Load(), Load())
        )
    begun = state._begun | {key}
    if not begins:
        return replace(state, _begun=begun, detail=state.detail or "starting the ranks")
    if state.stage == "loading-draft":
        return replace(state, _begun=begun)
    loads = state.loads or (Load(),)
    return replace(
        state, stage="loading-target", percent=None, detail="loading the target", loads=loads, _begun=begun
    )


def _bar(state: State, found: Mark) -> State:
    """State after a progress bar was redrawn."""
    done, total = found.done or 0, found.total or 0
    percent = 100.0 * done / total if total else None
    if found.kind == "shards":
        if state.stage not in ("loading-target", "loading-draft"):
            state = replace(state, stage="loading-target", loads=state.loads or (Load(),))
        which = "draft" if state.stage == "loading-draft" else "target"
        loads = (*state.loads[:-1], replace(state.loads[-1], shards=total)) if state.loads else (Load(total),)
        return replace(state, percent=percent, detail=f"loading {which} shards {done}/{total}", loads=loads)
    if found.kind == "capture":
        detail = f"{found.text} {done}/{total}"
        return replace(state, stage="graph-capture", percent=percent, detail=detail)
    name = found.text or state.detail.rstrip("0123456789/ ")
    return replace(state, percent=percent, detail=f"{name} {done}/{total}".strip())


def _loaded(state: State, item: Entry, name: str) -> State:
    group = ranks.data_parallel(item.rank)
    if state.loads and state.loads[-1].type and item.rank in state._ended and state.stage != "loading-draft":
        # The line that began this load is not in the excerpt.
        state = replace(state, stage="loading-draft", loads=(*state.loads, Load()))
    loads = state.loads or (Load(),)
    loads = (*loads[:-1], replace(loads[-1], type=name or loads[-1].type))
    which = "draft" if state.stage == "loading-draft" else "target"
    types = tuple(load.type for load in loads if load.type)
    stage: Stage = state.stage if state.stage != "starting" else "loading-target"
    return replace(
        state,
        stage=stage,
        percent=100.0,
        detail=f"{which} loaded",
        loads=loads,
        _loaded=state._loaded | {group},
        _ended=state._ended | {item.rank},
        incidents=replace(state.incidents, types=types),
    )


def _ready(state: State, item: Entry, _found: Mark) -> State:
    state = replace(state, was_ready=True, ready_at=item.time)
    if state.failure is not None or state.stopping:
        return state
    return replace(state, stage="serving", percent=None, detail="serving")


def _captured(state: State, item: Entry, _found: Mark) -> State:
    done = state._loaded | {ranks.data_parallel(item.rank)}
    return replace(state, stage="graph-capture", percent=100.0, detail="graphs captured", _loaded=done)


def _warming(state: State, _item: Entry, _found: Mark) -> State:
    if state.stage in ("serving", "stopping"):
        return state
    return replace(state, stage="warmup", percent=None, detail="warming up")


def _batch(state: State, _item: Entry, _found: Mark) -> State:
    if state.has_record or state.loads or state.stage != "starting":
        return state
    # The middle of a log: what decodes, serves.
    return replace(state, stage="serving", detail="serving")


_APPLY: dict[str, Callable[[State, Entry, Mark], State]] = {
    "init": lambda state, item, _found: _loading(state, item, begins=False),
    "load-begin": lambda state, item, _found: _loading(state, item, begins=True),
    "load-end": lambda state, item, found: _loaded(state, item, found.text),
    "capture": lambda state, _item, found: replace(
        state, stage="graph-capture", percent=None, detail=found.text
    ),
    "capture-end": _captured,
    "ready": _ready,
    "stopping": lambda state, _item, _found: replace(
        state, stage="stopping", percent=None, detail="stopping", stopping=True
    ),
    "server": _warming,
    "batch": _batch,
    "answer": _batch,
}


def _apply(state: State, item: Entry, found: Mark) -> State:
    """State after a line that says something about the start-up."""
    if found.done is not None:
        return _bar(state, found)
    action = _APPLY.get(found.kind)
    return action(state, item, found) if action else state


def _record(state: State, item: Entry) -> State:
    """State after a line with a record of arguments: this boot's, or that of another boot which begins in
    the same log, of which nothing is known yet."""
    if not HEAD.search(item.text):
        return state
    if state.seen_life or state.stopping or state.suspect is not None:
        state = State(position=state.position, _line=state._line, _tail=state._tail, _skip=state._skip)
    elif state.has_record:
        return state
    known = state.incidents
    for record in args.find_in([(item.number, item.text)]):
        known = incidents.with_arguments(known, record.values)
    return replace(state, has_record=True, position=state.position + 1, incidents=known)


def _alive(item: Entry, found: Mark | None) -> bool:
    """Whether the line shows that the server goes on, so that tracebacks before it were harmless."""
    if found is None or found.kind == "stopping":
        return False
    if found.kind == "request":
        return '" 200' in item.message
    return found.kind in WORK or "Uvicorn running on" in item.message


def shows_life(item: Entry) -> bool:
    """Whether a line shows a server at work: it is no part of what precedes a server's record."""
    return _alive(item, mark(item))


def _observe(state: State, item: Entry, found: Mark | None) -> State:
    """State with what the line says about failing. What breaks while it stops is no cause."""
    if state.stopping and state.failure is None:
        return state
    alive = _alive(item, found)
    if not alive or state.incidents.incident or incidents.has_doubts(state.incidents):
        after = incidents.step(state.incidents, item, stage=state.stage, alive=alive)
        if after is not state.incidents:
            state = replace(state, incidents=after)
    return state


def _nothing_new(state: State) -> bool:
    """Whether a batch line tells nothing: most lines of a long log do not."""
    known = state.incidents
    settled = state.stage == "serving" and known.incident is None and not incidents.has_doubts(known)
    return settled and state.seen_life


def step(state: State, item: Entry) -> State:
    """State after one entry of this boot."""
    found = mark(item)
    if found is not None and found.kind == "batch" and _nothing_new(state):
        return state
    failed_before = found is not None and state.failure is not None
    state = _observe(state, item, found)
    if found is None:
        return _record(state, item) if "server_args=" in item.text else state
    before = state
    # A failed start stays in the stage it failed in: what follows is the launcher cleaning up.
    if not failed_before or found.kind == "ready":
        state = _apply(state, item, found)
    moved = (before.stage, before.detail, before.percent) != (state.stage, state.detail, state.percent)
    if moved or found.kind in ("batch", "alive", "init", "load-begin", "load-end", "capture-end"):
        state = replace(state, position=state.position + 1)
    life = found.kind in WORK or found.kind == "server"
    return replace(state, seen_life=True) if life and not state.seen_life else state


def _line(state: State, number: int, text: str) -> State:
    for item in of_line(number, text):
        state = step(state, item)
    return state


def feed(state: State, chunk: str) -> State:
    """State after the next piece of the log. What follows its last line end waits for the next piece,
    except for a progress bar, which counts as it is drawn."""
    text = state._tail + chunk
    number, skip, start = state._line, state._skip, 0
    for end in _END.finditer(text):
        if not skip and end.start() > start:
            state = _line(state, number, text[start : end.start()])
        start, skip = end.end(), False
        number += end.group() == "\n"
    tail = "" if skip else text[start:]
    if len(tail) > MAX_SEGMENT:
        state = _line(state, number, tail)
        tail, skip = "", True
    elif "|" in tail and (item := entry(number, tail)) and is_bar(item):
        # Once more when its line ends, which changes nothing.
        state = step(state, item)
    return replace(state, _line=number, _tail=tail, _skip=skip)


def finish(state: State) -> State:
    """State at the end of the log: the unfinished last line counts, and so does an open traceback."""
    if state._tail:
        state = _line(state, state._line, state._tail)
    return replace(state, incidents=incidents.finish(state.incidents), _tail="")
