"""The lines of a log that matter: what the node sends instead of the whole file.

Regular expressions without anchors, flags or groups that capture, in ASCII, so that they work as text or
as bytes, each alone or joined with `|`. Each begins with a literal, which Python searches at the speed of
memory; an alternation would be ten times slower. `boots.read_lines` makes of the lines that `RARE` and
`DECODE` select what it makes of the whole log (only code lines of tracebacks are missing, which it can do
without).
"""

from __future__ import annotations

from collections.abc import Sequence

# The record of the arguments, and command lines that were echoed.
RECORD: tuple[str, ...] = (r"server_args=", r"launch_server", r"sglang serve", r"# requested:")

# What SGLang says that it changed: before the record, so not in a read that begins there.
NOTES: tuple[str, ...] = (
    r"is adjusted",
    r"is reset to",
    r"is set to",
    r"page_size ",
    r"verlap schedul",
    r"ixed chunked",
    r"fallback to",
    r"overriding ",
    r"defaulting to",
    r"speculative_adaptive disabled",
    r"promoting --",
    r"DeepSeek MTP",
    r"RLIMIT_NOFILE",
)

# How far the start came, that it is ready, that it stops.
STAGES: tuple[str, ...] = (
    r"ready to roll",
    r"Init torch distributed begin",
    r"Load weight ",
    r" shards: ",
    r"Captur[ei]",
    r"INFO:     [SWAUF]",
    r"SIGTERM",
    r"Gracefully exiting",
)

# Exceptions with the files that they passed, the last of which raised them, and what SGLang or the shell
# says of dead processes.
FAILURES: tuple[str, ...] = (
    r"Traceback \(most recent",
    r"rror\b",
    r"xception\b",
    r"size mismatch for ",
    r"File \\?\"[^\"\n]{1,1000}\", line \d",
    r"draft_worker = ",
    r"aux_hidden_states\.",
    r"freeze_gc failed",
    r"\[Errno ",
    r"atchdog timeout \(",
    r"scheduler is dead",
    r"xit code:? ",
    r"SIGQUIT",
    r"sigquit",
    r"Killed",
    r"Aborted",
    r"Segmentation fault",
    r"ProcessGroup\w+\.cpp",
    r"usage: [a-z]",
    r"has no SGLang implementation",
)

# Decode lines, and the prefills that follow idleness.
DECODE: tuple[str, ...] = (r"Decode batch", r"Prefill batch.{0,400}?#running-req: 0,")

RARE: tuple[str, ...] = RECORD + NOTES + STAGES + FAILURES

# What fills a busy server's log, and holds nothing that the patterns above look for except `DECODE`: first
# these ends of lines, then the bare prefixes that they leave. At most one such end is in a line.
_FREQUENT: tuple[str, ...] = (
    r"\] (?:Decode|Prefill) batch.*",
    r"INFO:     [\d.:]+ - \"\w+ \S+ HTTP/1\.1\" 200.*",
    r"\[[\d: .,-]{8,30}(?: [A-Z_]+\d+)*\]? ?$",
)
# A record's line that is neither wrapped nor cut. Docker (in JSON) and Kubernetes cut lines at 16 kB and say
# so: by the newline that is missing in the text, and by the letter P.
_CLOSED = (
    r"^(?!\{\"|\S+ std(?:out|err) P ).*[)}]\s*(?:\x1b\[[\d;]*m)?\s*$"
    r"|^\{\".*[)}](?:\\u001b\[[\d;]*m)?\\n\""
)
# 19 kB (0.5.23) are 240 lines of 80 columns.
_WRAPPED_LINES = 400


def wanted(lines: Sequence[str], everywhere: Sequence[str] = ()) -> dict[str, object]:
    """The node's parameters (node/logs.py) for lines that match one of `lines`, of which the first is that of
    the record, or of `everywhere`, which may be in decode lines too. Indices: `lines`, then `everywhere`."""
    first = len(lines)
    return {
        "patterns": [*lines, *everywhere],
        "frequent": {"cut": list(_FREQUENT), "patterns": list(range(first, first + len(everywhere)))},
        "follow": {"pattern": 0, "unless": _CLOSED, "lines": _WRAPPED_LINES},
    }
