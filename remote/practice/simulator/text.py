"""A tokenizer and a language model of no intelligence: deterministic text, the same with and without
speculation.
"""

from __future__ import annotations

import random
import re
import zlib

_COMMON = (
    "the a of and to in is that it for as with on by this are when then which so each one two many same other"
)
_SUBJECT = "model token layer state draft target step value input output memory time first next last new"
_VERBS = "gives takes makes shows keeps holds reads runs"
WORDS = (
    *(f" {word}" for word in f"{_COMMON} {_SUBJECT} {_VERBS}".split()),
    ",",
    ".",
    ":",
    "\n",
    " (",
    ")",
    " 1",
    " 2",
)
EOS = 2


def tokenize(text: str, vocab: int) -> list[int]:
    """Ids of the words and signs of `text`."""
    return [zlib.crc32(piece.encode()) % vocab for piece in re.findall(r"\s?\w+|\s|[^\w\s]", text)] or [1]


def untokenize(ids: list[int]) -> str:
    return "".join("" if token == EOS else WORDS[token % len(WORDS)] for token in ids)


def answer(
    prompt: list[int], length: int, *, temperature: float, salt: str, vocab: int, ignore_eos: bool
) -> list[int]:
    """The tokens after `prompt`: at temperature 0 a function of the prompt alone.

    Ends early with EOS unless ignored.
    """
    seed = f"{prompt}" if temperature == 0 else f"{prompt} {salt}"
    source = random.Random(seed)
    natural = source.randint(60, 600)
    tokens = [source.randrange(3, max(vocab, 4)) for _ in range(length)]
    if not ignore_eos and natural < length:
        tokens = [*tokens[: natural - 1], EOS]
    return tokens
