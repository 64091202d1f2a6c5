"""`--client sglang`: SGLang's own benchmark client as a second opinion on throughput.

`python -m sglang.benchmark.serving` (in the wheels from 0.5.15), else `sglang.bench_serving`, run on the node
by the interpreter that runs the server. It knows no verifications per request, shuffles its prompts, and the
"accept length" of its report is the server's running average of DP rank 0 (bench_serving.py, 0.5.9, lines
2546 to 2564): that one is shown, and no accept length is claimed for the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..checks import Check
from ..errors import UsageError
from ..intent import http_host, uses_tls
from ..inventory import Node
from ..picture import Picture
from ..reporting import Reporter
from ..secrets import environment_of
from ..session import Session
from ..sglang import benchreport, metrics
from . import drive, meanwhile
from .assemble import Options, base, judged
from .guards import BOTH, SPEED, Guard
from .guards.kinds import LEAST_PROMPTS
from .keeping import keep
from .meanwhile import Meanwhile
from .measured import Failure, Phase, Request
from .plan import Plan
from .result import Bench
from .stats import Figure
from .summary import summarise
from .verdict import Verdict

MODULES = {
    "sglang.benchmark.serving": "sglang/benchmark/serving.py",
    "sglang.bench_serving": "sglang/bench_serving.py",
}
SHOWN_ERROR = 300


def opinion(
    session: Session, picture: Picture, checks: Sequence[Check], reporter: Reporter, options: Options
) -> Bench:
    """Run it and read its result into a summary; without figures where it is not installed or fails."""
    empty = base(session, picture, checks, options, options.plan.to_json())
    module = installed(session, picture)
    if module is None:
        return _unknown(empty, "SGLang's client is not installed on the node")
    reporter.begin("bench", f"{module}, {len(options.plan.order)} requests")
    marking = meanwhile.ask_mark(session)
    pending = session.helper.submit(
        "bench_client",
        {
            "module": module,
            "args": arguments(session, options.plan),
            "dataset": dataset(options.plan),
            "env": {**environment_of(session.node.server, os.environ), **_key(session)},
            "cwd": session.node.server.cwd,
        },
        timeout_s=options.plan.limit_s,
        on_event=lambda event: reporter.progress(f"{module} runs for {event['elapsed_s']:.0f} s"),
    )
    interrupted = False
    try:
        while not pending.poll(0.5):
            pass
    except KeyboardInterrupt:
        interrupted = True
        pending.cancel()
    reply = session.result(pending)
    found = report(reply)
    reporter.done("bench", f"{module} ended after {reply['elapsed_s']:.1f} s", changed=False)
    if isinstance(found, str):
        return replace(_unknown(empty, f"{module} gave no result: {found}"), interrupted=interrupted)
    after = meanwhile.look(session, picture, meanwhile.mark(session.result(marking)), frozenset())
    result = assemble(empty, options.plan, picture.version, found, reply["stdout"], after)
    return keep(session, reporter, replace(result, interrupted=interrupted))


def refuse_tls(node: Node) -> None:
    """It checks the server's certificate, which is made out for another name than loopback's, and has no flag
    against that (requests and aiohttp, all versions)."""
    if uses_tls(node.server):
        raise UsageError(
            f"{node.name}: SGLang's own client cannot ask a server with ssl_certfile on its own machine",
            hint=f"without --client: inv bench --node {node.name}",
            node=node.name,
        )


def installed(session: Session, picture: Picture) -> str | None:
    """The client's module in the package that the server imports, the newer name first."""
    if picture.root is None:
        return None
    facts = session.request("facts.files", {"root": picture.root, "paths": list(MODULES.values())})
    return next((name for name, path in MODULES.items() if facts[path].get("exists")), None)


def arguments(session: Session, plan: Plan) -> list[str]:
    """The same load as ours, in flags that every client from 0.5.5 on knows. Its own dataset format, because
    "custom" came later; natural ends, because what follows them is nobody's text."""
    server = session.node.server
    words = ["--backend", "sglang", "--host", http_host(server), "--port", str(server.port)]
    words += ["--dataset-name", "sharegpt", "--num-prompts", str(len(plan.order))]
    words += ["--sharegpt-output-len", str(plan.max_tokens), "--max-concurrency", str(plan.concurrency)]
    words += ["--disable-ignore-eos", "--disable-tqdm", "--output-details", "--seed", "1"]
    return words


def _key(session: Session) -> dict[str, str]:
    """The server's API key, in the variable that the client takes it from (get_auth_headers, 0.5.9)."""
    return {"OPENAI_API_KEY": key} if (key := drive.api_key(session.node)) else {}


def dataset(plan: Plan) -> str:
    """The prompts as conversations; what is "answered" there counts for nothing with a set output length."""
    texts = {prompt.id: prompt.text for prompt in plan.prompts}
    turns = [[{"value": texts[name]}, {"value": "An answer of some words."}] for name in plan.order]
    return json.dumps([{"conversations": each} for each in turns])


def report(reply: Mapping[str, Any]) -> dict[str, Any] | str:
    """The client's result line, or why there is none."""
    if reply["ended"] != "done":
        return f"it was stopped ({reply['ended']})"
    last = next((line for line in reversed(reply["stderr"].splitlines()) if line.strip()), "")
    if reply["result"] is None:
        return (last or f"exit status {reply['exit']}")[:SHOWN_ERROR]
    try:
        value = json.loads(reply["result"])
    except ValueError:
        return "its result is not JSON"
    return value if isinstance(value, dict) and value.get("output_throughput") else "its result is empty"


def phase(found: Mapping[str, Any], asked: int) -> Phase:
    """The client's requests. Its order is its own, so that no request is a known prompt's."""
    good: list[Request] = []
    bad: list[Failure] = []
    details = zip(*(found.get(key) or [] for key in ("output_lens", "ttfts", "itls", "errors")), strict=False)
    for number, (tokens, ttft_s, gaps_s, error) in enumerate(details, start=1):
        name = f"client:{number}"
        if error or not tokens:
            bad.append(Failure(name, str(error or "no token came back")))
            continue
        told = metrics.generation({"completion_tokens": tokens})
        e2e_s = ttft_s + sum(gaps_s)
        good.append(Request(name, name, 0.0, e2e_s, ttft_s, None, None, None, None, False, told))
    return Phase(tuple(good), tuple(bad), asked, "done", 0.0, found["duration"], 0.0, None, frozenset())


def assemble(
    empty: Bench, plan: Plan, version: str | None, found: Mapping[str, Any], printed: str, after: Meanwhile
) -> Bench:
    """Its figures in our summary, its own warnings as guards."""
    measured = phase(found, len(plan.order))
    figures = summarise(measured, after.info, version)
    whole = figures.server_output_tok_s
    figures = replace(
        figures,
        server_output_tok_s=Figure(found["output_throughput"], whole.low, whole.high),
        concurrency=found.get("concurrency"),
        completion_tokens=int(found.get("total_output_tokens") or measured.tokens),
    )
    return judged(
        empty,
        measured,
        figures,
        guards=tuple(_guards(plan, measured, found, printed, after)),
        args=dict(after.info.args) if after.info else {},
        logged=meanwhile.logged(after.samples),
    )


def _guards(
    plan: Plan, measured: Phase, found: Mapping[str, Any], printed: str, after: Meanwhile
) -> list[Guard]:
    said = benchreport.read(printed)
    guards = [
        Guard(
            "client",
            "shown",
            "SGLang's own client: its warm-up is one request, its prompts are shuffled, and it knows no"
            " verifications; its 'accept length' is the server's running average"
            f" ({found.get('accept_length') or 'none told'})",
        )
    ]
    if said.chunk_ratio is not None:
        detail = f"its inter-token latency is that of chunks of {said.chunk_ratio:.1f} tokens"
        guards.append(Guard("client-itl", "shown", detail))
    if said.low_peak:
        guards.append(
            Guard("client-peak", "shown", "its peak throughput is below its average: it counts chunks")
        )
    if measured.failures:
        detail = f"{len(measured.failures)} failed, the first: {measured.failures[0].error}"
        guards.append(Guard("failed-requests", "spoils", detail, BOTH))
    prompts = len(plan.prompts)
    if min(prompts, len(measured.requests)) < LEAST_PROMPTS:
        detail = f"{len(measured.requests)} requests, different prompts: {prompts}: too few"
        guards.append(Guard("complete", "spoils", detail, BOTH))
    if prompts < len(plan.order):
        detail = f"{len(plan.order)} requests with {prompts} prompts, and it does not tell which is a repeat"
        guards.append(Guard("repeats", "spoils", detail, BOTH))
    if after.silent is not None:
        detail = f"after the run it did not answer any more: {after.silent}"
        guards.append(Guard("right-server", "spoils", detail, BOTH))
    if meanwhile.other_boot(after):
        guards.append(Guard("same-boot", "spoils", "another boot in between", BOTH))
    if (why := meanwhile.not_used(after)) is not None:
        guards.append(Guard("server-log", "unknown", why))
    if measured.requests and not measured.elapsed_s:
        guards.append(Guard("clock", "spoils", "it tells no duration", (SPEED,)))
    return guards


def _unknown(empty: Bench, why: str) -> Bench:
    return replace(empty, verdict=Verdict("inconclusive", (why,)))
