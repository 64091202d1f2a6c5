"""Where a `server_args=` record begins and ends, and its items as source text.

Two forms: `ServerArgs(k=v, ...)` up to 0.5.19 and `{'k': v, ...}` from 0.5.20 (entrypoints/engine.py).
A record may be wrapped over several lines by a terminal or a log shipper, cut, and repeated.
Values are Python reprs, also of objects, so brackets and quotes are matched, nothing is evaluated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from .lines import STAMP, segments, unwrap

HEAD = re.compile(r"server_args=(?=ServerArgs\(|\{)")
# A record of 0.5.23 has 19 kB. Beyond this it is no record, or a quote was never closed.
MAX_RECORD = 262_144
_MAX_LINES = 4_000

_TOKEN = re.compile(r"['\"()\[\]{}]")
_IN_QUOTE = {"'": re.compile(r"\\|'"), '"': re.compile(r'\\|"')}
# Lines that can be no continuation of a record: it was cut before them.
_OTHER = re.compile(
    r"Traceback \(most recent|INFO:     |ERROR:    |WARNING:  |  File \"|Loading \w+ checkpoint"
    r"|Multi-thread loading|\S{1,300}:\d{1,6}: \w{0,40}Warning: "
)
_ITEM = re.compile(r"<[^<>'\"]{0,2000}>|['\"()\[\]{},]")


@dataclass(frozen=True)
class Source:
    """A record as found. `body`: the source text between the outer brackets, joined over its lines."""

    form: Literal["repr", "dict"]
    body: str
    complete: bool
    line: int
    last_line: int
    stamp: str | None


@dataclass(frozen=True)
class _Open:
    """A record whose end has not been met. `parts` is shared and only ever appended to."""

    source: Source
    wrapped: bool
    last_line: int
    depth: int = 0
    quote: str = ""
    escaped: bool = False
    size: int = 0
    parts: list[str] = field(default_factory=list)


def _advance(state: _Open, text: str) -> tuple[_Open, int]:
    """(state after `text`, index behind the closing bracket or -1): each character is looked at once."""
    depth, quote = state.depth, state.quote
    position = 1 if state.escaped and text else 0
    escaped = state.escaped and not text
    end = -1
    while True:
        match = (_IN_QUOTE[quote] if quote else _TOKEN).search(text, position)
        if match is None:
            break
        position, found = match.end(), match.group()
        if found == "\\":
            if position >= len(text):
                escaped = True
                break
            position += 1
        elif quote:
            quote = ""
        elif found in "'\"":
            quote = found
        elif found in "([{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                end = position
                break
    return replace(state, depth=depth, quote=quote, escaped=escaped, size=state.size + len(text)), end


def _close(state: _Open, *, complete: bool, last_line: int) -> Source:
    joined = "".join(state.parts)
    opening = len("ServerArgs(") if state.source.form == "repr" else 1
    body = joined[opening:-1] if complete else joined[opening:]
    return replace(state.source, body=body, complete=complete, last_line=last_line)


def _start(number: int, text: str, wrapped: bool, stamp: str | None) -> tuple[_Open, str] | None:
    """A record that begins within `text`, and its text from the opening bracket's name on."""
    match = HEAD.search(text)
    if match is None:
        return None
    own = STAMP.search(text, 0, min(match.start(), 400))
    form: Literal["repr", "dict"] = "dict" if text.startswith("{", match.end()) else "repr"
    source = Source(form, "", False, number, number, own.group("stamp") if own else stamp)
    return _Open(source, wrapped, number), text[match.end() :]


def _take(state: _Open, text: str, number: int) -> tuple[_Open | None, Source | None, str]:
    """(the record if still open, the record if closed, the text behind it) after one more piece. A record
    that grows too long is closed as cut, and the rest of its line is no business of ours."""
    piece = text[: MAX_RECORD + 1]
    after, end = _advance(state, piece)
    if end >= 0:
        after.parts.append(text[:end])
        return None, _close(after, complete=True, last_line=number), text[end:]
    after.parts.append(piece)
    if after.size > MAX_RECORD or number - after.source.line > _MAX_LINES:
        return None, _close(after, complete=False, last_line=number), ""
    return replace(after, last_line=number), None, ""


def _cut(state: _Open, segment: str, text: str, gap: bool) -> bool:
    """Whether a segment cannot continue the open record, so that the record was cut before it."""
    continuation = text if state.wrapped else segment
    return gap or "server_args=" in segment or bool(STAMP.match(text) or _OTHER.match(continuation))


def _segment(
    state: _Open | None, number: int, segment: str, *, gap: bool
) -> tuple[_Open | None, list[Source]]:
    """(the record that is open behind a segment, the records that it closed)."""
    found: list[Source] = []
    if state is None and "server_args=" not in segment:
        return None, found
    text, wrapped, stamp = unwrap(segment)
    closed: Source | None
    if state is not None and _cut(state, segment, text, gap):
        found.append(_close(state, complete=False, last_line=state.last_line))
        state = None
    if state is not None:
        state, closed, text = _take(state, text if state.wrapped else segment, number)
        found += [closed] if closed else []
    while state is None and (begun := _start(number, text, wrapped, stamp)):
        state, closed, text = _take(*begun, number)
        found += [closed] if closed else []
    return state, found


def scan(lines: Iterable[tuple[int, str]]) -> Iterator[Source]:
    """The records in numbered lines, in order. Lines may be missing: a gap ends an open record."""
    state: _Open | None = None
    for number, line in lines:
        if state is None and "server_args=" not in line:
            continue
        for segment in segments(line):
            gap = state is not None and number > state.last_line + 1
            state, closed = _segment(state, number, segment, gap=gap)
            yield from closed
    if state is not None:
        yield _close(state, complete=False, last_line=state.last_line)


def items(source: Source, *, cut: bool = False) -> Iterator[tuple[str, str]]:
    """(key, source text of the value) of each item that is certainly whole: the last item of a cut
    record is left out, since nobody knows what was cut. With `cut` it is given as far as it goes."""
    depth, start, position = 0, 0, 0
    body = source.body
    quote = ""
    while True:
        match = (_IN_QUOTE[quote] if quote else _ITEM).search(body, position)
        if match is None:
            break
        position, found = match.end(), match.group()
        if quote:
            position += found == "\\"
            quote = quote if found == "\\" else ""
        elif found in "'\"":
            quote = found
        elif found == ",":
            if depth == 0:
                yield from _item(source, body[start : match.start()])
                start = position
        elif len(found) == 1:
            depth += 1 if found in "([{" else -1
    if source.complete or cut:
        yield from _item(source, body[start:])


_KEY = {
    "repr": re.compile(r"\s*([A-Za-z_]\w*)=(.*)", re.DOTALL),
    "dict": re.compile(r"""\s*['"]([A-Za-z_]\w*)['"]:(.*)""", re.DOTALL),
}


def _item(source: Source, text: str) -> Iterator[tuple[str, str]]:
    match = _KEY[source.form].match(text)
    if match:
        yield match.group(1), match.group(2).strip()
