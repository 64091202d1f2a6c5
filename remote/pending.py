"""A request to the helper whose answer is awaited."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import ConnectError, NodeError

if TYPE_CHECKING:
    from .helper import Helper

OnEvent = Callable[[dict[str, Any]], None]


class Pending:
    """A request whose answer is awaited."""

    def __init__(
        self, helper: Helper, identifier: int, op: str, wait_s: float, on_event: OnEvent | None
    ) -> None:
        self.id = identifier
        self.op = op
        self._helper = helper
        self._give_up_at = time.monotonic() + wait_s
        self._on_event = on_event
        self._messages: queue.SimpleQueue[dict[str, Any] | ConnectError] = queue.SimpleQueue()
        self._final: dict[str, Any] | ConnectError | None = None

    def put(self, message: dict[str, Any] | ConnectError) -> None:
        """For the reading thread."""
        self._messages.put(message)

    def poll(self, wait_s: float) -> bool:
        """Take the next message if one comes within `wait_s`; true once the operation has ended.

        Events go to `on_event` in the calling thread. `result()` then tells how it ended.
        """
        if self._final is None:
            try:
                message = self._messages.get(timeout=max(0.0, wait_s))
            except queue.Empty:
                return False
            if isinstance(message, ConnectError) or "event" not in message:
                self._final = message
            elif self._on_event is not None:
                self._on_event(message["event"])
        return self._final is not None

    def result(self) -> dict[str, Any]:
        """Wait for the answer; events go to `on_event` in the calling thread meanwhile.

        Raises NodeError when the operation failed or did not end in time, ConnectError when the
        connection was lost: then it is unknown what the operation did.
        """
        while not self.poll(self._give_up_at - time.monotonic()):
            if time.monotonic() >= self._give_up_at:
                self._helper.forget(self.id)
                raise NodeError("timeout", f"{self.op}: no answer from the helper in time")
        final = self._final
        assert final is not None
        if isinstance(final, ConnectError):
            raise final
        if "error" in final:
            error = final["error"]
            raise NodeError(error["kind"], error["message"], error.get("data"))
        result: dict[str, Any] = final["result"]
        return result

    def cancel(self) -> None:
        """Ask the operation to stop. `result()` tells how it ended."""
        self._helper.send({"op": "cancel", "params": {"id": self.id}})
