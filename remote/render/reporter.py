"""What a verb says while it works, on a terminal or in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status
from rich.text import Text

from .console import next_step

# Without a terminal a progress line is printed this rarely: a log file should stay readable.
PLAIN_EVERY_S = 10.0


class TerminalReporter:
    """A held resource: the live line at the bottom of the terminal."""

    def __init__(
        self,
        out: Console,
        node: str,
        clean: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._node = node
        self._clean = clean
        self._clock = clock
        self._status: Status | None = None
        self._action = ""
        self._said_s = 0.0

    def begin(self, id: str, detail: str) -> None:
        self._stop()
        self._action = id
        self._said_s = self._clock()
        if self._out.is_terminal:
            self._status = self._out.status(self._text(id, detail), spinner="line")
            self._status.start()

    def progress(self, text: str) -> None:
        if self._status is not None:
            self._status.update(self._text(self._action, text))
        elif not self._out.is_terminal and self._clock() - self._said_s >= PLAIN_EVERY_S:
            self._said_s = self._clock()
            self._out.print(self._text(self._action, text), soft_wrap=True)

    def done(self, id: str, detail: str, *, changed: bool) -> None:
        self._ended(("changed ", "changed") if changed else ("ok      ", "pass"), id, detail)

    def failed(self, id: str, detail: str) -> None:
        self._ended(("failed  ", "fail"), id, detail)

    def _ended(self, mark: tuple[str, str], id: str, detail: str) -> None:
        self._stop()
        self._out.print(
            Text.assemble(mark, (f"{id:<14}", "heading"), " ", self._clean(detail)), soft_wrap=True
        )

    def note(self, text: str) -> None:
        text = next_step(self._clean(text), self._node)
        self._out.print(Text(f"note    {text}", style="quiet"), soft_wrap=True)

    def close(self) -> None:
        self._stop()

    def _text(self, id: str, detail: str) -> Text:
        text = Text.assemble((f"{id:<14}", "heading"), " ", self._clean(detail))
        if self._out.is_terminal:
            text.truncate(max(20, self._out.width - 4), overflow="ellipsis")
        return text

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
