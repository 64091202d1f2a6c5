"""Log lines as other programs hand them on: colours, progress bars, prefixes of log shippers.

A *line* is what lies between two newlines and has a 1-based number in its file. A progress bar
rewrites itself with carriage returns, so a line has one or more *segments*; of a line in JSON they are those
of the text in it. An `Entry` is a segment without colours and without the prefix of whoever relayed it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# What is looked at of one segment, and what is taken as a segment at all. A record of arguments is longer
# than some segments, and is read by `records`.
MAX_TEXT = 16_384
MAX_SEGMENT = 65_536

_ANSI = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033)\[[0-9;?]{0,32}[A-Za-z]")
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
# Host, identifier and pid, as syslog and the journal write them.
_SENDER = r"[\w.-]{1,64} [\w./@:-]{1,64}\[\d{1,9}\]: "
# Prefixes of log shippers. The text behind them is SGLang's own, with the blanks that it begins with: they
# tell the lines of a traceback from its exception.
_WRAPPERS = (
    # docker logs -t; with more behind the time Kubernetes CRI, rsyslog and journalctl -o short-iso, and a
    # shipper that writes host and level
    rf"{_ISO}[ \t](?:(?:stdout|stderr) [FP] |{_SENDER}"
    r"|\S{1,64} (?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL) )?",
    # syslog; journalctl -o short-precise
    rf"[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d{{1,6}})? {_SENDER}",
    # journalctl -o short-full
    rf"[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d [\w+:-]{{1,6}} {_SENDER}",
    # journalctl -o short-unix, short-monotonic
    rf"(?:\d{{1,12}}\.\d{{6}}|\[ {{0,8}}\d{{1,9}}\.\d{{6}}\]) {_SENDER}",
    # docker compose
    r"[\w.=-]{1,64} {1,40}\| ?",
    # kubectl logs --prefix
    r"\[pod/[\w./-]{1,200}\] ",
    # Ray
    r"\((?:[\w.:-]{1,64} )?pid=\d{1,9}(?:, ip=[\w.:]{1,64})?\) ?",
    # Python's logging
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3} - [\w.]{1,64} - \w{1,10} - ",
    # torch's excepthook
    r"\[rank\d{1,5}\]: ",
)
_WRAPPER = re.compile("|".join(_WRAPPERS))
# SGLang's own prefix, e.g. "[2026-11-29 16:30:36 DP0 TP0 EP0] " (0.5.9, utils/common.py, configure_logger).
STAMP = re.compile(
    r"\[(?P<stamp>(?:(?:\d{4}-)?\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
    r"(?P<rank>(?: [A-Z][A-Z_]{0,15}\d{1,5}){0,8})(?: [\w.]{1,64}\.py:\d{1,6})?\] ?"
)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)")
# SGLang before 0.5.11 logs "INFO utils.py:452: text" until its own format is configured.
_LEVEL = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]{1,64}\.py:\d{1,6}: ")
_JSON_KEYS = ("log", "message", "msg", "MESSAGE")


@dataclass(frozen=True, slots=True)
class Entry:
    """One segment of a log. `number`: line in the file, 1-based. `message`: without colours, wrappers and
    SGLang's own prefix; `text`: with that prefix. `stamp`: SGLang's time as printed; None in a line that it
    wrote without its prefix, as all lines of a traceback but the first are. `rank`: as printed, e.g.
    "DP0 TP0", or "". `outer`: time of the wrapper, None if it tells none; every line of a log has one."""

    number: int
    text: str
    message: str
    stamp: str | None
    rank: str
    outer: str | None = None

    @property
    def time(self) -> str | None:
        """When it was written, as printed; None where no time is."""
        return self.stamp or self.outer


def strip_ansi(text: str) -> str:
    """`text` without colour codes, given as real escape characters or spelled out by a JSON shipper."""
    if "\x1b" in text or "\\u001b" in text or "\\x1b" in text or "\\033" in text:
        return _ANSI.sub("", text)
    return text


def _unjson(text: str) -> str | None:
    """The log text within a JSON line such as Docker's `{"log": "..."}`; None if it is no such line."""
    if not text.startswith('{"') or not text.endswith("}"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    for key in _JSON_KEYS:
        inner = value.get(key)
        if isinstance(inner, str):
            return inner.rstrip("\r\n")
    return None


def unwrap(segment: str) -> tuple[str, bool, str | None]:
    """(text, was wrapped, time of the wrapper) of a segment relayed by up to three log shippers."""
    text, wrapped, stamp = strip_ansi(segment), False, None
    for _ in range(3):
        match = _WRAPPER.match(text)
        if not match:
            break
        wrapped = True
        time = _RFC3339.search(match.group())
        stamp = f"{time.group(1)} {time.group(2)}" if time else stamp
        text = text[match.end() :]
    return text, wrapped, stamp


def entry(number: int, segment: str) -> Entry:
    """The `Entry` of one segment. Only its first `MAX_SEGMENT` characters are looked at."""
    text, _, outer = unwrap(segment[:MAX_SEGMENT])
    text = text[:MAX_TEXT]
    # Within the head only: a time in brackets further on belongs to what is being logged.
    match = STAMP.search(text, 0, 400)
    if match is None:
        return Entry(number, text, text, None, "", outer)
    message = text[match.end() :]
    level = _LEVEL.match(message)
    if level:
        message = message[level.end() :]
    return Entry(number, text, message, match.group("stamp"), match.group("rank").strip(), outer)


def numbered(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """(line number, line) of `text`, split at newlines only: other separators are part of a line."""
    start, number = 0, first_line
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield number, text[start:end]
        start, number = end + 1, number + 1


def segments(line: str) -> list[str]:
    """The segments of a line: what a progress bar wrote between carriage returns, empty ones left out.
    The line's own newline may still be there."""
    line = line.rstrip("\r\n")
    line = line if (inner := _unjson(line)) is None else inner
    if "\r" not in line:
        return [line]
    return [part for part in line.split("\r") if part] or [""]


def of_line(number: int, line: str) -> Iterator[Entry]:
    """The entries of one line, in order."""
    for segment in segments(line):
        yield entry(number, segment)


def entries(lines: Iterable[tuple[int, str]]) -> Iterator[Entry]:
    """The entries of numbered lines, in order."""
    for number, line in lines:
        yield from of_line(number, line)
