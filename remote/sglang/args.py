"""The `server_args` record of a log: SGLang's effective arguments.

Values are the Python literals SGLang printed. What is no literal (`LoRARef(...)`, an enum) is kept as its
source text and named in `opaque`. Secrets are masked. A missing key is not the same as None: versions
before EAGLE have no `speculative_*` key at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from . import records
from .redact import MASK, is_secret, redact_text


@dataclass(frozen=True)
class ArgsRecord:
    """`kind`: form of the record. `values`: by SGLang's names; of a cut record (`complete` False) those
    that are certainly whole. `line`, `last_line`: 1-based in the file. `stamp`: its time as printed."""

    kind: Literal["repr", "dict"]
    values: dict[str, object]
    opaque: tuple[str, ...]
    complete: bool
    line: int
    last_line: int
    stamp: str | None


def redact_value(name: str, value: object) -> object:
    """`value` without secrets: masked as a whole if `name` says so (None, '', True and False stay, which
    only tell whether it is set), else within."""
    secret = is_secret(name)
    if isinstance(value, dict):
        return {key: redact_value(name if secret else str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redact_value(name if secret else "", inner) for inner in value)
    if secret:
        return value if value is None or isinstance(value, bool) or value in ("", b"") else MASK
    return redact_text(value) if isinstance(value, str) else value


def parse(source: records.Source) -> ArgsRecord:
    """The values of a record."""
    values: dict[str, object] = {}
    opaque: list[str] = []
    for key, text in records.items(source):
        try:
            value: object = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = text
            opaque.append(key)
        values[key] = redact_value(key, value)
    return ArgsRecord(
        source.form, values, tuple(opaque), source.complete, source.line, source.last_line, source.stamp
    )


def find_in(lines: Iterable[tuple[int, str]]) -> Iterator[ArgsRecord]:
    """The records in numbered lines, in order."""
    return map(parse, records.scan(lines))
