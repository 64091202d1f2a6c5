"""Follow a growing log: in pieces that never break a character, across truncation and a new boot's file."""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH110, PTH116, PTH123

from __future__ import annotations

import codecs
import os

from .fsio import absolute, op_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

PIECE = 64 * 1024
FIRST_NAP_S = 0.01


class Follower:
    """One log, read from an offset on; the file is opened when it is there."""

    def __init__(self, path: str, offset: int) -> None:
        """`offset`: the first byte to read."""
        self.path = path
        self.offset = offset
        self._handle: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def piece(self) -> dict[str, Any] | None:
        """The next event, None when there is nothing new. OpError when the file may not be read.

        {"log": text of at most 64 kB, "offset": of the first byte after it}, or {"log": "", "offset": 0,
        "restarted": "truncated"|"replaced"} when it was made shorter or another file has its name.
        """
        if self._handle is None:
            try:
                self._handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise op_error(error, self.path) from None
        data = os.pread(self._handle, PIECE, self.offset)
        if not data:
            return self._restarted(self._handle)
        text = self._decoder.decode(data)
        self.offset += len(data)
        return {"log": text, "offset": self.offset - len(self._decoder.getstate()[0])}

    def _restarted(self, handle: int) -> dict[str, Any] | None:
        """At the end of the file: is it still the file of that name, and as long as it was?"""
        mine = os.fstat(handle)
        try:
            named = os.stat(self.path)
        except OSError:
            return None
        if (named.st_dev, named.st_ino) != (mine.st_dev, mine.st_ino):
            why = "replaced"
        elif mine.st_size < self.offset:
            why = "truncated"
        else:
            return None
        self.close()
        self.offset = 0
        return {"log": "", "offset": 0, "restarted": why}

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._decoder.reset()


def last_lines(path: str, lines: int) -> int:
    """The offset where the last `lines` lines of a file begin; 0 if there is no file. OpError."""
    try:
        with open(path, "rb") as file:
            position = file.seek(0, os.SEEK_END)
            wanted = lines
            if position:
                file.seek(position - 1)
                wanted += file.read(1) == b"\n"
            while position and wanted > 0:
                begin = max(0, position - PIECE)
                file.seek(begin)
                block = file.read(position - begin)
                end = len(block)
                while wanted > 0:
                    end = block.rfind(b"\n", 0, end)
                    if end < 0:
                        break
                    wanted -= 1
                if wanted <= 0:
                    return begin + end + 1
                position = begin
            return position
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise op_error(error, path) from None


def tail(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """{path, from_offset|null, lines, follow} -> events of Follower.piece(); {offset, exists} at the end.

    Without `from_offset` it begins with the last `lines` (10) lines. With `follow` it goes on until it is
    cancelled or its deadline is there, and waits for a file that is not there yet.
    """
    path = absolute(params["path"])
    start = params.get("from_offset")
    if start is None:
        lines = params.get("lines")
        start = last_lines(path, 10 if lines is None else int(lines))
    follower = Follower(path, int(start))
    try:
        nap_s = FIRST_NAP_S
        while True:
            event = follower.piece()
            if event is not None:
                ctx.event(event)
                nap_s = FIRST_NAP_S
            elif not params.get("follow"):
                break
            else:
                ctx.wait(nap_s)
                nap_s = min(2 * nap_s, 0.5)
            if ctx.cancelled() or ctx.remaining_s() <= 0:
                break
        return {"offset": follower.offset, "exists": os.path.exists(path)}
    finally:
        follower.close()


OPS = {"tail": tail}
