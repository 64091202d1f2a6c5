"""Which pieces of a log match: found as offsets in one pass, made into lines and text at the end.

A log of weeks has millions of decode lines and few other ones. So a hit costs an integer until it is known
to be wanted, and of each boot only the first and the last hits of a pattern are wanted. What fills the
frequent lines is cut out before the many patterns that cannot match there look for theirs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque

from .base import OpError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, BinaryIO

    from .base import Context

# Of one piece: 0.5.23's record of arguments has 19 kB with short paths (seen on a running one).
TEXT_LIMIT = 64 * 1024
# A server that crashes at start and is started again writes a boot every minute: only the newest matter.
MAX_BOOTS = 100
# Of frequent lines, over all boots: beyond it, of every boot each n-th.
MAX_FREQUENT = 12_000
LINE_FEED = re.compile(rb"\n")


class _Hits:
    """A boot's hits of one pattern: offsets of the first half of `limit`, and of the last `limit`."""

    def __init__(self, limit: int) -> None:
        self.first: list[int] = []
        self.last: deque[int] = deque(maxlen=limit)
        self.room = max(1, limit // 2)
        self.seen = 0

    def add(self, hits: list[int]) -> None:
        self.seen += len(hits)
        if self.room > 0:
            taken, hits = hits[: self.room], hits[self.room :]
            self.first += taken
            self.room -= len(taken)
        self.last.extend(hits)

    def kept(self, step: int) -> list[int]:
        return [*self.first, *self.last][::step]


class Matches:
    """Collects over a log that is given block by block, boot by boot."""

    def __init__(self, wanted: dict[str, Any], limit: int) -> None:
        """`wanted`: see `logs.log`. OpError "precondition" for what is no regular expression."""
        frequent = wanted.get("frequent") or {}
        follow = wanted.get("follow") or {}
        self.sources = [source.encode() for source in wanted.get("patterns") or ()]
        self.everywhere = frozenset(frequent.get("patterns", ()))
        self.follow, self.follow_lines = follow.get("pattern"), int(follow.get("lines") or 0)
        try:
            # A second hit in the same piece is no second match. `.*` is five times faster than `[^\r\n]*`.
            self.by_line = [_compiled(source, b".*") for source in self.sources]
            self.by_piece: list[re.Pattern[bytes]] = []
            self.cuts = [re.compile(cut.encode(), re.MULTILINE) for cut in frequent.get("cut", ())]
            self.closed = re.compile(str(follow.get("unless") or "").encode())
        except (re.error, ValueError) as error:
            raise OpError("precondition", f"not a regular expression: {error}") from None
        self.limit = limit
        self.boots: deque[list[_Hits]] = deque(maxlen=MAX_BOOTS)
        self.begun = 0
        self.seen = [0] * len(self.sources)
        self.blocks: list[tuple[int, int, int | None]] = []
        self.begin_boot()

    def begin_boot(self) -> None:
        """What is looked at from now on belongs to a new boot."""
        self.begun += 1
        self.boots.append([_Hits(self.limit) for _ in self.sources])

    def look_at(self, block: bytes, offset: int, line: int | None) -> None:
        """`block` holds whole lines; it begins at `offset`, with the line number `line`."""
        self.blocks.append((offset, len(block), line))
        rare, compiled = block, self.by_line
        if b"\r" in block:  # progress bars: several pieces in a line
            compiled = self._by_piece()
        else:
            for cut in self.cuts:
                rare = cut.sub(b"", rare)
        for number, (pattern, kept) in enumerate(zip(compiled, self.boots[-1])):
            everywhere = number in self.everywhere
            hits = [hit.start() for hit in pattern.finditer(block if everywhere else rare)]
            if hits:
                if not everywhere and len(rare) < len(block):
                    hits = _origins(hits, rare, block)
                self.seen[number] += len(hits)
                kept.add([offset + hit for hit in hits])

    def _by_piece(self) -> list[re.Pattern[bytes]]:
        self.by_piece = self.by_piece or [_compiled(source, rb"[^\r\n]*") for source in self.sources]
        return self.by_piece

    def result(self, file: BinaryIO, ctx: Context) -> dict[str, Any]:
        """{matches: [{line, offset, text, patterns: [index]}], dropped: [number left out, per pattern],
        older_boots: number of boots whose matches were left out}."""
        frequent = sum(len(boot[number].kept(1)) for boot in self.boots for number in self.everywhere)
        step = max(1, -(-frequent // MAX_FREQUENT))
        hits: dict[int, list[int]] = {}
        for boot in self.boots:
            for number, kept in enumerate(boot):
                for offset in kept.kept(step if number in self.everywhere else 1):
                    hits.setdefault(offset, []).append(number)
        pieces: dict[int, dict[str, Any]] = {}
        given = [0] * len(self.sources)
        for start, line, text, numbers in self._pieces(file, hits, ctx):
            match = pieces.setdefault(start, {"line": line, "offset": start, "text": text, "patterns": []})
            for number in numbers:
                given[number] += 1
                if number not in match["patterns"]:
                    match["patterns"].append(number)
        for match in [each for each in pieces.values() if self.follow in each["patterns"]]:
            for more in self._following(file, match):
                pieces.setdefault(more["offset"], more)
        return {
            "matches": [pieces[start] for start in sorted(pieces)],
            "dropped": [seen - kept for seen, kept in zip(self.seen, given)],
            # Of those that were left out the first is what precedes the first boot.
            "older_boots": max(0, self.begun - len(self.boots) - 1),
        }

    def _pieces(
        self, file: BinaryIO, hits: dict[int, list[int]], ctx: Context
    ) -> Iterable[tuple[int, int | None, str, list[int]]]:
        """(offset, line, text, patterns) of the piece around each hit: the blocks are read once more."""
        begins = [begin for begin, _, _ in self.blocks]
        block, at, line, counted = b"", -1, None, 0
        for hit in sorted(hits):
            here = bisect_right(begins, hit) - 1
            if here != at:
                ctx.check()
                at, (begin, size, line), counted = here, self.blocks[here], 0
                file.seek(begin)
                block = file.read(size)
            if hit - begins[at] > len(block):
                continue  # somebody made the file shorter
            start, end = piece(block, hit - begins[at])
            if line is not None:
                line += block.count(b"\n", counted, start)
                counted = start
            yield begins[at] + start, line, text_of(block[start:end]), hits[hit]

    def _following(self, file: BinaryIO, match: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The lines behind a piece that is not closed: a record that was wrapped goes on there."""
        if self.closed.search(match["text"].encode()):
            return
        file.seek(match["offset"])
        first, *lines = file.read(4 * TEXT_LIMIT).split(b"\n")[: self.follow_lines + 1]
        offset, line = match["offset"] + len(first) + 1, match["line"]
        for text in lines:
            line = None if line is None else line + 1
            yield {"line": line, "offset": offset, "text": text_of(text), "patterns": []}
            offset += len(text) + 1


def _compiled(source: bytes, rest: bytes) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + source + b")" + rest, re.MULTILINE)


def _origins(hits: list[int], rare: bytes, block: bytes) -> list[int]:
    """Where hits in `rare` lie in `block`, of which only ends of lines were cut off."""
    starts = [0, *(found.end() for found in LINE_FEED.finditer(block))]
    found, line, counted = [], 0, 0
    for hit in hits:
        begin = rare.rfind(b"\n", 0, hit) + 1
        line += rare.count(b"\n", counted, begin)
        counted = begin
        found.append(starts[line] + hit - begin)
    return found


def piece(block: bytes, at: int) -> tuple[int, int]:
    """Where the piece between line feeds and carriage returns around `at` begins and ends."""
    start = max(block.rfind(b"\n", 0, at), block.rfind(b"\r", 0, at)) + 1
    ends = [found for found in (block.find(b"\n", at), block.find(b"\r", at)) if found >= 0]
    return start, min(ends, default=len(block))


def text_of(part: bytes, limit: int = TEXT_LIMIT) -> str:
    return part[:limit].decode("utf-8", "replace")
