"""The same work for several things at once, of which Ctrl-C leaves what was done until then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


def side_by_side(work: Callable[[Item], Found], items: Sequence[Item], most: int) -> list[Found | None]:
    """What `work` makes of each item, at most `most` of them at once; None where Ctrl-C came first.

    `work` raises nothing. Its threads are daemons: one that waits for a node which does not answer must not
    keep the command from ending, as those of a ThreadPoolExecutor do.
    """
    found: list[Found | None] = [None] * len(items)
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)

    def serve() -> None:
        while (number := _next(waiting)) is not None:
            found[number] = work(items[number])

    threads = [Thread(target=serve, daemon=True) for _ in range(min(most, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        while _next(waiting) is not None:  # what has not begun does not begin any more
            pass
    return list(found)


def _next(waiting: SimpleQueue[int]) -> int | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None
