"""A start that succeeds: processes, stages in the log, the health endpoint meanwhile, GPU memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.sglang import progress
from remote.sglang.lines import entries, numbered
from tests.sglang.data import read_log

from .kit import READY, Node, Running, rank_pid, session, started, state_of


@pytest.fixture(scope="module")
def up(fixed: Node) -> Iterator[tuple[Node, Running, list[int | None]]]:
    """A server that has become ready, and what /health said on the way."""
    fixed.settings(speed=0.3)
    with started(fixed) as server:
        seen: list[int | None] = []
        while READY not in server.log():
            assert server.process.poll() is None, server.log()[-3000:]
            status = server.health()
            if status not in seen[-1:]:
                seen.append(status)
        seen.append(server.health())
        yield fixed, server, seen


def test_health_is_refused_then_unavailable_then_good(up: tuple[Node, Running, list[int | None]]) -> None:
    """As captured: refused while loading, 503 until the warm-up has answered, then 200."""
    seen = up[2]
    assert seen[0] is None
    assert seen[-1] == 200
    assert set(seen) <= {None, 503, 200}
    assert seen.index(200) == max(seen.index(200), seen.index(503) if 503 in seen else 0)


def test_processes_have_sglangs_titles_and_one_session(up: tuple[Node, Running, list[int | None]]) -> None:
    server = up[1]
    commands = session(server.process.pid)
    titles = sorted(command for command in commands.values() if command.startswith("sglang::"))
    assert titles == ["sglang::detokenizer", "sglang::scheduler_TP0", "sglang::scheduler_TP1"]
    assert any("multiprocessing.resource_tracker import main" in command for command in commands.values())
    assert "launch_server.py --model-path" in commands[server.process.pid]
    assert len(commands) == 5
    assert Path(f"/proc/{rank_pid(server, 1)}/comm").read_text() == "sglang::schedul\n"


def test_each_rank_holds_its_gpu(up: tuple[Node, Running, list[int | None]]) -> None:
    node, server, _ = up
    held = {entry["gpu"]: entry for entry in node.holders()}
    assert sorted(held) == [0, 1]
    for rank in (0, 1):
        assert held[rank]["pid"] == rank_pid(server, rank)
        assert held[rank]["name"] == f"sglang::scheduler_TP{rank}"
        assert 80_000 < held[rank]["used_mib"] < 97_887


def test_the_log_is_read_as_the_real_one(up: tuple[Node, Running, list[int | None]]) -> None:
    node, server, _ = up
    (boot,) = read_log(server.log())
    assert boot.state == "ready"
    assert boot.failure is None
    assert boot.args_record == "complete"
    assert boot.args["speculative_num_draft_tokens"] == 6
    assert boot.args["model_path"] == str(node.root / "target")
    assert [load.type for load in boot.loads] == ["DeepseekV3ForCausalLM", "LlamaForCausalLMEagle3"]
    assert boot.ready_at is not None
    assert {item.rank for item in entries(numbered(server.log()))} == {"", "TP0", "TP1"}


def test_the_stages_follow_each_other(up: tuple[Node, Running, list[int | None]]) -> None:
    state, stages = progress.State(), []
    for line in up[1].log().splitlines(keepends=True):
        state = progress.feed(state, line)
        if state.stage not in stages:
            stages.append(state.stage)
    assert stages == ["starting", "loading-target", "graph-capture", "loading-draft", "warmup", "serving"]
    assert state.ready


def test_every_line_has_a_form_that_the_captures_know(up: tuple[Node, Running, list[int | None]]) -> None:
    stamp = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    clock = r"\[\d\d:\d\d<(\d\d:\d\d|\?),"
    forms = [
        rf"{stamp}( TP[01])?\] \S",
        rf'{stamp}\] INFO:     127\.0\.0\.1:\d+ - "(GET|POST) /\w+ HTTP/1\.1" \d+ \w',
        rf"Loading safetensors checkpoint shards: +\d+% Completed \| \d/\d {clock} .*(it/s|s/it)\]",
        rf"Capturing batches \(bs=\d+ avail_mem=\d+\.\d\d GB\): +\d+%\|.{{10}}\| \d+/\d+ {clock} ",
        r"SIMULATED SGLang 0\.5\.9 server",
    ]
    lines = [part for line in up[1].log().splitlines() for part in re.split(r"\r", line) if part.strip()]
    assert lines[0].startswith("SIMULATED")
    odd = [line for line in lines if not any(re.match(form, line) for form in forms)]
    assert odd == []


def test_what_the_patched_code_logs_comes_from_every_rank_at_each_call(
    up: tuple[Node, Running, list[int | None]],
) -> None:
    lines = up[1].log().splitlines()
    for rank in (0, 1):
        said = [n for n, line in enumerate(lines) if f"TP{rank}] capturing [3, 31] for [-1, 2, 30]" in line]
        (ended,) = [n for n, line in enumerate(lines) if f"TP{rank}] Capture cuda graph end" in line]
        assert len(said) == 2
        assert said[0] < ended < said[1]


def test_one_rank_has_no_number_and_takes_the_visible_gpu(fixed: Node) -> None:
    fixed.settings()
    with started(fixed, tp=1, CUDA_VISIBLE_DEVICES="4,5") as server:
        server.wait_ready()
        assert 4 in {entry["gpu"] for entry in fixed.holders()}
        assert "sglang::scheduler" in session(server.process.pid).values()
        assert re.search(r"^\[[^]]*\d\] Load weight begin", server.log(), re.MULTILINE)
        assert state_of(server.process.pid) in {"S", "R"}
