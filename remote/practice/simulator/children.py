"""The processes that the launcher starts and ends: the ranks and the detokenizer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, NoReturn

from . import holders, logs, procs, scheduler, tracebacks
from .channel import Channel, PeerGone
from .rank import Server, title_of
from .tracebacks import Frame


@dataclass(frozen=True)
class Children:
    """Pids by rank, and the detokenizer's."""

    ranks: tuple[int, ...]
    detokenizer: int
    server: Server

    def kill(self) -> None:
        """SIGKILL all, take their leftovers away, and reap them."""
        pids = [*self.ranks, self.detokenizer]
        procs.kill_hard(pids)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            if not self.server.settings.faults.keep_holder:
                holders.drop(self.server.settings.gpus_dir, pid)


@dataclass(frozen=True)
class Started:
    """The children and the launcher's ends of what connects it with them."""

    children: Children
    ready: tuple[Channel, ...]  # one for each rank: it says once that it is ready
    scheduler: Channel  # requests to rank 0, and its answers to control requests
    detokenizer: Channel  # outputs


def start(server: Server) -> Started:
    """Fork all ranks and the detokenizer. To be called before any thread runs."""
    resource_tracker.ensure_running()
    size = int(server.values["tp_size"])
    dies = not server.settings.faults.orphans
    to_rank, from_launcher = (end.detach() for end in socket.socketpair())
    pairs = [tuple(end.detach() for end in socket.socketpair()) for _ in range(1, size)]
    detokenizer_in, rank_out = os.pipe()
    launcher_in, detokenizer_out = os.pipe()
    ranks, ready = [], []
    for rank in range(size):
        ready_in, ready_out = os.pipe()
        peers = [pair[0] for pair in pairs] if rank == 0 else [pairs[rank - 1][1]]
        mine = [from_launcher, rank_out] if rank == 0 else []

        def run(rank: int = rank, peers: list[int] = peers, ready_out: int = ready_out) -> int:
            ends = scheduler.Ends(
                peers=tuple(map(Channel, peers)),
                ready=Channel(ready_out),
                launcher=Channel(from_launcher),
                detokenizer=Channel(rank_out),
            )
            return scheduler.run_rank(server, rank, ends)

        keep = [ready_out, *peers, *mine]
        ranks.append(procs.fork(title_of(rank, server.values), run, keep=keep, dies_with_parent=dies))
        os.close(ready_out)
        ready.append(Channel(ready_in))
    detokenizer = procs.fork(
        "sglang::detokenizer",
        lambda: scheduler.run_detokenizer(server, Channel(detokenizer_in), Channel(detokenizer_out)),
        keep=[detokenizer_in, detokenizer_out],
        dies_with_parent=dies,
    )
    for fd in (
        from_launcher,
        detokenizer_in,
        rank_out,
        detokenizer_out,
        *(fd for pair in pairs for fd in pair),
    ):
        os.close(fd)
    children = Children(tuple(ranks), detokenizer, server)
    return Started(children, tuple(ready), Channel(to_rank), Channel(launcher_in))


def end_hard(children: Children) -> NoReturn:
    """kill_process_tree(os.getpid()) (utils/common.py): SIGKILL for the children and the launcher."""
    children.kill()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def wait_ready(started: Started) -> dict[str, Any]:
    """_wait_for_scheduler_ready (entrypoints/engine.py): rank by rank; returns what rank 0 says.

    Ends the process with 1 when a rank dies that it waits for. Before 0.5.10 it waits for one after the
    other; since then it looks after all of them.
    """
    children = started.children
    facts: dict[str, Any] = {}
    for rank, channel in enumerate(started.ready):
        try:
            told = channel.receive()
        except PeerGone:
            status = os.waitstatus_to_exitcode(os.waitpid(children.ranks[rank], 0)[1])
            _report_dead(children.server, rank, status)
            children.kill()
            os._exit(1)
        facts = facts or told
    return facts


def _report_dead(server: Server, rank: int, status: int) -> None:
    file, function = "sglang/srt/entrypoints/engine.py", "_wait_for_scheduler_ready"
    if server.spoken.watchdog:
        frames: tuple[Frame, ...] = ((file, function, "raise _scheduler_died_error(i, scheduler_procs[i])"),)
        last = (
            f"RuntimeError: Rank {rank} scheduler died during initialization (exit code: {status}). "
            "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. "
            "Run `dmesg -T | grep -i oom` to check."
        )
    else:
        logs.log(f"Rank {rank} scheduler is dead. Please check if there are relevant logs.")
        logs.log(f"Exit code: {status}")
        frames, last = ((file, function, "data = scheduler_pipe_readers[i].recv()"),), "EOFError"
    logs.raw(tracebacks.render(server.install, frames, last))


def watch(children: Children) -> None:
    """SubprocessWatchdog (utils/watchdog.py, 0.5.10): a dead child brings the server down within a second."""
    names = [f"scheduler_{rank}" for rank in range(len(children.ranks))] + ["detokenizer"]

    def look() -> None:
        while True:
            time.sleep(1)
            for name, pid in zip(names, [*children.ranks, children.detokenizer], strict=True):
                with contextlib.suppress(ChildProcessError):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    code = os.waitstatus_to_exitcode(status)
                    if ended and code:
                        logs.log(
                            f"Subprocess {name} (pid={pid}) crashed with exit code {code}. "
                            "Triggering SIGQUIT for cleanup..."
                        )
                        os.kill(os.getpid(), signal.SIGQUIT)
                        return

    threading.Thread(target=look, daemon=True).start()
