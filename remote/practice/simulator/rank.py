"""What a scheduler process knows, and its group: the other ranks, which it meets as through Gloo."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from . import logs
from .channel import Channel, Message, PeerGone
from .dialect import Dialect
from .install import Install
from .models import Model
from .settings import Settings
from .tracebacks import Frame, SimulatedError
from .wired import Mode, Plan


@dataclass(frozen=True)
class Server:
    """What all processes of one server share."""

    install: Install
    spoken: Dialect
    settings: Settings
    values: dict[str, Any]  # effective server arguments
    target: Model
    draft_path: str | None  # None without speculation
    draft: Model | None  # None also when it cannot be read
    plan: Plan
    launcher_pid: int

    @property
    def speculative(self) -> bool:
        return self.values["speculative_algorithm"] is not None

    @property
    def eagle3(self) -> bool:
        return bool(self.values["speculative_algorithm"] == "EAGLE3")

    @property
    def context_length(self) -> int:
        return int(self.values["context_length"] or self.target.context_length)

    def mode(self, *, graph: bool, sequences: int) -> Mode:
        """A batch's forward mode: two-batch overlap needs two sequences, CUDA graphs are for decoding."""
        if self.values["enable_two_batch_overlap"] and sequences > 1:
            return self.plan.overlap
        return self.plan.graph if graph else self.plan.eager

    def acceptance(self, mode: Mode) -> float:
        """How often a draft step is right: what the draft was trained with, or something else, or no EAGLE-3
        at all.

        The algorithm EAGLE with an EAGLE-3 draft captures nothing and never proposes a right token.
        """
        if self.draft is None or ("Eagle3" in self.draft.architecture and not self.eagle3):
            return 0.0
        trained = tuple(self.draft.config.get("fixops_trained_input") or self.settings.trained_input)
        return self.settings.acceptance_match if mode.layers == trained else self.settings.acceptance_mismatch


def prefix_of(rank: int, values: dict[str, Any]) -> str:
    """The logger's prefix (managers/scheduler.py: run_scheduler_process), also the process title's end."""
    text = f" TP{rank}" if values["tp_size"] > 1 else ""
    if values.get("ep_size", 1) > 1:
        text += f" EP{rank // (values['tp_size'] // values['ep_size'])}"
    return text


def title_of(rank: int, values: dict[str, Any]) -> str:
    return "sglang::scheduler" + prefix_of(rank, values).replace(" ", "_")


def hang() -> NoReturn:
    """Stay alive and do nothing, as a process that waits for a collective operation that never completes."""
    while True:
        signal.pause()


class Group:
    """The tensor-parallel group as one rank sees it: rank 0 has a channel to every other, the others one to
    rank 0.
    """

    def __init__(self, rank: int, channels: Sequence[Channel], *, hang_on_death: bool) -> None:
        self.rank = rank
        self.channels = list(channels)
        self._hang_on_death = hang_on_death

    def lost(self, frames: Sequence[Frame]) -> NoReturn:
        """Another rank is gone: Gloo's error, or silence where the fault wants it."""
        if self._hang_on_death:
            hang()
        last = (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
            "Connection closed by peer [127.0.0.1]:44321"
        )
        raise SimulatedError(frames, last)

    def barrier(self, frames: Sequence[Frame]) -> None:
        """Wait for all ranks. Raises SimulatedError when one has ended."""
        try:
            if self.rank == 0:
                for channel in self.channels:
                    channel.receive()
                self.broadcast({"op": "go"})
            else:
                self.channels[0].send({"op": "here"})
                self.channels[0].receive()
        except PeerGone:
            self.lost(frames)

    def least(self, value: float, frames: Sequence[Frame]) -> float:
        """The smallest `value` of all ranks. Raises SimulatedError when one has ended."""
        try:
            if self.rank == 0:
                smallest = min([value, *(float(channel.receive()["value"]) for channel in self.channels)])
                self.broadcast({"value": smallest})
                return smallest
            self.channels[0].send({"value": value})
            return float(self.channels[0].receive()["value"])
        except PeerGone:
            self.lost(frames)

    def broadcast(self, message: Message) -> None:
        for channel in self.channels:
            channel.send(message)

    def together(self, frames: Sequence[Frame]) -> None:
        """Rank 0: one forward pass, which all ranks take part in."""
        try:
            self.broadcast({"op": "forward"})
            for channel in self.channels:
                channel.receive()
        except PeerGone:
            self.lost(frames)


@dataclass(frozen=True)
class Pace:
    """Start-up time: seconds at speed 1."""

    speed: float

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds * self.speed)


class Voice:
    """The log of one rank."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def say(self, message: str) -> None:
        logs.log(message, self.prefix)
