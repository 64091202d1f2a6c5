"""The runbook's page as a script: its comments and blocks in order, and when two prints say the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
LEFT_OUT = "[...]"
# Of a diff so many lines are shown; of the rest it is enough that it is there.
DIFF_LINES = 16

_ITEM = re.compile(
    r"^<!-- (?P<kind>do|undo): (?P<step>.+) -->$"
    r"|^```console(?: exit=(?P<exit>\d+))?\n\$ inv (?P<command>.+)\n(?P<output>(?:.*\n)*?)```$",
    flags=re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One command: its words, exit code and print, and where it stands in the page."""

    command: str
    exit: int
    output: str
    start: int
    end: int

    def renewed(self, exit: int, output: str) -> str:
        return f"```console{f' exit={exit}' if exit else ''}\n$ inv {self.command}\n{output}```"


@dataclass(frozen=True)
class Script:
    """An entry: its steps and blocks in order, and what is done at its end."""

    symptom: str
    items: tuple[str | Block, ...]
    undo: tuple[str, ...]


def scripts(text: str) -> list[Script]:
    """Every entry of the page."""
    headings = [*re.finditer(r"^## (.+)$", text, flags=re.MULTILINE)]
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    found = []
    for heading, end in zip(headings, ends, strict=True):
        items, undo = list[str | Block](), list[str]()
        for item in _ITEM.finditer(text, heading.end(), end):
            if item["command"]:
                exit_code = int(item["exit"] or 0)
                items.append(Block(item["command"], exit_code, item["output"], item.start(), item.end()))
            else:
                (items if item["kind"] == "do" else undo).append(item["step"])
        found.append(Script(heading[1], tuple(items), tuple(undo)))
    return found


def shown(printed: str) -> str:
    """What the page shows of a print: without checks that passed, progress, earlier boots, and long diffs."""
    lines: list[str] = []
    diff, dropped_check = 0, False
    printed_lines = [line.rstrip() for line in printed.splitlines()]
    boots = [number for number, line in enumerate(printed_lines) if _BOOT.match(line)]
    for number, line in enumerate(printed_lines):
        dropped_check = bool(_PASSED.match(line)) or (dropped_check and line.startswith(" " * 5))
        diff = diff + 1 if _DIFF_BEGINS.match(line) or (diff and _DIFF_LINE.match(line)) else 0
        earlier = number in boots[:-1]
        if _PROGRESS.match(line):
            continue
        if dropped_check or earlier or diff > DIFF_LINES:
            if lines[-1:] != [LEFT_OUT]:
                lines.append(LEFT_OUT)
            continue
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


# Checks that passed, causes that are ruled out, and what a benchmark guards against.
_PASSED = re.compile(
    r"(pass|skip) [a-z]+\.|no {3} [a-z]+-?"
    r"|(note|SPOILS|\?{4}|ok)( +\d+ guards| {1,3}([a-z]+-[a-z-]+|simulated|complete|repetition|queueing) )"
)
_BOOT = re.compile(r"\d+ +(\d{4}-\d\d-\d\d|\?)")
_DIFF_BEGINS = re.compile(r"(--- |\+\+\+ )[ab]/")
_DIFF_LINE = re.compile(r"[ +@]|-(?! {5})|$")
# What a command says every 10 s where there is no terminal: only on a busy machine.
_PROGRESS = re.compile(
    r"(health|free-gpus|kill-stale|stop|start|push-code|push-config|purge-pycache|warm-up|bench|verify)  "
)

# A figure that is measured anew each time, and its interval.
_INTERVAL = r"\.?\d*\s+\[\d[\d.]*,\s+[\d.]+\]"

# What differs from run to run. A blank may be a line's end: a narrow terminal wraps.
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[\sT]+\d\d:\d\d:\d\d([.,]\d+)?"), "DATE"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "CLOCK"),
    (re.compile(r"^\s*\d+(?= +(\[|DATE))", flags=re.MULTILINE), "N"),
    (re.compile(r"\bpid\s+\d+(,\s+\d+)*"), "pid N"),
    (re.compile(r"/proc/\d+"), "/proc/N"),
    (re.compile(r"127\.0\.0\.1:\d{5}"), "127.0.0.1:N"),
    (re.compile(r"\b\d+(\.\d+)?\s+s\b"), "T s"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HASH"),
    (re.compile(r"\b(line[s]?|GPU)\s+\d+"), r"\1 N"),
    (re.compile(r"@@ -\d+,\d+ \+\d+,\d+ @@"), "@@"),
    # A measured accept length is one of few tokens: its whole part tells the two cases apart.
    (re.compile(rf"(accept length\s+\d){_INTERVAL}"), r"\1.N"),
    (re.compile(r"(CLOCK\s+\d)\.\d+\s+[\d.]+"), r"\1.N N"),
    (re.compile(rf"\d+{_INTERVAL}"), "FIGURE"),
    (re.compile(r"^ok +warm-up .*", flags=re.MULTILINE), "ok warm-up"),
    (re.compile(r"(this run's:|accept rate:|all)\s+\d[\d.]*"), r"\1 N"),
    (re.compile(r"\d+(\s+(?:output tokens|verifications))"), r"N\1"),
)
# The same of paths, which a narrow terminal cuts anywhere: looked for when the blanks are gone.
_PATH_MASKS = (
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}"), "ID"),
    (re.compile(r"python3\.\d+"), "python3.N"),
    (re.compile(r"cpython-3\d+"), "cpython-3N"),
    (re.compile(r"(\.py:|\.log:)\d+"), r"\1N"),
)


def normal(text: str) -> str:
    """The same for any two prints that say the same: masked, and without blanks, so without wrapping."""
    text = "\n".join(line for line in text.splitlines() if line != LEFT_OUT)
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    text = re.sub(r"\s+", "", text)
    for pattern, mask in _PATH_MASKS:
        text = pattern.sub(mask, text)
    return text
