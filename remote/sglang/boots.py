"""A whole log, cut into the boots of the servers that wrote it.

One file often holds several boots. A boot begins with what precedes its `server_args=` record (warnings
of changed arguments, errors of the argument parser) and ends where the next one begins. A log without a
record is one boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import Literal

from . import adjustments, incidents, progress
from . import decode as decoding
from .adjustments import Adjusted
from .args import ArgsRecord, find_in
from .incidents import Failure
from .lines import Entry, entries
from .stages import Stage

State = Literal["starting", "ready", "failed", "stopped", "unknown"]

# Lines that only a server that is just starting writes, before its record.
_PREAMBLE = re.compile(
    r"^usage: \S|^\S{1,200}: error: |launch_server\.py:\d+: UserWarning|'sglang serve' is the recommended"
    r"|-m sglang\.launch_server |# requested:|DeepSeek MTP does not require|Fail to set RLIMIT_NOFILE"
    r"|is deprecated and will be removed in a future release\. Use '--"
)
_VERSION = re.compile(
    r"\bsglang(?:==|[ _]version\W{1,3}v?)(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)", re.IGNORECASE
)
_COMMON = ("Decode batch", "Prefill batch", "INFO:     ")
_MAX_PREAMBLE = 2_000
_SAME_BOOT_S = 5.0


@dataclass(frozen=True)
class Boot:
    """One boot, as the log tells it. `started_at`, `ready_at`: as printed, null where no time is.
    `version`: null where the log does not tell. `args`: effective arguments, secrets masked; `opaque` are
    those that are source text. `args_record`: "truncated" means that `args` is not all. `stage`: the last
    one, or the one it failed in. `record`: line of the record. `loads`: weights loaded, target first."""

    started_at: str | None
    version: str | None
    args: dict[str, object]
    opaque: tuple[str, ...]
    args_record: Literal["complete", "truncated", "absent"]
    adjusted: tuple[Adjusted, ...]
    state: State
    ready_at: str | None
    stage: Stage
    failure: Failure | None
    decode: decoding.Summary | None
    first_line: int
    record: int | None
    loads: tuple[progress.Load, ...]


@dataclass
class _Reading:
    """A boot that is being read; the one mutable thing here, since a log can have a million lines."""

    first_line: int
    state: progress.State = field(default_factory=progress.State)
    record: ArgsRecord | None = None
    first_time: str | None = None
    version: str | None = None
    requested: dict[str, object] = field(default_factory=dict)
    notes: list[Adjusted] = field(default_factory=list)
    samples: list[decoding.Sample] = field(default_factory=list)
    idle: dict[str, bool] = field(default_factory=dict)

    @property
    def used(self) -> bool:
        """Whether another record cannot be this boot's."""
        return self.record is not None or self.state.seen_life or self.state.suspect is not None


def _take(boot: _Reading, item: Entry) -> None:
    """Read one entry into a boot."""
    boot.first_time = boot.first_time or item.time
    boot.state = progress.step(boot.state, item)
    message = item.message
    if message.startswith("Decode batch") or "Decode batch" in message:
        new = decoding.sample(item, after_idle=boot.idle.get(item.rank, boot.state.was_ready))
        if new is not None:
            boot.samples.append(new)
            boot.idle[item.rank] = False
        return
    if decoding.starts_from_rest(item):
        boot.idle[item.rank] = True
        return
    boot.notes.extend(adjustments.noted(item))
    if boot.record is None and "--" in message:
        boot.requested.update(adjustments.command_line(message) or {})
    if boot.version is None and (match := _VERSION.search(message[:500])):
        boot.version = match.group(1)


def _is_preamble(item: Entry) -> bool:
    if item.message.startswith(_COMMON):
        return False
    return bool(_PREAMBLE.search(item.message[:500])) or bool(adjustments.noted(item))


def _seconds(stamp: str | None) -> float | None:
    try:
        return datetime.fromisoformat(stamp or "").timestamp()
    except ValueError:
        return None


def _repeats(boot: _Reading, record: ArgsRecord) -> bool:
    """Whether `record` is this boot's own once more: the engine logs it twice (entrypoints/engine.py)."""
    own = boot.record
    if own is None or boot.state.seen_life or boot.state.suspect or own.values != record.values:
        return False
    first, second = _seconds(own.stamp), _seconds(record.stamp)
    if first is None or second is None:
        return own.stamp == record.stamp
    return abs(second - first) <= _SAME_BOOT_S


def _begin(boot: _Reading, record: ArgsRecord) -> None:
    boot.record = record
    known = incidents.with_arguments(boot.state.incidents, record.values)
    boot.state = replace(boot.state, incidents=known, has_record=True)


def _ended(boot: _Reading) -> bool:
    return boot.state.stopping or boot.state.failure is not None


def _attempts(pending: Sequence[Entry]) -> tuple[list[list[Entry]], bool]:
    """Preambles, one per start, and whether the last of them failed: a start that dies at its arguments
    never gets a record."""
    parts: list[list[Entry]] = [[]]
    state = incidents.State()
    for item in pending:
        if incidents.suspected(incidents.finish(state)) and _is_preamble(item):
            parts.append([])
            state = incidents.State()
        parts[-1].append(item)
        state = incidents.step(state, item)
    return parts, incidents.suspected(incidents.finish(state)) is not None


def _settle(boots: list[_Reading], pending: list[Entry], *, own: bool = False) -> _Reading:
    """Read the pending lines: into the last boot, if they turned out to be its `own`, else into a boot for
    each start. Returns the boot that reading goes on with; it is `used` if it failed already."""
    parts, failed = _attempts(pending)
    pending.clear()
    own = own and not failed and len(parts) == 1
    for part in parts:
        if not own:
            boots.append(_Reading(part[0].number))
        for item in part:
            _take(boots[-1], item)
    return boots[-1]


def _unwrapped(lines: Sequence[tuple[int, str]], records: Iterable[ArgsRecord]) -> Iterator[tuple[int, str]]:
    """The lines without those that a record was wrapped into."""
    wrapped = {
        number
        for record in records
        if record.complete
        for number in range(record.line + 1, record.last_line + 1)
    }
    return (line for line in lines if line[0] not in wrapped)


def _read(lines: Sequence[tuple[int, str]]) -> list[_Reading]:
    """The boots in numbered lines. `pending` holds lines that look like the next boot's preamble."""
    records = {record.line: record for record in find_in(lines)}
    boots: list[_Reading] = []
    pending: list[Entry] = []
    for item in entries(_unwrapped(lines, records.values())):
        if not boots:
            boots.append(_Reading(item.number))
        boot = boots[-1]
        record = records.pop(item.number, None) if "server_args=" in item.text else None
        if record is not None and not _repeats(boot, record):
            if pending:
                boot = _settle(boots, pending)
            if boot.used:
                boots.append(_Reading(item.number))
                boot = boots[-1]
            _begin(boot, record)
        elif pending:
            if not progress.shows_life(item) and len(pending) <= _MAX_PREAMBLE:
                pending.append(item)
                continue
            boot = _settle(boots, pending, own=not _ended(boot))
        elif boot.used and _is_preamble(item):
            pending.append(item)
            continue
        _take(boot, item)
    if pending:
        _settle(boots, pending)
    return boots


def _state(state: progress.State, failure: Failure | None) -> State:
    if failure is not None:
        return "failed"
    if state.stopping:
        return "stopped"
    if state.was_ready:
        return "ready"
    started = state.has_record or (state.seen_life and state.stage not in ("starting", "serving"))
    return "starting" if started or state.loads else "unknown"


def _finish(boot: _Reading) -> Boot:
    state = progress.finish(boot.state)
    failure = state.suspect
    record = boot.record
    values = record.values if record else {}
    opaque = record.opaque if record else ()
    # A server that could not bind its port logs the ready line all the same.
    never = failure is not None and failure.stage not in ("serving", "stopping")
    stamp = record.stamp if record else None
    return Boot(
        started_at=stamp or boot.first_time,
        version=boot.version,
        args=values,
        opaque=opaque,
        args_record="absent" if record is None else "complete" if record.complete else "truncated",
        adjusted=adjustments.combine(
            boot.requested,
            # The source text of an object is no value to compare with.
            {name: value for name, value in values.items() if name not in opaque},
            boot.notes,
        ),
        state=_state(state, failure),
        ready_at=None if never else state.ready_at,
        stage=failure.stage if failure else state.stage,  # type: ignore[arg-type]
        failure=failure,
        decode=decoding.summarise(boot.samples),
        first_line=boot.first_line,
        record=record.line if record else None,
        loads=state.loads,
    )


def read_lines(lines: Iterable[tuple[int, str]]) -> list[Boot]:
    """The boots, oldest first, in lines of which each has its 1-based number in the file. Lines that no
    pattern of `patterns` matches may be left out. An empty log has no boot."""
    return [_finish(boot) for boot in _read(list(lines))]


def _plain(value: object) -> object:
    """`value` as JSON can hold it."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(inner) for inner in value), key=str)
    return repr(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def boot_json(boot: Boot) -> dict[str, object]:
    """A boot as the `logs` command shows it with `--json`."""
    failure, summary = boot.failure, boot.decode
    return {
        "started_at": boot.started_at,
        "version": boot.version,
        "args": _plain(boot.args),
        "args_record": boot.args_record,
        "adjusted": [
            {"name": item.name, "requested": _plain(item.requested), "effective": _plain(item.effective)}
            for item in boot.adjusted
        ],
        "state": boot.state,
        "ready_at": boot.ready_at,
        "stage": boot.stage,
        "failure": {"code": failure.code, "cause": failure.cause, "line": failure.line} if failure else None,
        "decode": {
            "samples": summary.samples,
            "accept_len": _rounded(summary.accept_len),
            "gen_tok_s": _rounded(summary.gen_tok_s),
        }
        if summary
        else None,
    }
