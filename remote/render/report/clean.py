"""Text from a node, made fit for a page: no secrets, no control characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ...redact import clean_tree

Value = TypeVar("Value")

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# C0 and C1 without tab and newline, surrogates, what turns the direction of text, and non-characters:
# a page shows what is there, in the order in which it is there.
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """`text` without colours; other characters that cannot be shown become U+FFFD."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", text.replace("\r\n", "\n")))


def cleaned(value: Value, clean: Callable[[str], str]) -> Value:
    """The same value with every text in it passed through `clean` and made printable."""
    found: Value = clean_tree(value, lambda text: printable(clean(text)), keys=True)
    return found
