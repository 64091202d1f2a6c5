"""Faults of the node's processes: the server, its ranks, what is beside them."""

from __future__ import annotations

import signal

from remote.practice.fault import Fault, follows, no_server
from remote.practice.process_steps import (
    beside,
    left_behind,
    older_than_files,
    port_taken,
    restarted,
    second,
    signalled,
    unanswered,
)

PROCESSES = (
    Fault(
        "old-server",
        "The old server kept the port",
        "has a server answer that was started before the fix was deployed",
        ("process.after_fix",),
        (older_than_files,),
        also=(
            *follows("fail", "it writes to a log of its own", "log.boot"),
            *follows("unknown", "the server writes to another log", "log.capture", "log.errors"),
        ),
    ),
    Fault(
        "orphans",
        "The launcher is dead, its ranks live",
        "leaves schedulers without a launcher, re-parented to init, with their GPU memory",
        ("process.single", "gpu.holders", "health.http"),
        (left_behind,),
        also=no_server("process.single", "gpu.holders", "health.http"),
    ),
    Fault(
        "rank-dead",
        "One rank was killed, the launcher has not noticed",
        "ends rank 1 as the kernel's OOM killer does; the launcher goes on waiting",
        ("process.ranks",),
        (restarted(faults={"hang_on_rank_death": True}, kill_rank=1),),
        also=follows("fail", "a rank that is gone answers nobody", "health.http", "health.generate"),
    ),
    Fault(
        "server-killed",
        "The server is gone",
        "kills the launcher",
        ("process.single", "health.http"),
        (signalled(signal.SIGKILL),),
        also=no_server("process.single", "health.http"),
    ),
    Fault(
        "rank-stopped",
        "One rank does not move",
        "stops rank 0 with SIGSTOP: the server is there and says nothing",
        ("process.ranks", "health.http", "health.generate"),
        (signalled(signal.SIGSTOP, rank=0),),
    ),
    Fault(
        "launcher-stopped",
        "The launcher does not move",
        "stops the launcher with SIGSTOP: the port accepts and nobody answers",
        ("health.http", "health.generate"),
        (signalled(signal.SIGSTOP),),
    ),
    Fault(
        "stale-ranks",
        "An earlier server's ranks are still there",
        "leaves schedulers of an earlier server beside the one that runs, holding GPU memory",
        ("process.single", "gpu.holders"),
        (beside,),
    ),
    Fault(
        "port-taken",
        "Something else has the port",
        "ends the server and has a web server that is not SGLang listen on its port",
        ("process.owner", "health.http"),
        (port_taken,),
        also=no_server("process.owner", "health.http"),
    ),
    Fault(
        "other-arguments",
        "The server runs with other arguments",
        "starts it again with --speculative-num-steps 1, which sets the draft tokens to 2 without a word",
        ("args.effective",),
        (restarted(arguments=("--speculative-num-steps", "1")),),
    ),
    Fault(
        "argument-lost",
        "An argument did not reach the server",
        "starts it again without --trust-remote-code, as a command line with wrong quotes does",
        ("args.effective",),
        (restarted(without="--trust-remote-code"),),
    ),
    Fault(
        "overlap-on",
        "The server runs with two-batch overlap",
        "starts it again with --enable-two-batch-overlap, where layers from the first sparse one on capture "
        "nothing",
        ("args.effective", "wiring.overlap"),
        (restarted(arguments=("--enable-two-batch-overlap",)),),
    ),
    Fault(
        "second-server",
        "A second server runs on the same GPUs",
        "starts another, small server on a port of its own",
        ("gpu.holders",),
        (second,),
    ),
    Fault(
        "other-log",
        "The server writes to another log",
        "starts it again by hand with its output in a file of its own",
        ("log.boot",),
        (restarted(log="by-hand.log"),),
        also=follows("unknown", "the server writes to another log", "log.capture", "log.errors"),
    ),
    Fault(
        "health-lies",
        "/health is 200 and nothing is generated",
        "starts the server so that /health answers at once and no request is ever generated",
        ("health.generate",),
        (restarted(faults={"health_lies": True, "generate_hangs": True}),),
    ),
    Fault(
        "generation-hangs",
        "The server stopped generating",
        "starts the server so that it answers its warm-up request and no other",
        ("health.http", "health.generate"),
        (restarted(faults={"generate_hangs": True}), unanswered),
    ),
    Fault(
        "start-hangs",
        "The server does not finish starting",
        "starts the server so that it stays in the capture of the CUDA graphs",
        ("log.boot", "health.http"),
        (restarted(faults={"hang_at": "graph-capture"}, until="ranks"),),
        also=(
            *follows("fail", "nobody listens yet", "process.owner", "health.generate"),
            *follows("unknown", "the ranks may still log it", "log.capture"),
        ),
        undetermined=("log.boot",),
    ),
    Fault(
        "start-out-of-memory",
        "The server ran out of GPU memory while starting",
        "starts the server so that it ends with torch.OutOfMemoryError",
        ("log.errors", "process.single"),
        (restarted(faults={"oom_at": "loading-target"}, until="gone"),),
        also=(
            *no_server("log.errors", "process.single"),
            *follows("fail", "no rank lived to capture anything", "log.capture"),
        ),
    ),
    Fault(
        "start-nccl",
        "The ranks do not find each other",
        "starts the server so that it ends with an NCCL error",
        ("log.errors", "process.single"),
        (restarted(faults={"nccl": True}, until="gone"),),
        also=(
            *no_server("log.errors", "process.single"),
            *follows("fail", "no rank lived to capture anything", "log.capture"),
        ),
    ),
    Fault(
        "warm-up-fails",
        "The server was up and died of its first request",
        "starts the server so that its warm-up request fails",
        ("log.errors", "process.single"),
        (restarted(faults={"warmup_fails": True}, until="gone"),),
        also=no_server("log.errors", "process.single"),
    ),
)
