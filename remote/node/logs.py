"""A server's log: its boots, the lines that match, its end. Of any size, in bounded memory.

Everything is counted in bytes from the start of the file and in lines that end with a line feed, 1-based, as
`grep -nb` does. A progress bar overwrites its line with carriage returns; what matches is the piece
between two of them.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH123

from __future__ import annotations

import os
import re
import stat as stat_bits

from .base import OpError
from .fsio import absolute, op_error
from .matches import TEXT_LIMIT, Matches, piece, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from .base import Context

BLOCK = 1 << 20
# One of these is printed per boot: `server_args=ServerArgs(...)`, from about 0.5.20 `server_args={...}`. A
# traceback may show `f(server_args=server_args)`, which is none.
BOOT_MARK = b"server_args="
BOOT = re.compile(rb"server_args=\s*(?:ServerArgs\(|\{)")
HEAD_LIMIT = 200
DEFAULT_MATCHES = 1000


def line_start(file: BinaryIO, offset: int) -> int:
    """Where the line that `offset` lies in begins; not further back than a block."""
    begin = max(0, offset - BLOCK)
    file.seek(begin)
    return begin + file.read(offset - begin).rfind(b"\n") + 1


def last_boot(file: BinaryIO, size: int, ctx: Context) -> int | None:
    """The offset of the last boot record's mark, searched from the end."""
    end = size
    while end > 0:
        ctx.check()
        begin = max(0, end - BLOCK)
        file.seek(begin)
        block = file.read(end - begin + len(BOOT_MARK) + TEXT_LIMIT)
        at = block.rfind(BOOT_MARK, 0, end - begin + len(BOOT_MARK) - 1)
        while at >= 0:
            if BOOT.match(block, at):
                return begin + at
            at = block.rfind(BOOT_MARK, 0, at)
        end = begin
    return None


def blocks(file: BinaryIO, start: int, end: int, ctx: Context) -> Iterator[tuple[int, bytes]]:
    """(offset, whole lines) of a part of the file; a line longer than a block comes in pieces."""
    rest = b""
    offset = start
    file.seek(start)
    while offset + len(rest) < end:
        ctx.check()
        data = file.read(min(BLOCK, end - offset - len(rest)))
        if not data:
            break  # somebody made the file shorter
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(rest) + len(data) < 2 * BLOCK:
            rest += data
            continue
        cut = cut or len(data)
        yield offset, rest + data[:cut]
        offset += len(rest) + cut
        rest = data[cut:]
    if rest:
        yield offset, rest


class _Scan:
    """One pass over the file: counts lines, finds boots, matches within the chosen region."""

    def __init__(self, matches: Matches, count_lines: bool) -> None:
        self.matches = matches
        self.line: int | None = 1 if count_lines else None
        self.boots: list[dict[str, Any]] = []

    def over(self, file: BinaryIO, start: int, end: int, ctx: Context, *, match: bool) -> None:
        for offset, block in blocks(file, start, end, ctx):
            done = 0
            for at in _marks(block):
                begin, stop = piece(block, at)
                head = text_of(block[begin:stop], HEAD_LIMIT)
                self.boots.append(
                    {"offset": offset + begin, "line": self._line(block, begin), "text_head": head}
                )
                if match:
                    if begin > done:
                        self.matches.look_at(block[done:begin], offset + done, self._line(block, done))
                    self.matches.begin_boot()
                    done = begin
            if match:
                self.matches.look_at(block[done:] if done else block, offset + done, self._line(block, done))
            if self.line is not None:
                self.line += block.count(b"\n")

    def _line(self, block: bytes, at: int) -> int | None:
        return None if self.line is None else self.line + block.count(b"\n", 0, at)


def _marks(block: bytes) -> Iterator[int]:
    at = block.find(BOOT_MARK)
    while at >= 0:
        if BOOT.match(block, at):
            yield at
        at = block.find(BOOT_MARK, at + 1)


def log(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """What a log tells about a boot.

    {path, patterns: [regex], tail_bytes, head_lines, max_matches, count_lines,
     boot: "last"|"all"|{"offset": N},
     frequent: {cut: [regex], patterns: [index]}: ends of lines that only these patterns look at,
     follow: {pattern: index, unless: regex, lines: N}: a match of it that `unless` does not match comes
         with the N lines behind it}
    -> {path, real_path, exists, size, mtime, inode,
        boots: [{offset, line, text_head}] (with count_lines false: those of the part that was read),
        region: {offset, end}: the part that was searched, from the chosen boot's record to the end,
        before: {offset, text}: up to 16 kB before it, where the warnings about arguments stand,
        head: {offset, line, text}: its first `head_lines` lines,
        matches: [{line, offset, text (at most 64 kB), patterns: [index]}], of the newest 100 boots,
        older_boots: number of boots before these, whose matches are left out,
        dropped: [left out, per pattern]: of a boot the first `max_matches` / 2 and the last `max_matches`
            are kept, of frequent lines fewer if there are very many boots with very many,
        tail: {offset, line, text}: whole lines of the last `tail_bytes` bytes}
    `line` is 1-based, null with count_lines false; then only the chosen boot and the end are read.
    """
    path = absolute(params["path"])
    matches = Matches(params, int(params.get("max_matches") or DEFAULT_MATCHES))
    count_lines = params.get("count_lines", True)
    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat_bits.S_ISREG(info.st_mode):
                raise OpError("unsupported", f"{path}: not a regular file", path=path)
            size = info.st_size
            facts = {
                "path": path,
                "real_path": os.path.realpath(path),
                "exists": True,
                "size": size,
                "mtime": info.st_mtime,
                "inode": info.st_ino,
            }
            start, before = _region(file, params.get("boot") or "last", size, ctx)
            scan = _Scan(matches, count_lines)
            if count_lines:
                scan.over(file, 0, start, ctx, match=False)
            first_line = scan.line
            scan.over(file, start, size, ctx, match=True)
            return {
                **facts,
                "boots": scan.boots,
                "region": {"offset": start, "end": size},
                "before": before,
                "head": _head(file, start, size, int(params.get("head_lines") or 0), first_line),
                **matches.result(file, ctx),
                "tail": _tail(file, size, int(params.get("tail_bytes") or 0), scan.line),
            }
    except FileNotFoundError:
        absent = {"path": path, "real_path": os.path.realpath(path), "exists": False}
        nothing = dict.fromkeys(("size", "mtime", "inode", "region", "before", "head", "tail"))
        return {**absent, **nothing, "boots": [], "matches": [], "dropped": matches.seen, "older_boots": 0}
    except OSError as error:
        raise op_error(error, path) from None


def _region(file: BinaryIO, boot: Any, size: int, ctx: Context) -> tuple[int, dict[str, Any]]:
    """(where the chosen part begins, what stands before it)."""
    if boot == "all":
        return 0, {"offset": 0, "text": ""}
    if isinstance(boot, dict):
        start = min(int(boot["offset"]), size)
    else:
        found = last_boot(file, size, ctx)
        start = 0 if found is None else line_start(file, found)
    begin = max(0, start - TEXT_LIMIT)
    file.seek(begin)
    return start, {"offset": begin, "text": text_of(file.read(start - begin))}


def _head(file: BinaryIO, start: int, size: int, lines: int, first_line: int | None) -> dict[str, Any]:
    file.seek(start)
    text = file.read(min(size - start, BLOCK)) if lines else b""
    return {
        "offset": start,
        "line": first_line,
        "text": text_of(b"\n".join(text.split(b"\n", lines)[:lines]), BLOCK),
    }


def _tail(file: BinaryIO, size: int, tail_bytes: int, line_after: int | None) -> dict[str, Any]:
    begin = max(0, size - tail_bytes)
    file.seek(begin)
    text = file.read(size - begin)
    if begin > 0 and b"\n" in text:  # not in the middle of a line
        cut = text.find(b"\n") + 1
        begin, text = begin + cut, text[cut:]
    line = None if line_after is None else line_after - text.count(b"\n")
    return {"offset": begin, "line": line, "text": text.decode("utf-8", "replace")}


OPS = {"log": log, "facts.log": log}
