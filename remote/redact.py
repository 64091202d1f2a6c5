"""Takes secrets out of every text that leaves this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from threading import Lock
from typing import Any

from .sglang.redact import redact_text

MASK = "***"  # as remote/sglang/redact.py writes it


# A shorter value is in too many other words: masked, it would take what is shown apart.
MIN_SECRET = 4
# Nor are these masked, which are no secret of anybody: verdicts and states are written with them.
# fmt: off
_WORDS = frozenset(
    {
        "pass", "fail", "skip", "unknown", "true", "false", "none", "null", "auto", "pristine",
        "partial", "ours", "native", "foreign", "uncovered", "done", "todo", "misfit", "match",
        "mismatch", "crash", "holds", "refuted", "draft", "start", "before", "after", "replace",
        "starting", "down", "sick", "ready", "failed", "stopped", "complete", "truncated", "absent",
        "repr", "dict", "effective", "ineffective", "inconclusive", "no-baseline", "reached", "missed",
        "unclear", "not-compared", "shown", "spoils", "fixops", "sglang",
    }
)
# fmt: on


class KnownSecrets:
    """The secrets' values that a command has met: set here, or read on a node. Its sessions share it."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self._values: tuple[str, ...] = ()
        self.learn(values)

    @property
    def values(self) -> tuple[str, ...]:
        """The longest first: one may hold another."""
        return self._values

    def learn(self, values: Iterable[str]) -> None:
        with self._lock:
            new = {each for each in values if len(each) >= MIN_SECRET and each not in _WORDS}
            known = {*self._values, *(text for each in new for text in _spellings(each))}
            self._values = tuple(sorted(known, key=len, reverse=True))

    def clean(self, text: str) -> str:
        """`text` without them, and without whatever looks like a key, token or password in SGLang's output or
        on a command line."""
        for value in self._values:
            text = text.replace(value, MASK)
        return redact_text(text)


def _spellings(value: str) -> set[str]:
    """As it is, and within the quotes of Python and of JSON: SGLang's records and replies escape a backslash
    or a quote in it."""
    return {value, repr(value)[1:-1], json.dumps(value)[1:-1]}


def printable(text: str) -> str:
    """`text` without control characters: what a stranger's process or tool says must not steer the
    engineer's terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


def clean_tree(value: Any, clean: Callable[[str], str], *, keys: bool = False) -> Any:
    """A JSON value, or dataclasses of such, with every text in it passed through `clean`; with `keys` those
    of its mappings too."""
    if isinstance(value, str):
        return clean(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: clean_tree(part, clean, keys=keys) for name, part in parts.items()})
    if isinstance(value, Mapping):
        return {
            (clean(key) if keys and isinstance(key, str) else key): clean_tree(item, clean, keys=keys)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(clean_tree(item, clean, keys=keys) for item in value)
    return value
