"""Replies: the keys of the captured ones, what a request travels through, and that they say they are
simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.sglang import metrics

from .kit import Node, Running, started

# Keys of replies captured from a real 0.5.9, in their order.
KEYS: dict[str, list[str]] = json.loads((Path(__file__).parent / "captures" / "keys_0.5.9.json").read_text())


@pytest.fixture(scope="module")
def server(fixed: Node) -> Iterator[Running]:
    fixed.settings()
    with started(fixed) as running:
        running.wait_ready()
        yield running


def test_server_info_has_the_real_ones_keys(server: Running) -> None:
    ours = server.get("/get_server_info")
    assert [key for key in ours if key != "simulated"] == KEYS["server_info"]
    assert ours["simulated"] is True
    (state,) = ours["internal_states"]
    # draft_runner_cache_size and max_num_reqs are the CPU attention backend's.
    assert set(KEYS["internal_state"]) - set(state) <= {"draft_runner_cache_size", "max_num_reqs"}
    assert ours["version"] == "0.5.9"
    assert "Endpoint '/get_server_info' is deprecated" in server.log()


def test_average_accept_length_comes_with_the_first_decode_line(server: Running) -> None:
    server.request("POST", "/flush_cache")
    assert metrics.server_info(server.get("/server_info")).ranks[0].accept_len is None
    server.generate(300)
    found = metrics.server_info(server.get("/server_info")).ranks[0].accept_len
    assert found is not None
    assert 2.5 < found < 4.5


def test_generate_has_the_real_ones_keys_and_consistent_counts(server: Running) -> None:
    ours = server.generate(64)
    assert list(ours) == KEYS["generate"]
    meta = ours["meta_info"]
    assert [key for key in meta if key != "simulated"] == KEYS["meta_info"]
    assert meta["simulated"] is True
    assert meta["completion_tokens"] == len(ours["output_ids"]) == 64
    assert meta["finish_reason"] == {"type": "length", "length": 64}
    verified, histogram = meta["spec_verify_ct"], meta["spec_accept_histogram"]
    assert sum(histogram) == verified
    assert sum(count * number for number, count in enumerate(histogram)) == meta["spec_accept_token_num"]
    assert meta["spec_accept_length"] == 64 / verified
    assert meta["spec_draft_token_num"] == 5 * verified
    assert meta["spec_accept_rate"] == meta["spec_accept_token_num"] / meta["spec_draft_token_num"]


def test_text_at_temperature_zero_is_the_prompts_alone(server: Running) -> None:
    first, again = server.generate(40, "What is a draft?"), server.generate(40, "What is a draft?")
    other = server.generate(40, "What is a target?")
    assert first["text"] == again["text"]
    assert first["text"] != other["text"]
    assert again["meta_info"]["cached_tokens"] > 0


def test_input_ids_and_batches(server: Running) -> None:
    one = server.generate(5, None, input_ids=[1, 2, 3])
    assert one["meta_info"]["prompt_tokens"] == 3
    two = server.generate(5, ["a b c", "d"])
    assert [reply["meta_info"]["completion_tokens"] for reply in two] == [5, 5]
    assert "#new-seq: 2" in server.log() or server.log().count("Prefill batch") > 3


def test_a_stream_grows_and_ends(server: Running) -> None:
    body = {"text": "Hi", "stream": True, "sampling_params": {"max_new_tokens": 30, "temperature": 0}}
    status, raw, headers = server.request("POST", "/generate", body)
    events = [part.removeprefix("data: ") for part in raw.decode().split("\n\n") if part]
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    counts = [json.loads(event)["meta_info"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == 30
    assert len(counts) > 3


def test_chat_and_models(server: Running) -> None:
    body = {
        "model": "x",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 6,
        "ignore_eos": True,
    }
    reply = json.loads(server.request("POST", "/v1/chat/completions", body)[1])
    assert reply["choices"][0]["message"]["role"] == "assistant"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 6
    (card,) = server.get("/v1/models")["data"]
    assert card["max_model_len"] == 262144


def test_other_paths(server: Running) -> None:
    assert server.get("/model_info")["architectures"] == ["DeepseekV3ForCausalLM"]
    assert server.get("/get_load")[0]["num_reqs"] == 0
    status, body, headers = server.request("GET", "/metrics")
    assert (status, json.loads(body)) == (404, {"detail": "Not Found"})
    assert headers["server"] == "uvicorn (simulated)"
    assert server.request("GET", "/generate")[0] == 405
    assert server.request("POST", "/generate", {})[0] == 400
    status, text, _ = server.request("POST", "/flush_cache")
    assert (status, text[:14]) == (200, b"Cache flushed.")
    assert server.request("GET", "/health_generate")[0] == 200


def test_with_an_api_key_only_health_is_open(fixed: Node) -> None:
    fixed.settings(memory_is_limited=False)
    with started(fixed, "--api-key", "sk-practice") as server:
        server.wait_ready()
        assert server.health() == 200
        assert server.request("GET", "/server_info")[0] == 401
        assert server.request("GET", "/server_info", None, Authorization="Bearer sk-practice")[0] == 200
        assert (
            "api_key='sk-practice'" in server.log()
        )  # as the real one: it is the toolkit that has to mask it
