"""Where the inputs of these tests are.

`cases/`: reports from the public, made neutral; `captures/`: outputs of real servers 0.5.9 and 0.5.23 on a
CPU, shortened. Both are read as bytes would be: newlines as they are, UTF-8 with replacement.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remote.sglang import accept, decode, progress
from remote.sglang.args import ArgsRecord, find_in
from remote.sglang.boots import Boot, read_lines
from remote.sglang.lines import entries, numbered

HERE = Path(__file__).parent
_TIME = "2026-11-29T16:30:36.123456789Z"
_SENDER = "gpu-node-1 sglang[4711]: "
# What programs that hand a log on write before each of its lines.
PREFIXES = {
    "docker logs -t": f"{_TIME} ",
    "docker compose": "sglang-1  | ",
    "docker compose -t": f"sglang-1  | {_TIME} ",
    "Kubernetes CRI": f"{_TIME} stderr F ",
    "kubectl logs --prefix": "[pod/sglang-0/server] ",
    "kubectl logs --prefix --timestamps": f"[pod/sglang-0/server] {_TIME} ",
    "syslog": f"Nov  9 16:30:36 {_SENDER}",
    "rsyslog": f"2026-11-29T16:30:36.123456+01:00 {_SENDER}",
    "journalctl -o short-precise": f"Nov 29 16:30:36.123456 {_SENDER}",
    "journalctl -o short-full": f"Sun 2026-11-29 16:30:36 CET {_SENDER}",
    "journalctl -o short-iso": f"2026-11-29T16:30:36+0100 {_SENDER}",
    "journalctl -o short-unix": f"1764430236.123456 {_SENDER}",
    "journalctl -o short-monotonic": f"[  236.123456] {_SENDER}",
    "torch": "[rank0]: ",
}


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


# Docker and Kubernetes cut longer lines, in bytes.
_CUT = 16_384
RELAYS = (*PREFIXES, "docker json-file")


def handed_on(text: str, by: str) -> str:
    """A log, whose last line ends, as a program of `RELAYS` hands it on."""
    cuts = by in ("docker json-file", "Kubernetes CRI")
    return "".join(
        _relayed(line[at : at + _CUT] if cuts else line, by, whole=not cuts or at + _CUT >= len(line)) + "\n"
        for line in text.split("\n")[:-1]
        for at in (range(0, len(line), _CUT) if cuts and line else [0])
    )


def _relayed(piece: str, by: str, *, whole: bool) -> str:
    if by != "docker json-file":
        return PREFIXES[by].replace(" F ", " F " if whole else " P ") + piece
    text = json.dumps({"log": piece + "\n" * whole, "stream": "stderr", "time": _TIME}, ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def line_of(text: str, part: str) -> int:
    """The 1-based number of the first line that contains `part`."""
    return next(number for number, line in enumerate(text.split("\n"), 1) if part in line)


def read_log(text: str, first_line: int = 1) -> list[Boot]:
    """The boots in the text of a log, whose first line has the number `first_line`."""
    return read_lines(numbered(text, first_line))


def boot(number: str) -> Boot:
    """The one boot that a case's log holds."""
    (found,) = read_log(case(number))
    return found


def defined_rate(version: str, accept_len: float, num_draft_tokens: int) -> float | None:
    """The accept rate that a version logs for this accept length, by the definition that we name for it."""
    definition = accept.definition(version, accept.LOGGED)
    assert definition is not None
    if definition.formula == accept.OUR_RATE:
        return accept.accept_rate(accept_len, num_draft_tokens)
    assert definition.formula == "accept_len / num_draft_tokens"
    return accept_len / num_draft_tokens


def follow(text: str) -> progress.State:
    """The progress at the end of a log."""
    return progress.finish(progress.feed(progress.State(), text))


def records(text: str) -> list[ArgsRecord]:
    """The records of arguments in the text of a log."""
    return list(find_in(numbered(text)))


def samples(text: str) -> list[decode.Sample]:
    """The decode samples of a log."""
    return decode.read(entries(numbered(text)))
