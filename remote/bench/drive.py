"""Driving the load generator on the node: warm-up, then the measurement, with progress and a clean stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InterruptedByUser, UnhealthyError
from ..intent import endpoint, wanted_args
from ..inventory import Node
from ..reporting import Reporter
from ..secrets import expand
from ..session import Event, Session
from . import measured, prompts, warmup
from .meanwhile import Mark, ask_mark, mark
from .measured import Phase
from .plan import Plan

# What the node may take beyond the limit to give up what still runs.
MARGIN_S = 30.0
POLL_S = 0.5


@dataclass(frozen=True)
class Warm:
    """`ended`: seconds since the epoch, by the node's clock; None without any run."""

    rates: tuple[float, ...]
    ended: float | None


def api_key(node: Node) -> str | None:
    """What lets us in at a server with an API key. InventoryError when its variable is not set."""
    key = wanted_args(node.server).get("api_key")
    return expand(str(key), os.environ) if key else None


def _ask(
    session: Session,
    bodies: dict[str, Any],
    order: Sequence[str],
    plan: Plan,
    limit_s: float,
    on_event: Event,
) -> tuple[dict[str, Any], bool]:
    """One operation of the generator: its reply, and whether the engineer stopped it."""
    server, key = session.node.server, api_key(session.node)
    pending = session.helper.submit(
        "bench",
        {
            **endpoint(server),
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "bodies": bodies,
            "requests": list(order),
            "concurrency": plan.concurrency,
            "limit_s": limit_s,
            "request_timeout_s": limit_s,
        },
        timeout_s=limit_s + MARGIN_S,
        on_event=on_event,
    )
    interrupted = False
    try:
        while not pending.poll(POLL_S):
            pass
    except KeyboardInterrupt:
        interrupted = True
        pending.cancel()
    return session.result(pending), interrupted


def warm_up(
    session: Session, plan: Plan, reporter: Reporter, clock: Callable[[], float] = time.monotonic
) -> Warm:
    """Long generations until three runs agree (warmup.py). UnhealthyError when no request of a run succeeds,
    InterruptedByUser on Ctrl-C: nothing was measured yet."""
    prompt = prompts.warm_up()
    bodies, order = {prompt.id: plan.body(prompt)}, [prompt.id] * plan.concurrency
    rates: list[float] = []
    ended: float | None = None
    reporter.begin("warm-up", "long generations until the speed settles")
    until = clock() + warmup.LIMIT_S
    while not warmup.settled(rates) and len(rates) < warmup.MAX_RUNS and clock() < until:
        left_s = max(1.0, until - clock())
        reply, interrupted = _ask(session, bodies, order, plan, left_s, lambda _: None)
        if interrupted:
            raise InterruptedByUser(
                f"{session.node.name}: interrupted while warming up, nothing was measured",
                node=session.node.name,
            )
        run = measured.phase(reply, [prompt], len(order))
        if reply["ended"] == "limit":
            break
        rate = warmup.rate(run)
        if rate is None:
            raise _silent(session.node.name, run)
        rates.append(rate)
        ended = run.began + run.elapsed_s
        reporter.progress(f"run {len(rates)}: {rate:.1f} per second, {shown_spread(rates)}")
    reporter.done("warm-up", f"{len(rates)} runs, {shown_spread(rates)}", changed=False)
    return Warm(tuple(rates), ended)


def _silent(node: str, run: Phase) -> UnhealthyError:
    why = run.failures[0].error if run.failures else "no answer"
    return UnhealthyError(
        f"{node}: the server answers none of the benchmark's requests: {why}",
        hint=f"inv health --node {node}",
        node=node,
    )


def shown_spread(rates: Sequence[float]) -> str:
    spread = warmup.spread(rates)
    return "too few to compare" if spread is None else f"the last three within {spread:.1%}"


def measure(session: Session, plan: Plan, reporter: Reporter) -> tuple[Phase, Mark, bool]:
    """The measurement, where the log stood when it began, and whether the engineer stopped it."""
    said = f"{len(plan.order)} requests, {plan.concurrency} at once, {plan.max_tokens} tokens each"
    reporter.begin("bench", said)
    marking = ask_mark(session)
    reply, interrupted = _ask(
        session,
        plan.bodies(),
        plan.order,
        plan,
        plan.limit_s,
        lambda event: reporter.progress(progress_line(event)),
    )
    phase = measured.phase(reply, plan.prompts, len(plan.order))
    done = f"{len(phase.requests)} of {phase.asked} requests in {phase.elapsed_s:.1f} s"
    reporter.done("bench", f"{done}, {phase.tokens} output tokens", changed=False)
    return phase, mark(session.result(marking)), interrupted


def progress_line(event: dict[str, Any]) -> str:
    """`12 of 24 requests, 143 tok/s so far, about 8 s left`."""
    done, total, elapsed_s = event["done"], event["of"], event["elapsed_s"]
    text = f"{done} of {total} requests"
    if elapsed_s > 0:
        text += f", {event['tokens'] / elapsed_s:.0f} output tok/s so far"
    if event["failed"]:
        text += f", {event['failed']} failed"
    if done:
        # Those that run are half done, taken together.
        share = (done + event["running"] / 2) / total
        text += f", about {max(0.0, elapsed_s / share - elapsed_s):.0f} s left"
    return text
