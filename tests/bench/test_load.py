"""The load generator against servers whose replies are known: what it counts, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from remote.node.base import OpError
from remote.node.load import bench, repetition
from remote.sglang.metrics import generation
from tests.bench.kit import HEAD, Exchange, Scripted, meta, reply, serving
from tests.node.kit import Probe
from tests.support import free_port, wait_until

PROJECT = Path(__file__).resolve().parents[2]
BODY = {"text": "Hello", "sampling_params": {"temperature": 0, "max_new_tokens": 12}}


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path / "state")


def params(port: int, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"port": port, "bodies": {"a": BODY}, "requests": ["a"] * count, "progress_s": 0.01, **more}


def run(script: Any, probe: Probe, count: int = 1, **more: Any) -> tuple[dict[str, Any], Scripted]:
    with serving(script) as server:
        return bench(params(server.port, count, **more), probe.ctx), server


def only(result: dict[str, Any]) -> dict[str, Any]:
    (record,) = result["requests"]
    assert isinstance(record, dict)
    return record


def test_counts_are_the_servers_and_never_those_of_events(probe: Probe) -> None:
    result, server = run(lambda x: x.stream(reply(12, 4), events=3), probe)
    record = only(result)
    assert (record["events"], record["meta"]["completion_tokens"], record["meta"]["spec_verify_ct"]) == (
        3,
        12,
        4,
    )
    assert record["error"] is None
    assert record["output"]["tokens"] == 12
    assert result["ended"] == "done"
    assert server.seen == [{**BODY, "stream": True}]
    assert record["local_port"] == server.clients[0]


def test_the_time_to_the_first_token_ends_with_the_first_event(probe: Probe) -> None:
    first_s, rest_s = 0.15, 1.0
    record = only(run(lambda x: x.stream(reply(12), first_s=first_s, rest_s=rest_s), probe)[0])
    # A loaded machine makes each longer, never shorter; their difference it may do either.
    assert record["ttft_s"] >= first_s
    assert record["e2e_s"] >= first_s + rest_s
    assert record["e2e_s"] - record["ttft_s"] >= rest_s / 2


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_an_answer_may_come_in_pieces_of_any_size(probe: Probe, size: int) -> None:
    def script(exchange: Exchange) -> None:
        whole: list[bytes] = []
        exchange.send = whole.append  # type: ignore[method-assign, assignment]
        exchange.stream(reply(12, 4))
        data = b"".join(whole)
        for at in range(0, len(data), size):
            exchange.connection.sendall(data[at : at + size])

    record = only(run(script, probe)[0])
    assert record["error"] is None
    assert record["meta"]["spec_verify_ct"] == 4
    assert record["events"] == 3


def test_a_real_servers_stream(probe: Probe) -> None:
    """Captured from SGLang 0.5.23 with EAGLE-3: 24 tokens in six events, five verifications."""
    stream = (Path(__file__).parent / "captures" / "generate_stream_0.5.23.sse").read_bytes()

    def script(exchange: Exchange) -> None:
        exchange.send(HEAD)
        exchange.chunk(stream)
        exchange.send(b"0\r\n\r\n")

    record = only(run(script, probe)[0])
    assert record["error"] is None
    assert record["events"] == 6
    assert (record["meta"]["completion_tokens"], record["meta"]["spec_verify_ct"]) == (24, 5)
    assert record["meta"]["spec_correct_drafts_histogram"] == [0, 0, 1, 0, 0, 4]
    told = generation(record["meta"])
    assert told.accept_len == told.accept_len_server == 4.8
    assert record["output"]["tokens"] == 24
    assert record["output"]["repetition"] is None


def test_events_may_end_with_carriage_returns(probe: Probe) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(HEAD)
        exchange.chunk(b"data: " + json.dumps(reply(9, 3)).encode() + b"\r\n\r\ndata: [DONE]\r\n\r\n")

    assert only(run(script, probe)[0])["meta"]["completion_tokens"] == 9


def test_a_server_that_does_not_stream_has_no_first_token(probe: Probe) -> None:
    record = only(run(lambda x: x.json(reply(12, 4)), probe)[0])
    assert record["meta"]["completion_tokens"] == 12
    assert record["ttft_s"] is None
    assert record["e2e_s"] > 0


def broken_stream(exchange: Exchange) -> None:
    exchange.send(HEAD)
    exchange.event({"text": "", "output_ids": [1], "meta_info": {**meta(1), "finish_reason": None}})


def whole_but_unfinished(exchange: Exchange) -> None:
    broken_stream(exchange)
    exchange.end()


def error_within(exchange: Exchange) -> None:
    exchange.send(HEAD)
    exchange.event({"error": {"message": "input is too long", "code": 400}})
    exchange.end()


def aborted(exchange: Exchange) -> None:
    exchange.stream(reply(5, finish_reason={"type": "abort", "message": "out of memory"}))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (broken_stream, "closed within the answer"),
        (whole_but_unfinished, "before the generation did"),
        (error_within, "input is too long"),
        (aborted, "out of memory"),
        (lambda x: x.json({"error": {"message": "no such model"}}, "400 Bad Request"), "HTTP 400"),
        (lambda x: x.json({"detail": "nothing"}, "503 Service Unavailable"), "HTTP 503"),
        (lambda x: x.json([1, 2]), "not one of /generate"),
        (lambda x: x.send(b"hello\r\n\r\n"), "not HTTP"),
        (lambda x: x.send(HEAD + b"zz\r\n"), "chunks are damaged"),
        (lambda _: None, "without an answer"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure_with_its_reason(probe: Probe, script: Any, words: str) -> None:
    record = only(run(script, probe)[0])
    assert words in record["error"]
    assert record["meta"] == {}


def test_nobody_listens(probe: Probe) -> None:
    record = only(bench(params(free_port()), probe.ctx))
    assert "onnect" in record["error"]


def test_no_more_than_asked_at_once_and_all_of_them(probe: Probe) -> None:
    both = threading.Barrier(3)

    def script(exchange: Exchange) -> None:
        both.wait(20)  # three at a time, or none gets on
        exchange.stream(reply(12, 4))

    result, server = run(script, probe, 9, concurrency=3)
    assert len(result["requests"]) == 9
    assert {record["error"] for record in result["requests"]} == {None}
    assert server.most == 3


def test_progress_is_told_while_it_runs(probe: Probe) -> None:
    held = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.send(HEAD)
        exchange.event({**reply(40), "meta_info": {**meta(40), "finish_reason": None}})
        held.wait(20)
        exchange.event(reply(80))
        exchange.end()

    with serving(script) as server:
        thread = threading.Thread(target=bench, args=(params(server.port, 2, concurrency=2), probe.ctx))
        thread.start()
        wait_until(lambda: any(e["tokens"] == 80 for e in probe.events), what="progress")
        held.set()
        thread.join(20)
    told = next(event for event in probe.events if event["tokens"] == 80)
    assert (told["done"], told["running"], told["of"], told["failed"]) == (0, 2, 2, 0)


def test_a_stop_keeps_what_was_measured_and_closes_what_runs(probe: Probe) -> None:
    held = threading.Event()

    def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            exchange.stream(reply(12, 4))
            return
        exchange.send(HEAD)
        while exchange.connection.recv(1):  # until the other side hangs up
            pass
        held.set()

    with serving(script) as server:
        results: list[dict[str, Any]] = []
        asked = params(server.port, 5)
        thread = threading.Thread(target=lambda: results.append(bench(asked, probe.ctx)))
        thread.start()
        wait_until(lambda: len(server.seen) == 2, what="the second request")
        probe.cancel.set()
        thread.join(20)
        assert held.wait(20), "the connection was closed, upon which SGLang aborts the request"
    (result,) = results
    assert result["ended"] == "cancelled"
    assert [record["error"] for record in result["requests"]] == [None, "given up: cancelled"]
    assert len(server.seen) == 2


def test_the_limit_ends_it_with_what_was_measured(probe: Probe) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            exchange.stream(reply(12, 4))
        else:
            exchange.connection.recv(1)

    result, _ = run(script, probe, 4, limit_s=0.5)
    assert result["ended"] == "limit"
    assert [record["error"] for record in result["requests"]] == [None, "given up: limit"]


def test_one_request_that_hangs_is_given_up_alone(probe: Probe) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            exchange.connection.recv(1)
        else:
            exchange.stream(reply(12, 4))

    result, _ = run(script, probe, 3, request_timeout_s=0.4)
    assert result["ended"] == "done"
    assert [record["error"] for record in result["requests"]] == ["no whole answer within 0 s", None, None]


def test_headers_are_sent_and_cannot_smuggle(probe: Probe) -> None:
    _, server = run(lambda x: x.stream(reply(12)), probe, headers={"Authorization": "Bearer k"})
    assert server.headers[0]["authorization"] == "Bearer k"
    with pytest.raises(ValueError, match="line end"):
        bench(params(1, headers={"X": "a\r\nY: b"}), probe.ctx)


def test_a_request_without_a_body_is_refused(probe: Probe) -> None:
    with pytest.raises(OpError, match="no body"):
        bench({"port": 1, "bodies": {}, "requests": ["a"]}, probe.ctx)


def test_no_proxy_is_asked(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert only(run(lambda x: x.stream(reply(12)), probe)[0])["error"] is None


def test_repetition_is_the_share_of_runs_that_were_there_before() -> None:
    assert repetition(list(range(100))) == 0
    # 100 tokens that repeat every 8: 93 runs of 8, of which the first 8 are new.
    assert repetition([n % 8 for n in range(100)]) == pytest.approx(85 / 93)
    assert repetition([1] * 31) is None


def test_pieces_of_a_stream_tell_nothing_of_repetition(probe: Probe) -> None:
    # With --stream-output the last event holds the last tokens alone.
    record = only(run(lambda x: x.stream(reply(40, ids=[1, 2])), probe)[0])
    assert record["output"] == {"repetition": None, "sha256": None, "tokens": None}


# 64 streams at once from a helper of its own, as on the node: what it costs there.
DRIVE = """
import json, sys, threading, time, resource
sys.path.insert(0, sys.argv[1])
from remote.node.base import Context
from remote.node.load import bench
ctx = Context(emit=lambda event: None, state=lambda: None, deadline=time.monotonic() + 120)
body = {"text": "x", "sampling_params": {}}
asked = {"port": int(sys.argv[2]), "bodies": {"a": body}, "requests": ["a"] * 192, "concurrency": 64}
found = bench(asked, ctx)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "failed": [r["error"] for r in found["requests"] if r["error"]],
    "share": found["cpu_share"], "rss": found["peak_rss_mib"], "ended": found["ended"],
    "whole_s": usage.ru_utime + usage.ru_stime, "elapsed_s": found["elapsed_s"],
}))
"""


def test_sixty_four_streams_cost_at_most_a_core_and_100_mib() -> None:
    """Each stream is as a real one of 256 tokens at 3 a step: 85 events that hold the text so far."""
    final = reply(256, 85)
    events = []
    for done in range(3, 256, 3):
        so_far = {**final, "text": "word " * done, "output_ids": final["output_ids"][:done]}
        so_far["meta_info"] = {**final["meta_info"], "completion_tokens": done, "finish_reason": None}
        events.append(b"data: " + json.dumps(so_far).encode() + b"\n\n")
    events.append(b"data: " + json.dumps(final).encode() + b"\n\n")
    pause = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.send(HEAD)
        for event in events:
            exchange.chunk(event)
            pause.wait(0.02)  # a step of 20 ms, as the measured figures have
        exchange.end()

    with serving(script) as server:
        ran = subprocess.run(
            [sys.executable, "-B", "-c", DRIVE, str(PROJECT), str(server.port)],
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(ran.stdout)
    assert found["failed"] == []
    assert found["ended"] == "done"
    assert server.most == 64
    assert found["rss"] <= 100, found
    # One thread drives them all: more than one core is impossible; it is far from that.
    assert found["share"] <= 1.0, found
    assert found["whole_s"] <= found["elapsed_s"] + 0.5, found
