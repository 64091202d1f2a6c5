"""The scheduler processes: rank 0 batches requests and runs them, the other ranks take part in every forward
pass.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from . import failures, text, tracebacks
from .channel import Channel, Message, PeerGone, readable
from .dialect import DecodeStats, PrefillStats, decode_line, prefill_line
from .holders import Holder, gpu_of
from .rank import Group, Server, Voice, hang, prefix_of, title_of
from .startup import Startup
from .tracebacks import FORWARD_FRAMES, SimulatedError


@dataclass
class Request:
    """One running request of rank 0."""

    rid: str
    prompt: list[int]
    answer: list[int]
    done: int = 0
    cached: int = 0
    verify_ct: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    health: bool = False

    def finish_reason(self) -> dict[str, Any] | None:
        if self.done < len(self.answer):
            return None
        if self.answer and self.answer[-1] == text.EOS:
            return {"type": "stop", "matched": text.EOS}
        return {"type": "length", "length": len(self.answer)}


@dataclass(frozen=True)
class Ends:
    """A rank's ends of what connects it with the others; rank 0 alone uses `launcher` and `detokenizer`."""

    peers: tuple[Channel, ...]
    ready: Channel
    launcher: Channel
    detokenizer: Channel


class Scheduler:
    """Rank 0's event loop."""

    def __init__(self, server: Server, group: Group, voice: Voice, ends: Ends, tokens: int) -> None:
        self.server = server
        self.group = group
        self.voice = voice
        self.launcher: Channel | None = ends.launcher
        self.detokenizer = ends.detokenizer
        self.tokens = tokens
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.noise = random.Random(server.settings.seed)
        self.cache: list[list[int]] = []
        self.served = 0
        self.forward_ct = 0
        self.generated = 0
        self.spec_tokens = self.spec_forward = 0
        self.total_spec_tokens = self.total_spec_forward = 0
        self.last_throughput = 0.0
        self.decode_tic = self.prefill_tic = time.perf_counter()
        self.last_prefill_tokens = 0
        self.max_running = int(server.values["max_running_requests"] or 4096)

    def run(self) -> None:
        while True:
            busy = bool(self.waiting or self.running)
            self._receive(0 if busy else None)
            if self.server.settings.faults.generate_hangs and self.served and self.waiting:
                hang()
            if self.waiting and len(self.running) < self.max_running:
                self._prefill()
            elif self.running:
                self._decode()

    def _receive(self, timeout_s: float | None) -> None:
        watched = [*self.group.channels, *([self.launcher] if self.launcher else [])]
        for channel in readable(watched, timeout_s):
            try:
                for message in channel.receive_some():
                    self._handle(message)
            except PeerGone:
                if channel is not self.launcher:
                    self.group.channels.remove(channel)
                    self.group.lost(FORWARD_FRAMES[:2])
                self.launcher = None  # an orphan: nobody sends requests any more

    def _handle(self, message: Message) -> None:
        match message["op"]:
            case "generate" if message["health"] and (self.running or self.waiting):
                self._emit(
                    [
                        {
                            "rid": message["rid"],
                            "health": True,
                            "ids": [],
                            "finish": {"type": "length", "length": 1},
                            "meta": {},
                        }
                    ]
                )
            case "generate":
                self.waiting.append(self._request(message))
            case "abort":
                self.waiting = [request for request in self.waiting if request.rid != message["rid"]]
                self.running = [request for request in self.running if request.rid != message["rid"]]
            case "internal_state":
                self._reply(message, self.internal_state())
            case "load":
                self._reply(
                    message,
                    {
                        "num_reqs": len(self.running) + len(self.waiting),
                        "num_waiting_reqs": len(self.waiting),
                    },
                )
            case "flush_cache":
                self._reply(message, {"success": self._flush()})

    def _reply(self, message: Message, content: dict[str, Any]) -> None:
        if self.launcher:
            self.launcher.send({"id": message["id"], "content": content})

    def _request(self, message: Message) -> Request:
        answer = text.answer(
            message["ids"],
            message["max_new_tokens"],
            temperature=message["temperature"],
            salt=message["rid"],
            vocab=self.server.target.vocab_size,
            ignore_eos=message["ignore_eos"],
        )
        steps = int(self.server.values["speculative_num_steps"] or 0)
        return Request(
            message["rid"], message["ids"], answer, histogram=[0] * (steps + 1), health=message["health"]
        )

    def _flush(self) -> bool:
        if self.running or self.waiting:
            self.voice.say(
                "Cache not flushed because there are pending requests. "
                f"#queue-req: {len(self.waiting)}, #running-req: {len(self.running)}"
            )
            return False
        self.cache.clear()
        self.forward_ct = self.generated = 0
        self.spec_tokens = self.spec_forward = self.total_spec_tokens = self.total_spec_forward = 0
        self.voice.say("Cache flushed successfully!")
        return True

    def internal_state(self) -> dict[str, Any]:
        settings = self.server.settings
        weight = settings.weights_mib / 1024
        graph = 0 if self.server.values["disable_cuda_graph"] else round(settings.graph_mib / 1024, 2)
        found: dict[str, Any] = {
            "last_gen_throughput": self.last_throughput,
            "memory_usage": {
                "weight": round(weight, 2),
                "kvcache": round(settings.kv_mib / 1024, 2),
                "token_capacity": self.tokens,
                "graph": graph,
            },
            "effective_max_running_requests_per_dp": self.max_running,
        }
        if self.server.values["speculative_algorithm"] and self.server.spoken.number < (0, 5, 10):
            # The target's worker leaves these among the arguments, for the draft's (model_runner.py).
            found |= {"draft_runner_cache_size": self.tokens, "max_num_reqs": self.max_running}
        if self.total_spec_forward:
            found["avg_spec_accept_length"] = self.total_spec_tokens / self.total_spec_forward
        return found

    def _usage(self) -> int:
        return sum(len(request.prompt) + request.done for request in self.running)

    def _prefill(self) -> None:
        room = self.max_running - len(self.running)
        batch, self.waiting = self.waiting[:room], self.waiting[room:]
        for request in batch:
            request.cached = self._cached(request.prompt)
        total = sum(len(request.prompt) for request in batch)
        cached = sum(request.cached for request in batch)
        failures.check_forward(
            self.server, self.server.mode(graph=False, sequences=len(batch)), total - cached
        )
        time.sleep((5 + 0.01 * (total - cached)) / 1000)
        self.group.together(FORWARD_FRAMES)
        now = time.perf_counter()
        stats = PrefillStats(
            new_tokens=total - cached,
            cached_tokens=cached,
            usage=(self._usage() + total) / self.tokens,
            running=len(self.running),
            queued=len(self.waiting),
            throughput=self.last_prefill_tokens / max(now - self.prefill_tic, 1e-6),
            sequences=len(batch),
        )
        self.prefill_tic, self.last_prefill_tokens = now, stats.new_tokens
        self.voice.say(prefill_line(self.server.spoken, stats))
        items = []
        for request in batch:
            self.cache = [*self.cache[-63:], request.prompt]
            items.append(self._advance(request, 1))
        self.running += [request for request in batch if request.finish_reason() is None]
        self._emit(items)

    def _cached(self, prompt: list[int]) -> int:
        best = 0
        for other in self.cache:
            common = next(
                (i for i, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b),
                min(len(prompt), len(other)),
            )
            best = max(best, common)
        return 0 if self.server.values["disable_radix_cache"] else min(best, len(prompt) - 1)

    def _advance(self, request: Request, count: int) -> dict[str, Any]:
        new = request.answer[request.done : request.done + count]
        request.done += len(new)
        self.served += not request.health
        return {
            "rid": request.rid,
            "health": request.health,
            "ids": new,
            "finish": request.finish_reason(),
            "meta": {
                "prompt_tokens": len(request.prompt),
                "completion_tokens": request.done,
                "cached_tokens": request.cached,
                "verify_ct": request.verify_ct,
                "accepted": request.accepted,
                "histogram": request.histogram,
            },
        }

    def _decode(self) -> None:
        server = self.server
        graph = (
            not server.values["disable_cuda_graph"]
            and len(self.running) <= server.values["cuda_graph_max_bs"]
        )
        mode = server.mode(graph=graph, sequences=len(self.running))
        if server.speculative:
            failures.check_forward(
                server, mode, len(self.running) * int(server.values["speculative_num_draft_tokens"])
            )
        step_s = server.settings.step_ms / 1000 * (1 + 0.05 * (len(self.running) - 1))
        time.sleep(step_s if server.speculative else step_s * 0.6)
        self.group.together(FORWARD_FRAMES)
        chance = server.acceptance(mode)
        items = []
        for request in self.running:
            count = 1
            if server.speculative:
                accepted = self._accept(chance, int(server.values["speculative_num_steps"]))
                request.verify_ct += 1
                request.accepted += accepted
                request.histogram[accepted] += 1
                self.spec_tokens += accepted + 1
                self.spec_forward += 1
                count = accepted + 1
            self.generated += count
            items.append(self._advance(request, count))
        self._emit(items)
        self.forward_ct += 1
        if self.forward_ct % int(server.values["decode_log_interval"]) == 0:
            self._decode_stats(graph)
        self.running = [request for request in self.running if request.finish_reason() is None]

    def _accept(self, chance: float, steps: int) -> int:
        """How many of `steps` draft tokens are right before the first wrong one."""
        for accepted in range(steps):
            if self.noise.random() >= chance:
                return accepted
        return steps

    def _decode_stats(self, graph: bool) -> None:
        now = time.perf_counter()
        self.last_throughput = self.generated / max(now - self.decode_tic, 1e-6)
        self.decode_tic, self.generated = now, 0
        accept_len = None
        if self.spec_forward:
            accept_len = self.spec_tokens / self.spec_forward
            self.total_spec_tokens += self.spec_tokens
            self.total_spec_forward += self.spec_forward
            self.spec_tokens = self.spec_forward = 0
        stats = DecodeStats(
            running=len(self.running),
            tokens=self._usage(),
            usage=self._usage() / self.tokens,
            accept_len=accept_len,
            draft_tokens=int(self.server.values["speculative_num_draft_tokens"] or 0),
            graph=graph,
            throughput=self.last_throughput,
            queued=len(self.waiting),
        )
        self.voice.say(decode_line(self.server.spoken, stats))

    def _emit(self, items: list[dict[str, Any]]) -> None:
        try:
            self.detokenizer.send({"items": items})
        except PeerGone:
            self.running.clear()
            self.waiting.clear()


def follow(group: Group) -> None:
    """Every rank but 0: take part in what rank 0 does."""
    leader = group.channels[0]
    while True:
        try:
            leader.receive()
            leader.send({"op": "done"})
        except PeerGone:
            group.lost(FORWARD_FRAMES[:2])


def run_rank(server: Server, rank: int, ends: Ends) -> int:
    """The body of a scheduler process; returns its exit code."""
    values, settings = server.values, server.settings
    gpu = gpu_of(rank, values["base_gpu_id"], values["gpu_id_step"])
    holder = Holder(settings.gpus_dir, gpu, title_of(rank, values))

    def end(number: int, _frame: object) -> None:
        if not settings.faults.keep_holder:
            holder.release()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if settings.faults.ignore_sigterm else end)
    voice = Voice(prefix_of(rank, values))
    group = Group(rank, ends.peers, hang_on_death=settings.faults.hang_on_rank_death)
    try:
        startup = Startup(server, rank, group, voice, holder)
        startup.run(gpu)
        limit = server.context_length - 6
        ends.ready.send(
            {"status": "ready", "max_total_num_tokens": startup.tokens(), "max_req_input_len": limit}
        )
        startup.stage("serving")
        if rank == 0:
            Scheduler(server, group, voice, ends, startup.tokens()).run()
        follow(group)
    except SimulatedError as error:
        voice.say(
            f"Scheduler hit an exception: {tracebacks.render(server.install, error.frames, error.last)}"
        )
        if os.getppid() == server.launcher_pid:
            os.kill(server.launcher_pid, signal.SIGQUIT)
            time.sleep(5)  # the launcher kills everybody
    finally:
        if not settings.faults.keep_holder:
            holder.release()
    return 0


def run_detokenizer(server: Server, scheduler: Channel, launcher: Channel) -> int:
    """The body of the detokenizer process: text for ids."""
    if server.settings.faults.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            for message in scheduler.receive_some():
                for item in message["items"]:
                    item["text"] = text.untokenize(item["ids"])
                launcher.send(message)
        except PeerGone:
            signal.pause()
