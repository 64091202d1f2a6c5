"""The launcher's side of a request: to the scheduler and, by way of the detokenizer, back (SGLang:
TokenizerManager).
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from . import text
from .channel import Channel, Message, PeerGone
from .dialect import spec_metrics
from .rank import Server


class Silent(Exception):
    """The scheduler did not answer a control request; the HTTP reply never comes, as with the real one."""


class Frontend:
    """Requests under way. `status` is Starting, Up or UnHealthy as in SGLang's ServerStatus."""

    def __init__(self, server: Server, scheduler: Channel, detokenizer: Channel) -> None:
        self.server = server
        self.status = "Starting"
        self.leaving = False
        self.last_receive = 0.0
        self._scheduler = scheduler
        self._detokenizer = detokenizer
        self._sending = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[Message]] = {}
        self._controls: dict[str, queue.SimpleQueue[Message]] = {}

    def start(self) -> None:
        for read in (self._read_outputs, self._read_controls):
            threading.Thread(target=read, daemon=True).start()

    def _read_outputs(self) -> None:
        try:
            while True:
                for message in self._detokenizer.receive_some():
                    self.last_receive = time.time()
                    for item in message["items"]:
                        waiting = self._waiting.get(item["rid"])
                        if waiting:
                            waiting.put(item)
        except PeerGone:
            return

    def _read_controls(self) -> None:
        try:
            while True:
                for message in self._scheduler.receive_some():
                    asked = self._controls.pop(message["id"], None)
                    if asked:
                        asked.put(message)
        except PeerGone:
            return

    def remaining(self) -> list[str]:
        return list(self._waiting)

    def _send(self, message: Message) -> None:
        with self._sending:
            try:
                self._scheduler.send(message)
            except PeerGone:
                return  # nobody answers: the request stays open

    def control(self, op: str) -> dict[str, Any]:
        """Ask rank 0 something and wait for as long as it takes."""
        identity = uuid.uuid4().hex
        answer: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._controls[identity] = answer
        self._send({"op": op, "id": identity})
        content: dict[str, Any] = answer.get()["content"]
        return content

    def generate(
        self, ids: list[int], sampling: dict[str, Any], *, rid: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Outputs so far, one after each batch of tokens: text, output_ids, meta_info.

        Closing it aborts the request.
        """
        rid = rid or uuid.uuid4().hex
        created = time.time()
        outputs: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._waiting[rid] = outputs
        limit = sampling.get("max_new_tokens")
        self._send(
            {
                "op": "generate",
                "rid": rid,
                "ids": ids,
                "max_new_tokens": 128 if limit is None else int(limit),
                "temperature": float(sampling.get("temperature", 1.0)),
                "ignore_eos": bool(sampling.get("ignore_eos", False)),
                "health": rid.startswith("HEALTH_CHECK"),
            }
        )
        finished = False
        try:
            said, tokens = "", list[int]()
            while not finished:
                item = outputs.get()
                said += item["text"]
                tokens += item["ids"]
                finished = item["finish"] is not None
                yield {"text": said, "output_ids": list(tokens), "meta_info": self._meta(rid, item, created)}
        finally:
            self._waiting.pop(rid, None)
            if not finished:
                self._send({"op": "abort", "rid": rid})

    def _meta(self, rid: str, item: Message, created: float) -> dict[str, Any]:
        values, spoken, counted = self.server.values, self.server.spoken, item["meta"]
        retractions = "num_retractions" if spoken.number >= (0, 5, 12) else "total_retractions"
        found: dict[str, Any] = {
            "id": rid,
            "finish_reason": item["finish"],
            "prompt_tokens": counted.get("prompt_tokens", 1),
            "weight_version": values.get("weight_version", "default"),
            retractions: 0,
        }
        if spoken.number >= (0, 5, 12):
            found["reasoning_tokens"] = 0
        found |= {
            "completion_tokens": counted.get("completion_tokens", 0),
            "cached_tokens": counted.get("cached_tokens", 0),
            "cached_tokens_details": None,
        }
        if item["finish"] is not None:
            now = time.time()
            found["e2e_latency"] = now - created
            if self.server.speculative and counted:
                found |= spec_metrics(
                    spoken,
                    verify_ct=counted["verify_ct"],
                    accepted=counted["accepted"],
                    completion_tokens=counted["completion_tokens"],
                    histogram=counted["histogram"],
                    steps=int(values["speculative_num_steps"]),
                    draft_tokens=int(values["speculative_num_draft_tokens"]),
                )
            found["response_sent_to_client_ts"] = now
        found["simulated"] = True
        return found

    def tokens_of(self, prompt: str) -> list[int]:
        return text.tokenize(prompt, self.server.target.vocab_size)
