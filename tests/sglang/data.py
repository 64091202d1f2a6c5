"""Where the inputs of these tests are.

`cases/`: reports from the public, made neutral; `captures/`: outputs of real servers 0.5.9 and 0.5.23 on a
CPU, shortened. Both are read as bytes would be: newlines as they are, UTF-8 with replacement.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remote.sglang import decode, progress
from remote.sglang.boots import Boot, read_log
from remote.sglang.lines import entries, numbered

HERE = Path(__file__).parent


def case(number: str) -> str:
    """The input of a case, by its three digits."""
    (path,) = (HERE / "cases").glob(f"{number}-*.txt")
    return path.read_bytes().decode("utf-8", "replace")


def capture(name: str) -> str:
    """A captured log or output."""
    return (HERE / "captures" / name).read_bytes().decode("utf-8", "replace")


def reply(name: str) -> Any:
    """A captured JSON reply."""
    return json.loads(capture(name))


def logs() -> list[str]:
    """The names of the captured logs."""
    return sorted(path.name for path in (HERE / "captures").glob("*.log"))


def line_of(text: str, part: str) -> int:
    """The 1-based number of the first line that contains `part`."""
    return next(number for number, line in enumerate(text.split("\n"), 1) if part in line)


def boot(number: str) -> Boot:
    """The one boot that a case's log holds."""
    (found,) = read_log(case(number))
    return found


def follow(text: str) -> progress.State:
    """The progress at the end of a log."""
    return progress.finish(progress.feed(progress.State(), text))


def samples(text: str) -> list[decode.Sample]:
    """The decode samples of a log."""
    return decode.read(entries(numbered(text)))
