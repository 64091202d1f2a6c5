"""The replies of the HTTP endpoints (entrypoints/http_server.py, 0.5.5 to 0.5.12)."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import logs
from .frontend import Frontend

_DEPRECATED = "Endpoint '{}' is deprecated and will be removed in a future version. Please use '{}' instead."


@dataclass(frozen=True)
class Reply:
    """A whole reply, or with `stream` its pieces as they come."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    stream: Iterator[bytes] | None = field(default=None, compare=False)


def _json(content: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def _bad_request(message: str) -> Reply:
    return _json({"error": {"message": message}}, 400)


class Endpoints:
    """Answers requests. `facts` are what the schedulers told when they became ready."""

    def __init__(self, frontend: Frontend, facts: dict[str, Any]) -> None:
        self.frontend = frontend
        self.server = frontend.server
        self.facts = facts
        self.created = int(time.time())
        spoken = self.server.spoken
        self.routes: dict[tuple[str, str], Callable[[dict[str, Any]], Reply]] = {
            ("GET", "/health"): self.health,
            ("GET", "/health_generate"): self.health_generate,
            ("GET", "/get_server_info"): self.get_server_info,
            ("GET", "/get_model_info"): self.get_model_info,
            ("GET", "/get_load"): self.get_load,
            ("GET", "/v1/models"): self.v1_models,
            ("POST", "/generate"): self.generate,
            ("PUT", "/generate"): self.generate,
            ("POST", "/v1/chat/completions"): self.chat,
            ("GET", "/flush_cache"): self.flush_cache,
            ("POST", "/flush_cache"): self.flush_cache,
        }
        if spoken.server_info:
            self.routes |= {
                ("GET", "/server_info"): self.server_info,
                ("GET", "/model_info"): self.model_info,
            }

    def answer(self, method: str, path: str, body: dict[str, Any], authorization: str | None) -> Reply:
        key = self.server.values.get("api_key")
        if key and not path.startswith(("/health", "/metrics")) and authorization != f"Bearer {key}":
            return _json({"error": "Unauthorized"}, 401)
        route = self.routes.get((method, path))
        if route is None:
            known = any(other == path for _, other in self.routes)
            return _json({"detail": "Method Not Allowed" if known else "Not Found"}, 405 if known else 404)
        return route(body)

    def health(self, body: dict[str, Any]) -> Reply:
        return self.health_generate(body, lies=self.server.settings.faults.health_lies)

    def health_generate(self, body: dict[str, Any], *, lies: bool = False) -> Reply:
        """Generate one token; look once a second whether the detokenizer has said anything (health_generate,
        0.5.9).
        """
        del body
        frontend, settings = self.frontend, self.server.settings
        if frontend.leaving:
            logs.log("Health check request received during shutdown. Returning 503.")
            return Reply(503)
        if frontend.status == "Starting":
            return Reply(503)
        if lies:
            return Reply(200)
        tic = time.time()
        request = frontend.generate([0], {"max_new_tokens": 1, "temperature": 0.0}, rid=f"HEALTH_CHECK_{tic}")
        waiting = _Background(request)
        while time.time() < tic + settings.health_timeout_s:
            time.sleep(settings.health_s)
            if frontend.last_receive > tic:
                frontend.status = "Up"
                waiting.forget()
                return Reply(200)
        waiting.forget()
        last = time.strftime("%H:%M:%S", time.localtime(frontend.last_receive))
        logs.log(
            f"Health check failed. Server couldn't get a response from detokenizer for last "
            f"{settings.health_timeout_s:g} seconds. "
            f"tic start time: {time.strftime('%H:%M:%S', time.localtime(tic))}. last_heartbeat time: {last}"
        )
        frontend.status = "UnHealthy"
        return Reply(503)

    def _warn(self, old: str, new: str, *, since: bool) -> None:
        if since:
            logs.log(_DEPRECATED.format(old, new))

    def get_server_info(self, body: dict[str, Any]) -> Reply:
        self._warn("/get_server_info", "/server_info", since=self.server.spoken.server_info)
        return self.server_info(body)

    def server_info(self, body: dict[str, Any]) -> Reply:
        del body
        values = dict(self.server.values)
        state = values | {
            "context_length": values["context_length"] or self.server.target.context_length,
            "pp_max_micro_batch_size": values["max_running_requests"],
            "decode_attention_backend": values["attention_backend"],
            "prefill_attention_backend": values["attention_backend"],
            "use_mla_backend": True,
        }
        state |= self.frontend.control("internal_state")
        found = {**values, **self.facts, "internal_states": [state], "version": self.server.install.version}
        return _json(found | {"simulated": True})

    def get_model_info(self, body: dict[str, Any]) -> Reply:
        self._warn("/get_model_info", "/model_info", since=self.server.spoken.server_info)
        return self.model_info(body)

    def model_info(self, body: dict[str, Any]) -> Reply:
        del body
        values, config = self.server.values, self.server.target.config
        found = {
            "model_path": values["model_path"],
            "tokenizer_path": values["tokenizer_path"],
            "is_generation": True,
            "preferred_sampling_params": values["preferred_sampling_params"],
            "weight_version": values.get("weight_version", "default"),
        }
        if self.server.spoken.number >= (0, 5, 7):
            found |= {
                "has_image_understanding": "vision_config" in config,
                "has_audio_understanding": False,
                "model_type": config.get("model_type"),
                "architectures": config.get("architectures"),
            }
        return _json(found | {"simulated": True})

    def get_load(self, body: dict[str, Any]) -> Reply:
        del body
        self._warn("/get_load", "/v1/loads", since=self.server.spoken.get_load_deprecated)
        # Fields of a message between SGLang's processes; without data parallelism there is no rank.
        around = {"rid": None, "http_worker_ipc": None, "dp_rank": None}
        load = self.frontend.control("load")
        return _json([{**around, **load, "num_tokens": 0, "ts_tic": time.perf_counter()}])

    def v1_models(self, body: dict[str, Any]) -> Reply:
        del body
        name = self.server.values["served_model_name"]
        card = {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self.server.values["context_length"] or self.server.target.context_length,
        }
        return _json({"object": "list", "data": [card]})

    def flush_cache(self, body: dict[str, Any]) -> Reply:
        del body
        done = self.frontend.control("flush_cache")["success"]
        text = (
            "Cache flushed.\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )
        return Reply(200 if done else 400, text.encode(), "text/plain; charset=utf-8")

    def generate(self, body: dict[str, Any]) -> Reply:
        given = body.get("text") if body.get("text") is not None else body.get("input_ids")
        if given is None or given == []:
            return _bad_request("Either text, input_ids or input_embeds should be provided.")
        sampling = body.get("sampling_params") or {}
        batch = isinstance(given, list) and isinstance(given[0], str | list)
        prompts = [
            self.frontend.tokens_of(one) if isinstance(one, str) else one
            for one in (given if batch else [given])
        ]
        samplings = sampling if isinstance(sampling, list) else [sampling] * len(prompts)
        rids = body.get("rid")
        names = rids if isinstance(rids, list) else [rids] * len(prompts)
        runs = [
            self.frontend.generate(prompt, one, rid=name)
            for prompt, one, name in zip(prompts, samplings, names, strict=True)
        ]
        if body.get("stream"):
            return Reply(kind="text/event-stream; charset=utf-8", stream=_events(runs[0]))
        outputs = _all_finished(runs)
        return _json(outputs if batch else outputs[0])

    def chat(self, body: dict[str, Any]) -> Reply:
        """/v1/chat/completions without streaming, tools or images."""
        messages = body.get("messages")
        if not messages:
            return _bad_request("Messages cannot be empty.")
        prompt = (
            "\n".join(f"{message.get('role')}: {_content(message)}" for message in messages) + "\nassistant:"
        )
        sampling = {
            "max_new_tokens": body.get("max_completion_tokens") or body.get("max_tokens") or 128,
            "temperature": body.get("temperature", 1.0),
            "ignore_eos": body.get("ignore_eos", False),
        }
        output = _all_finished([self.frontend.generate(self.frontend.tokens_of(prompt), sampling)])[0]
        meta = output["meta_info"]
        usage = {
            "prompt_tokens": meta["prompt_tokens"],
            "total_tokens": meta["prompt_tokens"] + meta["completion_tokens"],
            "completion_tokens": meta["completion_tokens"],
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": output["text"],
                "reasoning_content": None,
                "tool_calls": None,
            },
            "logprobs": None,
            "finish_reason": meta["finish_reason"]["type"],
            "matched_stop": meta["finish_reason"].get("matched"),
        }
        found = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model", self.server.values["served_model_name"]),
            "choices": [choice],
            "usage": usage,
            "metadata": {"weight_version": "default"},
        }
        return _json(found | {"simulated": True})


def _content(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


def _events(run: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for output in run:
        yield b"data: " + json.dumps(output, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


class _Background:
    """A request that goes on while something else is looked at."""

    def __init__(self, run: Iterator[dict[str, Any]]) -> None:
        self._run = run
        self.output: dict[str, Any] | None = None
        self.thread = threading.Thread(target=self._exhaust, daemon=True)
        self.thread.start()

    def _exhaust(self) -> None:
        for output in self._run:
            self.output = output

    def forget(self) -> None:
        """Nobody waits for the end any more; the thread ends with the request, or with the process."""


def _all_finished(runs: list[Iterator[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The last output of each, run at the same time."""
    started = [_Background(run) for run in runs]
    for one in started:
        one.thread.join()
    return [one.output for one in started if one.output is not None]
