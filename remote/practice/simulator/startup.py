"""A rank's start-up: weights of target and draft, KV cache, CUDA graphs, with the log lines of 0.5.x on GPUs.

Lines as in model_executor/model_runner.py, cuda_graph_runner.py, speculative/eagle_worker.py,
managers/scheduler.py.
"""

from __future__ import annotations

import os
import time

from . import failures, logs, modelcheck
from .holders import Holder
from .models import Model
from .rank import Group, Pace, Server, Voice, hang
from .tracebacks import SCHEDULER_FRAMES


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
        self.others_mib = holder.others_mib() if server.settings.memory_is_limited else 0
        self.at = "starting"

    def _free_mib(self) -> float:
        return self.server.settings.gpu_total_mib - self.used_mib - self.others_mib

    def _avail_gb(self) -> float:
        return self._free_mib() / 1024

    def _grow(self, mib: float) -> None:
        if mib > self._free_mib():
            raise self._out_of_memory()
        self.used_mib += mib
        self.holder.hold(int(self.used_mib))

    def _out_of_memory(self) -> Exception:
        total = self.server.settings.gpu_total_mib
        return failures.out_of_memory(self.rank, self.at, free_mib=self._free_mib(), total_mib=total)

    def stage(self, name: str) -> None:
        """Enter a stage: where faults that are set for it strike."""
        self.at = name
        faults = self.server.settings.faults
        if faults.rank_dies and faults.rank_dies.at == name and faults.rank_dies.rank == self.rank:
            os.kill(os.getpid(), faults.rank_dies.signal)
        if faults.hang_at == name:
            hang()
        if faults.oom_at == name:
            raise self._out_of_memory()

    def run(self, gpu: int | None) -> None:
        """All of it; `gpu` is None when CUDA_VISIBLE_DEVICES does not show this rank's."""
        server, settings = self.server, self.server.settings
        self.stage("starting")
        self._distributed(gpu)
        self._grow(settings.context_mib)
        for line in server.plan.ignored:
            self.voice.say(line)
        name = server.target.architecture
        if server.plan.fallback:
            self.voice.say(modelcheck.fallback(server.target))
            name = "TransformersForCausalLM"
        self._load(server.target, name, "loading-target", settings.weights_mib, 0.7)
        self._kv_cache(settings.kv_mib, "KV size")
        self._target_graphs(name)
        if server.draft_path is not None:
            self._draft(name)
        self.group.barrier(SCHEDULER_FRAMES[:2])
        if self.rank == 0:
            self._summary()

    def _distributed(self, gpu: int | None) -> None:
        tic, draft = time.monotonic(), self.used_mib > 0
        self.voice.say("Init torch distributed begin.")
        if gpu is None:
            raise failures.no_such_gpu()
        self.pace.sleep(0.08)
        if self.server.settings.faults.nccl:
            raise failures.nccl()
        own = self._avail_gb()
        least = self.group.least(own, SCHEDULER_FRAMES)
        if not draft and least < own * 0.9:
            raise failures.unbalanced(least, own)
        if self.rank == 0 and not draft and self.server.values["tp_size"] > 1:
            self.voice.say("sglang is using nccl==2.27.5")
        took, usage = time.monotonic() - tic, 0.0 if draft else 0.09
        self.voice.say(f"Init torch distributed ends. elapsed={took:.2f} s, mem usage={usage:.2f} GB")

    def _load(self, model: Model, architecture: str, stage: str, mib: float, seconds: float) -> None:
        tic, before = time.monotonic(), self._avail_gb()
        self.voice.say(f"Load weight begin. avail mem={before:.2f} GB")
        if self.server.plan.fallback and stage == "loading-target":
            self.voice.say("Using Transformers backend.")
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
        if stage == "loading-draft" and "Eagle3" in model.architecture:
            failures.check_draft_weights(model)
        self.group.barrier(SCHEDULER_FRAMES)
        after = self._avail_gb()
        self.voice.say(
            f"Load weight end. elapsed={time.monotonic() - tic:.2f} s, type={architecture}, "
            f"dtype=torch.bfloat16, avail mem={after:.2f} GB, mem usage={before - after:.2f} GB."
        )

    def _kv_cache(self, mib: float, size: str) -> None:
        self.voice.say("Using KV cache dtype: torch.bfloat16")
        if mib > self._free_mib():
            raise failures.kv_pool_too_small()
        self._grow(mib)
        gb = mib / 1024
        sizes = (
            f"{size}: {gb:.2f} GB"
            if size == "KV size"
            else f"{size}: {gb / 2:.2f} GB, V size: {gb / 2:.2f} GB"
        )
        self.voice.say(f"KV Cache is allocated. #tokens: {self.tokens()}, {sizes}")
        self.voice.say(f"Memory pool end. avail mem={self._avail_gb():.2f} GB")

    def tokens(self) -> int:
        """max_total_num_tokens: as asked for, else what the memory holds (68.6 KiB a token: MLA, 61 layers,
        bf16).
        """
        return int(self.server.values["max_total_tokens"] or self.server.settings.kv_mib * 1024 / 68.625)

    def _target_graphs(self, architecture: str) -> None:
        graphs = not self.server.values["disable_cuda_graph"]
        if graphs:
            self._capture("cuda graph", self.server.settings.graph_mib, 0.35, architecture)
        modelcheck.check_capture_hook(self.server, architecture, graphs=False)
        self._hook_lines(before_graphs=False)
        modelcheck.check_setting(self.server, graphs=False)

    def _hook_lines(self, *, before_graphs: bool) -> None:
        """What the installed code logs when it sets the layers to capture, at the call that is due."""
        early, late = self.server.plan.hook_lines()
        if self.server.eagle3:
            for message in early if before_graphs else late:
                self.voice.say(message)

    def _capture(self, what: str, mib: float, seconds: float, target: str | None = None) -> None:
        """Capture the graphs of one runner; `target` is the target's class when it is the target's."""
        tic, before = time.monotonic(), self._avail_gb()
        self.voice.say(
            f"Capture {what} begin. This can take up to several minutes. avail mem={before:.2f} GB"
        )
        sizes: list[int] = list(self.server.values["cuda_graph_bs"])
        if target:
            self.stage("graph-capture")
            if self.rank == 0:
                self.voice.say(f"Capture cuda graph bs {sizes}")
            modelcheck.check_capture_hook(self.server, target, graphs=True)
            self._hook_lines(before_graphs=True)
            modelcheck.check_setting(self.server, graphs=True)
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
            f"Capture {what} end. Time elapsed: {time.monotonic() - tic:.2f} s. "
            f"mem usage={before - after:.2f} GB. avail mem={after:.2f} GB."
        )

    def _draft(self, target: str) -> None:
        draft = self.server.draft
        if draft is None:
            raise modelcheck.no_draft(str(self.server.draft_path))
        modelcheck.check_draft(self.server, draft)
        self._distributed(0)
        again = draft.architecture == self.server.target.architecture  # the target itself given as the draft
        mib = self.server.settings.weights_mib if again else self.server.settings.draft_mib
        self._load(draft, draft.architecture, "loading-draft", mib, 0.15)
        self._kv_cache(256, "K size")
        modelcheck.check_sharing(self.server, target, draft)
        if not self.server.values["disable_cuda_graph"]:
            if self.server.values["speculative_num_steps"] > 1:
                self._capture("draft cuda graph", 220, 0.1)
            self._capture("draft extend cuda graph", 180, 0.1)

    def _summary(self) -> None:
        values = self.server.values
        running = values["max_running_requests"] or self.tokens() // 2
        self.voice.say(
            f"max_total_num_tokens={self.tokens()}, chunked_prefill_size={values['chunked_prefill_size']}, "
            f"max_prefill_tokens={values['max_prefill_tokens']}, max_running_requests={running}, "
            f"context_len={self.server.context_length}, available_gpu_mem={self._avail_gb():.2f} GB"
        )
