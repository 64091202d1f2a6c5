"""Repeats of a prompt: at temperature 0 its answer comes again, so that only prompts are independent values.

Eight answers to each of 24 prompts say no more about prompts in general than one to each: their mean is the
prompt's value, and figures and intervals are made from one value per prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Protocol, TypeVar


class Asked(Protocol):
    """Whatever tells its prompt: a request of this run or of an earlier one."""

    @property
    def prompt_sha256(self) -> str | None: ...


Item = TypeVar("Item", bound=Asked)


def by_prompt(items: Iterable[Item]) -> dict[str, list[Item]]:
    """The items of each prompt, in the order in which the prompts first come. Those that tell none, as a run
    that was written by hand may, are taken for one prompt's."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(str(item.prompt_sha256), []).append(item)
    return found


def means(items: Iterable[Item], value: Callable[[Item], float | None]) -> dict[str, float]:
    """The value of each prompt, the mean over its repeats; without prompts of which it is not known."""
    found = {}
    for prompt, group in by_prompt(items).items():
        known = [each for each in map(value, group) if each is not None]
        if known:
            found[prompt] = fmean(known)
    return found
