"""Takes secrets out of every text that leaves this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .sglang.redact import redact_text

MASK = "***"  # as remote/sglang/redact.py writes it


def cleaner(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that masks `secrets` (values taken from the engineer's environment) and whatever
    looks like a key, token or password in SGLang's output or on a command line."""
    known = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)

    def clean(text: str) -> str:
        for secret in known:
            text = text.replace(secret, MASK)
        return redact_text(text)

    return clean


def printable(text: str) -> str:
    """`text` without control characters: what a stranger's process or tool says must not steer the
    engineer's terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


def clean_tree(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value with every text in it passed through `clean`; keys stay as they are."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: clean_tree(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_tree(item, clean) for item in value]
    return value
