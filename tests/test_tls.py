"""A server with `ssl_certfile` (SGLang from 0.5.10): everybody who asks it, asks over TLS."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remote.bench import drive, meanwhile, run
from remote.bench.assemble import Options
from remote.bench.plan import plan
from remote.errors import ExitCode, UnhealthyError, UsageError
from remote.health import wait_ready
from remote.inventory import Node
from remote.node import http, watch
from remote.observe import sections
from remote.proofs import prove
from remote.reporting import Silent
from remote.running import Boot
from remote.session import Session
from tests import pictures
from tests.bench import kit
from tests.certificates import server_context
from tests.node.kit import Probe, ticks
from tests.support import wait_until
from tests.test_health import ALL_UP

BOOT = Boot("b1", pid=100, starttime_ticks=1, start_time=0.0, log="/logs/x.log")
CERTIFICATE = {"ssl-certfile": "/etc/sglang/server.pem", "ssl-keyfile": "/etc/sglang/server.pem"}


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path / "probe")


def generation(exchange: kit.Exchange) -> None:
    """As SGLang: streamed if that is asked for."""
    reply = kit.reply(12, 4)
    if exchange.body.get("stream"):
        exchange.stream(reply)
    else:
        exchange.json(reply)


@contextmanager
def serving(tmp_path: Path, script: kit.Script = generation) -> Iterator[tuple[kit.Scripted, Session]]:
    """The server, and a session with its node, which is this process."""
    with kit.serving(script, tls=server_context(tmp_path), model_path="/models/kimi") as server:
        node = kit.node(server.port, tmp_path / "server.log", args={**CERTIFICATE, "tp-size": 2})
        yield server, kit.session(node, tmp_path / "state")


def test_an_observation_finds_it_healthy(probe: Probe, tmp_path: Path) -> None:
    with serving(tmp_path) as (_, session):
        asked = sections(session.node, pictures.BUNDLE, probe=True)["http"]
        facts = {**pictures.healthy(), "http": http.http(asked, probe.ctx)}
    verdicts = {check.id: check.verdict for check in prove(pictures.picture(facts))}
    assert (verdicts["health.http"], verdicts["health.generate"]) == ("pass", "pass")


@dataclass
class Starting:
    """A session in which all of a boot is up at once, and whose HTTP is real."""

    node: Node
    ctx: Any
    watched: dict[str, Any] | None = None

    @property
    def helper(self) -> Starting:
        return self

    def submit(self, _: str, params: dict[str, Any], *, timeout_s: float, on_event: Any) -> Any:
        assert timeout_s > 0
        self.watched = params
        for event in ALL_UP:
            on_event(event)
        return SimpleNamespace(cancel=lambda: None)

    def request(self, _: str, params: dict[str, Any], **__: Any) -> dict[str, Any]:
        return http.http(params, self.ctx)


def test_the_wait_for_its_health_ends(probe: Probe, tmp_path: Path) -> None:
    with serving(tmp_path) as (_, session):
        starting = Starting(session.node, probe.ctx)
        done = wait_ready(starting, BOOT, Silent())  # type: ignore[arg-type]
        assert "generated 12 tokens" in done.detail
        assert starting.watched is not None
        here = {"pid": os.getpid(), "starttime_ticks": ticks(os.getpid()), "log": None}
        with running(lambda: watch.watch({**starting.watched, **here}, probe.ctx), probe):
            wait_until(lambda: statuses(probe) == [200], what="/health over TLS")


@contextmanager
def running(operation: Callable[[], Any], probe: Probe) -> Iterator[None]:
    thread = threading.Thread(target=operation)
    thread.start()
    try:
        yield
    finally:
        probe.cancel.set()
        thread.join()


def statuses(probe: Probe) -> list[int]:
    return [event["health"]["status"] for event in probe.events if "health" in event]


@pytest.mark.parametrize("concurrency", [1, 16])
def test_it_is_measured(tmp_path: Path, concurrency: int) -> None:
    """Answers of more than one TLS record, one after another and many at once."""
    long = kit.reply(9000, 3000)

    with serving(tmp_path, lambda exchange: exchange.stream(long)) as (server, session):
        load = plan(concurrency=concurrency, requests=16, max_tokens=9000)
        phase, mark, interrupted = drive.measure(session, load, Silent())
        after = meanwhile.look(session, pictures.picture(), mark, phase.ports)
    assert not interrupted
    assert (phase.failures, len(phase.requests), phase.tokens) == ((), 16, 16 * 9000)
    assert phase.ports == frozenset(server.clients)
    assert after.model_path == "/models/kimi"


def test_a_server_without_tls_is_no_measurement(tmp_path: Path) -> None:
    """The inventory says `ssl_certfile`, and what answers speaks plain HTTP, as uvicorn."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\nInvalid HTTP request.")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        node = kit.node(listener.getsockname()[1], tmp_path / "server.log", args=CERTIFICATE)
        session = kit.session(node, tmp_path / "state")
        with pytest.raises(UnhealthyError, match="answers none"):
            drive.warm_up(session, plan(concurrency=1, requests=1), Silent())
        thread.join()


def test_sglangs_own_client_is_refused(tmp_path: Path) -> None:
    """It checks the certificate, which is for another name."""
    session = kit.session(kit.node(1, tmp_path / "log", args=CERTIFICATE), tmp_path / "state")
    with pytest.raises(UsageError, match="ssl_certfile") as caught:
        run.bench(session, pictures.BUNDLE, Silent(), Options(plan(client="sglang")))
    assert caught.value.exit_code == ExitCode.USAGE
