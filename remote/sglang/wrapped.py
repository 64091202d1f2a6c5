"""Secrets in lines of a log that are shown apart from their record, or piece by piece.

A terminal or a shipper may wrap a record within a secret or its key, so that no line alone tells that it
holds a part of one. So the records of the log are read first: what their secret arguments say is masked in
every line, whole or in part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from . import records
from .lines import numbered, unwrap
from .redact import MASK, MIN_PIECE, mask_values, redact_text, secrets_in


def _edges(line: str, secret: str) -> str:
    """`line` without a piece of `secret` that begins, ends or fills it: where it was wrapped."""
    inner = unwrap(line)[0]
    head = line[: len(line) - len(inner)] if line.endswith(inner) else ""
    text = line[len(head) :]
    if len(text) >= MIN_PIECE and text in secret:
        return head + MASK
    sizes = range(min(len(secret), len(text)), MIN_PIECE - 1, -1)
    for size in sizes:
        if text.startswith(secret[-size:]):
            text = MASK + text[size:]
            break
    for size in sizes:
        if text.endswith(secret[:size]):
            text = text[:-size] + MASK
            break
    return head + text


def _clean(text: str, secrets: Collection[str]) -> str:
    """`text`, of any number of lines, which stays the same, without secrets."""
    lines = redact_text(mask_values(text, secrets)).split("\n")
    for secret in secrets:
        lines = [_edges(line, secret) for line in lines]
    return "\n".join(lines)


def redact_lines(
    shown: Sequence[tuple[int, str]], known: Sequence[tuple[int, str]], secrets: Collection[str] = ()
) -> list[tuple[int, str]]:
    """The numbered lines `shown` without secrets, of which `secrets` are known already. `known`: the lines of
    the log that hold its records, whole as they were wrapped. Neighbours are looked at together."""
    sources = list(records.scan(known))
    inside = {number for source in sources for number in range(source.line, source.last_line + 1)}
    wanted = {number for number, _ in shown}
    # A part of a record is masked as a part of it.
    context = [(number, text) for number, text in known if number in inside and number not in wanted]
    secrets = {*secrets, *secrets_in(sources)}
    cleaned: list[tuple[int, str]] = []
    for run in _runs(sorted([*shown, *context], key=lambda line: line[0])):
        texts = _clean("\n".join(text for _, text in run), secrets).split("\n")
        cleaned += [(number, text) for (number, _), text in zip(run, texts, strict=True) if number in wanted]
    return cleaned


def _runs(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines, those together that follow each other; a line may be there in several pieces."""
    run: list[tuple[int, str]] = []
    for number, text in lines:
        if run and number > run[-1][0] + 1:
            yield run
            run = []
        run.append((number, text))
    if run:
        yield run


@dataclass(frozen=True)
class Stream:
    """A log that is shown as it grows. `held`: what must wait, since its line or its record may hold the
    beginning of a secret. `secrets`: of the records so far."""

    held: str = ""
    secrets: frozenset[str] = frozenset()


def feed(state: Stream, chunk: str) -> tuple[Stream, str]:
    """(state, text that may be shown) after the next piece of a log. What follows its last line end waits
    for the rest, and so does a record until it is closed."""
    text = state.held + chunk
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    secrets = state.secrets
    if len(text) > records.MAX_RECORD:
        end = len(text)
    elif "server_args=" in text:
        sources = list(records.scan(numbered(text[:end])))
        secrets |= secrets_in(sources)
        end = _before_open(text[:end], sources)
    return Stream(text[end:], secrets), _clean(text[:end], secrets)


def finish(state: Stream) -> str:
    """What a log that grows no more still held back."""
    return _clean(state.held, state.secrets)


def _before_open(text: str, sources: Sequence[records.Source]) -> int:
    """Where the record begins that is still open at the end of `text`; the length of `text` if none is."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if not sources or sources[-1].complete or sources[-1].last_line < lines:
        return len(text)
    start = 0
    for _ in range(sources[-1].line - 1):
        start = text.index("\n", start) + 1
    return start
