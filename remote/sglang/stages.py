"""Which line of SGLang's start-up begins which stage.

Order seen in the logs of 0.5.9: target loaded, its graphs captured, draft loaded, its graphs captured,
warm-up. In 0.5.23 both are loaded before anything is captured. Two loads, so 100 % of the shards is not
the end of loading; silence of 22 minutes within a capture is normal (sglang issue 4233).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .lines import Entry

Stage = Literal[
    "starting", "loading-target", "loading-draft", "graph-capture", "warmup", "serving", "stopping"
]

READY_TEXT = "The server is fired up and ready to roll!"
# The whole message, also behind the prefix of an unknown relay; not somewhere within a logged prompt.
_READY = re.compile(re.escape(READY_TEXT) + r"[\"'}\s]{0,8}$")

_BAR = re.compile(
    r"(?:(?P<desc>[A-Za-z][^|%]{0,160}?):\s{0,8})?(?P<percent>\d{1,3})%[^|]{0,24}\|[^|]{0,200}?(?:\|\s{0,4})?"
    r"(?P<done>\d{1,7})/(?P<total>\d{1,7}) \["
)
# The head of a bar may be lost: cut within a character, or by the size of a read.
_BAR_TAIL = re.compile(r"\|\s{0,4}(?P<done>\d{1,7})/(?P<total>\d{1,7}) \[\d\d:\d\d")
_SHARDS = re.compile(r"loading .{0,40}shards", re.IGNORECASE)
_CAPTURE = re.compile(
    r"Capture (?P<what>[\w ]{0,40}?)(?i:cuda|cpu|npu|xpu|musa|hip|\w{1,20}) graph (?P<end>begin|end)\b"
)
_SIZES = re.compile(r"Capture \w{1,20} graph bs ")
_LOAD_END = re.compile(r"Load weight end\..{0,80}?type=(?P<type>\w{1,200})")
_STOPPING = re.compile(
    r"SIGTERM received\.|Gracefully exiting|Signal SIGTERM received|\^C"
    r"|INFO:     (?:Shutting down|Finished server|Waiting for application shutdown|Application shutdown)"
)
_SERVER = re.compile(
    r"INFO:     (?:Started server process|Waiting for application startup|Application startup|Uvicorn run)"
)
_REQUEST = re.compile(r'" [1-5]\d\d ')


# Kinds of `Mark` that only a server at work logs; a bar of unknown name may be a download before it.
WORK = frozenset(
    (
        "init",
        "load-begin",
        "load-end",
        "shards",
        "capture",
        "capture-end",
        "ready",
        "batch",
        "answer",
        "alive",
    )
)


@dataclass(frozen=True, slots=True)
class Mark:
    """What one line says about the start-up. `kind`: one of `WORK`, or "server" (uvicorn starts),
    "request", "stopping", "bar" (a progress bar of another name). `done`, `total`: of a progress bar."""

    kind: str
    text: str = ""
    done: int | None = None
    total: int | None = None


def _bar(text: str) -> Mark | None:
    if "/" not in text or "|" not in text:
        return None
    match = _BAR.search(text, 0, 4_096)
    if match is None:
        tail = _BAR_TAIL.search(text, 0, 4_096)
        return Mark("bar", "", int(tail.group("done")), int(tail.group("total"))) if tail else None
    description = (match.group("desc") or "").strip()
    if _SHARDS.search(description):
        kind = "shards"
    elif description.startswith("Capturing"):
        kind, description = "capture", "capturing graphs"
    else:
        kind = "bar"
    return Mark(kind, description, int(match.group("done")), int(match.group("total")))


_PREFIXES = (
    ("Init torch distributed begin", "init"),
    ("Load weight begin", "load-begin"),
    ("Prefill batch", "batch"),
    ("Decode batch", "batch"),
    ("KV Cache is allocated", "alive"),
    ("max_total_num_tokens=", "alive"),
)


def mark(item: Entry) -> Mark | None:
    """What an entry says about the start-up; None for most lines."""
    message = item.message
    for prefix, kind in _PREFIXES:
        if message.startswith(prefix):
            return Mark(kind)
    if READY_TEXT in message and _READY.search(message):
        return Mark("ready")
    if message.startswith("Load weight end"):
        match = _LOAD_END.match(message)
        return Mark("load-end", match.group("type") if match else "")
    if "INFO:     " in message or "SIGTERM" in message or message.startswith(("Gracefully", "^C")):
        return _uvicorn(message)
    return _capture(message) or _bar(message)


def _capture(message: str) -> Mark | None:
    """The begin or end of a capture, named "Capture draft extend cuda graph begin" and the like."""
    if not message.startswith("Capture "):
        return None
    match = _CAPTURE.match(message)
    if match:
        kind = "capture" if match.group("end") == "begin" else "capture-end"
        return Mark(kind, f"capturing {match.group('what')}graphs")
    return Mark("capture", "capturing graphs") if _SIZES.match(message) else None


def is_bar(item: Entry) -> bool:
    """Whether an entry is a progress bar, even if the rest of its line is still to come."""
    return _bar(item.message) is not None


def _uvicorn(message: str) -> Mark | None:
    if _STOPPING.search(message):
        return Mark("stopping")
    if _SERVER.search(message):
        return Mark("server")
    if '"POST /' in message and '" 200 ' in message:
        return Mark("answer")
    return Mark("request") if _REQUEST.search(message) else None
