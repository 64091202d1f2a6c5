"""What a verb may say while it works. The one implementation that prints is in render.py."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    def begin(self, id: str, detail: str) -> None:
        """An action begins."""

    def progress(self, text: str) -> None:
        """What the action is doing now: shown in place, replaced by the next one."""

    def done(self, id: str, detail: str, *, changed: bool) -> None:
        """The action ended as `detail` says."""

    def failed(self, id: str, detail: str) -> None:
        """The action ended, and what it looked for is not so."""

    def note(self, text: str) -> None:
        """A line worth keeping."""


class Silent:
    """Says nothing: for groups of nodes read side by side, and for tests."""

    def begin(self, id: str, detail: str) -> None: ...

    def progress(self, text: str) -> None: ...

    def done(self, id: str, detail: str, *, changed: bool) -> None: ...

    def failed(self, id: str, detail: str) -> None: ...

    def note(self, text: str) -> None: ...
