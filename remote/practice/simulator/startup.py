"""A rank's start-up: weights of target and draft, KV cache, CUDA graphs, with the log lines of SGLang 0.5.x on GPUs.

Lines as in model_executor/model_runner.py, cuda_graph_runner.py, speculative/eagle_worker.py and managers/scheduler.py.
"""

from __future__ import annotations

import os
import time

from . import failures, logs
from .holders import Holder
from .models import Model
from .rank import Group, Pace, Server, Voice, hang
from .tracebacks import SCHEDULER_FRAMES, SimulatedError


class Startup:
    """One rank on its way to serving. Raises SimulatedError where the real one would fail."""

    def __init__(self, server: Server, rank: int, group: Group, voice: Voice, holder: Holder) -> None:
        self.server = server
        self.rank = rank
        self.group = group
        self.voice = voice
        self.holder = holder
        self.pace = Pace(server.settings.speed)
        self.used_mib = 0.0

    def _avail_gb(self) -> float:
        return (self.server.settings.gpu_total_mib - self.used_mib) / 1024

    def _grow(self, mib: float) -> None:
        self.used_mib += mib
        self.holder.hold(int(self.used_mib))

    def stage(self, name: str) -> None:
        """Enter a stage: where faults that are set for it strike."""
        faults = self.server.settings.faults
        if faults.rank_dies and faults.rank_dies.at == name and faults.rank_dies.rank == self.rank:
            os.kill(os.getpid(), faults.rank_dies.signal)
        if faults.hang_at == name:
            hang()
        if faults.oom_at == name:
            raise failures.out_of_memory(self.rank, name, self._avail_gb())

    def run(self) -> None:
        self.stage("starting")
        self._distributed()
        if self.server.settings.faults.nccl:
            raise failures.nccl()
        self._grow(self.server.settings.context_mib)
        architecture = failures.imported_architecture(self.server, self.voice)
        self._load(self.server.target, architecture, "loading-target", self.server.settings.weights_mib, 0.7)
        failures.check_hooks(self.server, architecture)
        self._kv_cache(self.server.settings.kv_mib, "KV size")
        self._target_graphs()
        if self.server.draft is not None:
            self._draft(self.server.draft)
        self.group.barrier(SCHEDULER_FRAMES[:2])
        if self.rank == 0:
            self._summary()

    def _distributed(self) -> None:
        tic = time.monotonic()
        self.voice.say("Init torch distributed begin.")
        self.pace.sleep(0.08)
        self.group.barrier(SCHEDULER_FRAMES)
        if self.rank == 0 and self.used_mib == 0 and self.server.values["tp_size"] > 1:
            self.voice.say("sglang is using nccl==2.27.5")
        took = time.monotonic() - tic
        self.voice.say(
            f"Init torch distributed ends. elapsed={took:.2f} s, mem usage={0.09 if self.used_mib == 0 else 0.0:.2f} GB"
        )

    def _load(self, model: Model, architecture: str, stage: str, mib: float, seconds: float) -> None:
        tic, before = time.monotonic(), self._avail_gb()
        self.voice.say(f"Load weight begin. avail mem={before:.2f} GB")
        self.stage(stage)
        if not model.shards:
            raise failures.no_weights(model.path)
        total = len(model.shards)
        for done in range(total + 1):
            if done:
                self.pace.sleep(seconds / total)
                self._grow(mib / total)
            if self.rank == 0:
                logs.raw(logs.shard_bar(done, total, time.monotonic() - tic))
        if self.rank == 0:
            logs.raw("\n")
        if model is self.server.draft:
            failures.check_draft_weights(self.server)
        self.group.barrier(SCHEDULER_FRAMES)
        after = self._avail_gb()
        self.voice.say(
            f"Load weight end. elapsed={time.monotonic() - tic:.2f} s, type={architecture}, dtype=torch.bfloat16, "
            f"avail mem={after:.2f} GB, mem usage={before - after:.2f} GB."
        )

    def _kv_cache(self, mib: float, size: str) -> None:
        self.voice.say("Using KV cache dtype: torch.bfloat16")
        self._grow(mib)
        tokens, gb = self.tokens(), mib / 1024
        sizes = (
            f"KV size: {gb:.2f} GB"
            if size == "KV size"
            else f"K size: {gb / 2:.2f} GB, V size: {gb / 2:.2f} GB"
        )
        self.voice.say(f"KV Cache is allocated. #tokens: {tokens}, {sizes}")
        self.voice.say(f"Memory pool end. avail mem={self._avail_gb():.2f} GB")

    def tokens(self) -> int:
        """max_total_num_tokens: what was asked for, else what the cache's memory holds (68 KiB a token for MLA with 61 layers)."""
        return int(self.server.values["max_total_tokens"] or self.server.settings.kv_mib * 1024 / 68.625)

    def _target_graphs(self) -> None:
        if not self.server.values["disable_cuda_graph"]:
            self._capture("Capture cuda graph", self.server.settings.graph_mib, 0.35, stage="graph-capture")
        if self.server.eagle3:
            for _, message in self.server.plan.logged:
                self.voice.say(message)
            failures.check_setting(self.server)

    def _capture(self, what: str, mib: float, seconds: float, *, stage: str | None = None) -> None:
        tic, before = time.monotonic(), self._avail_gb()
        self.voice.say(f"{what} begin. This can take up to several minutes. avail mem={before:.2f} GB")
        if stage:
            self.stage(stage)
        sizes: list[int] = list(self.server.values["cuda_graph_bs"])
        if self.rank == 0 and stage:
            self.voice.say(f"Capture cuda graph bs {sizes}")
        for done in range(len(sizes) + 1):
            if done:
                self.pace.sleep(seconds / len(sizes))
            if self.rank == 0:
                size = sizes[::-1][min(done, len(sizes) - 1)]
                label = f"Capturing batches (bs={size} avail_mem={self._avail_gb():.2f} GB)"
                logs.raw(logs.capture_bar(label, done, len(sizes), time.monotonic() - tic))
        if self.rank == 0:
            logs.raw("\n")
        self._grow(mib)
        self.group.barrier(SCHEDULER_FRAMES)
        after = self._avail_gb()
        self.voice.say(
            f"{what} end. Time elapsed: {time.monotonic() - tic:.2f} s. "
            f"mem usage={before - after:.2f} GB. avail mem={after:.2f} GB."
        )

    def _draft(self, draft: Model) -> None:
        self._distributed()
        failures.check_draft(self.server)
        self._load(draft, draft.architecture, "loading-draft", self.server.settings.draft_mib, 0.15)
        self._kv_cache(256, "K size")
        if not self.server.values["disable_cuda_graph"]:
            if self.server.values["speculative_num_steps"] > 1:
                self._capture("Capture draft cuda graph", 220, 0.1)
            self._capture("Capture draft extend cuda graph", 180, 0.1)

    def _summary(self) -> None:
        values = self.server.values
        running = values["max_running_requests"] or self.tokens() // 2
        self.voice.say(
            f"max_total_num_tokens={self.tokens()}, chunked_prefill_size={values['chunked_prefill_size']}, "
            f"max_prefill_tokens={values['max_prefill_tokens']}, max_running_requests={running}, "
            f"context_len={values['context_length'] or self.server.target.context_length}, "
            f"available_gpu_mem={self._avail_gb():.2f} GB"
        )


__all__ = ["SimulatedError", "Startup"]
