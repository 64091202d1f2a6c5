"""Logs: boots and matches of real captures, appended and huge files, progress bars, cut characters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.node import logs, matches
from remote.node.base import OpError
from remote.sglang import patterns
from tests.node.kit import ROOT, Probe

ARGS_OLD = "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m', port=30000)"
ARGS_NEW = "[2026-11-29 16:15:26] server_args={'model_path': '/m', 'port': 30000}"
READY = "The server is fired up and ready to roll!"
BAR = "Capturing batches (bs=1 avail_mem=10.83 GB): 100%|██████████| 4/4 [00:24<00:00,  6.04s/it]"
ALL_KEYS = {"path", "real_path", "exists", "size", "mtime", "inode", "region", "before", "head", "tail"}
ALL_KEYS |= {"boots", "matches", "dropped", "older_boots"}


def look(probe: Probe, path: Path, *patterns: str, **params: Any) -> dict[str, Any]:
    return logs.log({"path": str(path), "patterns": list(patterns), **params}, probe.ctx)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_last_boot_of_an_appended_log(probe: Probe, tmp_path: Path) -> None:
    path = written(
        tmp_path / "log", "one", ARGS_OLD, READY, "warning: adjusted", ARGS_NEW, "loading", READY, "decode"
    )
    found = look(probe, path, "ready to roll", tail_bytes=20, head_lines=2)
    assert set(found) == ALL_KEYS
    assert [(boot["line"], boot["text_head"][:30]) for boot in found["boots"]] == [
        (2, ARGS_OLD[:30]),
        (5, ARGS_NEW[:30]),
    ]
    text = path.read_bytes()
    assert found["region"] == {"offset": text.index(ARGS_NEW.encode()), "end": len(text)}
    assert found["before"]["text"].endswith("warning: adjusted\n")
    assert found["head"] == {"offset": found["region"]["offset"], "line": 5, "text": f"{ARGS_NEW}\nloading"}
    offset = text.rindex(READY.encode())
    assert found["matches"] == [{"line": 7, "offset": offset, "text": READY, "patterns": [0]}]
    assert found["tail"] == {"offset": text.index(b"decode"), "line": 8, "text": "decode\n"}
    assert found["size"] == len(text)
    assert found["exists"] is True


def test_whole_file_and_from_an_offset(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", ARGS_OLD, READY, ARGS_NEW, READY)
    assert [m["line"] for m in look(probe, path, "ready", boot="all")["matches"]] == [2, 4]
    offset = len(ARGS_OLD) + 1
    assert [m["line"] for m in look(probe, path, "ready", boot={"offset": offset})["matches"]] == [2, 4]
    assert [m["line"] for m in look(probe, path, "ready", boot={"offset": offset + 1})["matches"]] == [2, 4]
    beyond = look(probe, path, "ready", boot={"offset": 10**9})
    assert beyond["matches"] == []
    assert beyond["region"]["offset"] == path.stat().st_size


def test_without_line_numbers_only_the_last_boot_is_read(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", ARGS_OLD, READY, ARGS_NEW, READY)
    found = look(probe, path, "ready", count_lines=False, tail_bytes=10, head_lines=1)
    assert [(m["line"], m["text"]) for m in found["matches"]] == [(None, READY)]
    assert [(b["line"], b["text_head"]) for b in found["boots"]] == [(None, ARGS_NEW)]
    assert (found["tail"]["line"], found["head"]["line"]) == (None, None)


def test_log_without_a_record_is_one_boot(probe: Probe, tmp_path: Path) -> None:
    found = look(probe, written(tmp_path / "log", "a", READY), "ready")
    assert found["boots"] == []
    assert found["region"]["offset"] == 0
    assert [m["line"] for m in found["matches"]] == [2]


def test_traceback_that_mentions_the_arguments_is_no_boot(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", ARGS_OLD, "    launch_server(server_args=server_args)", "server_args=")
    found = look(probe, path)
    assert [boot["line"] for boot in found["boots"]] == [1]
    assert found["region"]["offset"] == 0


def test_empty_absent_and_no_file(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    empty = look(probe, tmp_path / "empty", "x", tail_bytes=100, head_lines=10)
    assert (empty["matches"], empty["tail"]["text"], empty["head"]["text"]) == ([], "", "")
    absent = look(probe, tmp_path / "absent", "x")
    assert set(absent) == ALL_KEYS
    assert absent["exists"] is False
    with pytest.raises(OpError) as caught:
        look(probe, tmp_path)
    assert caught.value.kind == "unsupported"
    with pytest.raises(OpError) as caught:
        look(probe, tmp_path / "empty", "(")
    assert caught.value.kind == "precondition"


def test_stable_name_leads_to_the_boots_own_log(probe: Probe, tmp_path: Path) -> None:
    written(tmp_path / "log.b1", READY)
    (tmp_path / "log").symlink_to("log.b1")
    assert look(probe, tmp_path / "log")["real_path"] == str((tmp_path / "log.b1").resolve())


def test_progress_bars_quotes_and_cut_characters(probe: Probe, tmp_path: Path) -> None:
    """Case 096: UTF-8 with replacement, and each update of a bar is a piece of its own."""
    cut = BAR.encode()[BAR.encode().index("█".encode()) + 1 :]
    text = (
        ("bs=1  50%|█████     | 2/4\r" + BAR + "\n").encode()
        + cut
        + b"\nchown: \xe2\x80\x98nosuch\xe2\x80\x99\n\xbf end\n"
    )
    (tmp_path / "log").write_bytes(text)
    found = look(probe, tmp_path / "log", r"4/4 \[", "nosuch", "end", "50%")
    by_pattern = {pattern: m for m in found["matches"] for pattern in m["patterns"]}
    assert found["matches"][1]["text"] == BAR
    assert by_pattern[0]["text"].endswith("4/4 [00:24<00:00,  6.04s/it]")
    assert [m["line"] for m in found["matches"]] == [1, 1, 2, 3, 4]
    assert by_pattern[1]["text"] == "chown: ‘nosuch’"
    assert by_pattern[2]["text"] == "\ufffd end"
    assert by_pattern[3]["text"] == "bs=1  50%|█████     | 2/4"


def test_patterns_with_anchors_and_a_line_of_several(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", "x error", "error x", "error")
    found = look(probe, path, "^error", "x$", "^$")
    assert [(m["line"], m["patterns"]) for m in found["matches"]] == [(2, [0, 1]), (3, [0]), (4, [2])]


def test_of_many_matches_the_first_and_the_last_are_kept(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", *[f"decode {n}" for n in range(100)], "rare")
    found = look(probe, path, "decode", "rare", max_matches=10)
    kept = [int(m["text"].split()[1]) for m in found["matches"] if m["patterns"] == [0]]
    assert kept == [*range(5), *range(90, 100)]
    assert found["dropped"] == [85, 0]
    assert found["matches"][-1]["text"] == "rare"


def test_each_boot_has_its_own_first_and_last_matches(probe: Probe, tmp_path: Path) -> None:
    decode = [f"decode {n}" for n in range(50)]
    path = written(tmp_path / "log", ARGS_OLD, *decode, ARGS_NEW, *decode, READY)
    found = look(probe, path, "decode", boot="all", max_matches=4)
    kept = [int(m["text"].split()[1]) for m in found["matches"]]
    assert kept == [0, 1, 46, 47, 48, 49] * 2
    assert found["dropped"] == [88]


def test_of_a_crash_loop_the_newest_boots_are_kept(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", *[f"{ARGS_NEW}\nerror {n}" for n in range(250)])
    found = look(probe, path, "error", boot="all")
    assert [int(m["text"].split()[1]) for m in found["matches"]] == [*range(150, 250)]
    assert (found["dropped"], len(found["boots"]), found["older_boots"]) == ([150], 250, 150)
    assert look(probe, path, "error")["older_boots"] == 0


@pytest.mark.parametrize(("boots", "older"), [(0, 0), (1, 0), (99, 0), (100, 0), (101, 1)])
def test_what_precedes_the_first_boot_is_none(probe: Probe, tmp_path: Path, boots: int, older: int) -> None:
    path = written(tmp_path / "log", "before", *[ARGS_NEW] * boots)
    assert look(probe, path, "server_args=", boot="all")["older_boots"] == older


def test_of_frequent_lines_each_nth_is_kept_of_every_boot(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", *[ARGS_NEW + "\n] decode" * 700 for _ in range(40)])
    frequent = {"cut": [r"\] decode.*"], "patterns": [1]}
    found = look(probe, path, "server_args=", "decode", boot="all", frequent=frequent, max_matches=2000)
    lines = [m["line"] for m in found["matches"] if m["patterns"] == [1]]
    per_boot = [sum(1 for line in lines if (line - 1) // 701 == boot) for boot in range(40)]
    assert len(lines) <= matches.MAX_FREQUENT
    assert set(per_boot) == {-(-700 // 3)}
    assert found["dropped"] == [0, 40 * 700 - len(lines)]


def test_lines_behind_a_record_that_is_not_closed(probe: Probe, tmp_path: Path) -> None:
    path = written(tmp_path / "log", ARGS_OLD, "a", "server_args={'x': 1,", " 'y': 2}", "b", READY)
    follow = {"pattern": 0, "unless": r"[)}]$", "lines": 2}
    found = look(probe, path, "server_args=", "b$", boot="all", follow=follow)
    assert [(m["line"], m["text"], m["patterns"]) for m in found["matches"]] == [
        (1, ARGS_OLD, [0]),
        (3, "server_args={'x': 1,", [0]),
        (4, " 'y': 2}", []),
        (5, "b", [1]),
    ]


busy_lines = st.lists(
    st.sampled_from(
        [
            "[2026-11-29 16:15:26 TP0] Decode batch, #running-req: 1",
            "[2026-11-29 16:15:26] Prefill batch, #running-req: 0,",
            '[2026-11-29 16:15:26] INFO:     127.0.0.1:5 - "POST /generate HTTP/1.1" 200 OK',
            '[2026-11-29 16:15:26] INFO:     127.0.0.1:5 - "GET /x HTTP/1.1" 500 Internal Server Error',
            "ValueError: [",
            "",
            "50%\r[2026-11-29 16:15:26] Decode batch, 1\rCapturing 3/4",
            '] Decode batch, INFO:     1.2.3.4:5 - "GET /x HTTP/1.1" 200 OK',
            "[2026-11-29 16:15:26 DP0 TP0]",
            ARGS_NEW,
        ]
    )
)


@given(busy_lines, st.booleans())
@settings(max_examples=200, deadline=None)
def test_cutting_frequent_lines_changes_nothing_of_what_is_found(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "busy.log"
    path.write_text("\n".join(lines) + ("\n" if ends else ""), encoding="utf-8")
    probe = Probe(path.parent / "state")
    wanted = patterns.wanted(patterns.RARE, patterns.DECODE)
    fast = logs.log({"path": str(path), **wanted, "boot": "all"}, probe.ctx)
    plain = logs.log({"path": str(path), **wanted, "frequent": None, "boot": "all"}, probe.ctx)
    assert fast == plain


def test_long_record_is_cut(probe: Probe, tmp_path: Path) -> None:
    """Not one that SGLang 0.5.23 writes (19 kB), nor one that is twice as long."""
    path = written(tmp_path / "log", "server_args={" + "x" * 40000)
    assert len(look(probe, path, "server_args")["matches"][0]["text"]) == 13 + 40000
    path = written(
        tmp_path / "log", "server_args={" + "x" * 100000, "y" * 3000000 + "needle", "z" * 10, "needle"
    )
    found = look(probe, path, "server_args", "needle")
    assert len(found["matches"][0]["text"]) == matches.TEXT_LIMIT
    assert found["matches"][-1]["line"] == 4


def reference(text: bytes, pattern: str) -> list[tuple[int, int, str]]:
    """(line, offset, text) of each piece that matches, the slow and plain way."""
    found = []
    offset = 0
    for number, line in enumerate(text.split(b"\n"), 1):
        for piece in line.split(b"\r"):
            if re.search(pattern.encode(), piece):
                found.append((number, offset, piece.decode("utf-8", "replace")))
            offset += len(piece) + 1
    return found


lines_of_a_log = st.lists(
    st.sampled_from(
        [b"x", b"error here", b"a\rerror\rb", b"", b"server_args={", b"server_args=x", b"\xe2\x96"]
    )
)


@given(lines_of_a_log, st.integers(min_value=1, max_value=40), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_block_size_gives_the_same_answer(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block: int, ends: bool
) -> None:
    text = b"\n".join(lines) + (b"\n" if ends else b"")
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_bytes(text)
    probe = Probe(path.parent / "state")
    usual = logs.BLOCK
    logs.BLOCK = block + 40  # a line of these logs is shorter
    try:
        everything = look(probe, path, "error", boot="all", tail_bytes=17)
        last = look(probe, path, "error", count_lines=False)
    finally:
        logs.BLOCK = usual
    assert [(m["line"], m["offset"], m["text"]) for m in everything["matches"]] == reference(text, "error")
    marks = [hit.start() for hit in re.finditer(rb"server_args=\{", text)]
    assert [boot["offset"] for boot in everything["boots"]] == marks
    assert last["region"]["offset"] == (marks[-1] if marks else 0)
    assert text.endswith(everything["tail"]["text"].encode() if b"\xe2" not in text else b"")
    assert everything["tail"]["line"] == text[: everything["tail"]["offset"]].count(b"\n") + 1


def test_line_numbers_of_a_long_log(probe: Probe, tmp_path: Path) -> None:
    filler = [f"[2026-11-29 16:15:{n % 60:02d}] Decode batch, #running-req: {n}" for n in range(3000)]
    path = written(tmp_path / "log", *filler, ARGS_OLD, *filler, ARGS_NEW, *filler, READY)
    found = look(probe, path, r"Decode batch.*req: 2999$", "ready to roll")
    assert [boot["line"] for boot in found["boots"]] == [3001, 6002]
    assert [m["line"] for m in found["matches"]] == [9002, 9003]


MEASURE = """
import resource, sys
from remote.node import logs
from tests.node.kit import Probe
from pathlib import Path
probe = Probe(Path("/nonexistent"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = logs.log({"path": sys.argv[1], "patterns": ["ready to roll", "layers_to_capture|capture_embedding"],
                  "tail_bytes": 65536, "boot": "last"}, probe.ctx)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(found["boots"][-1]["line"], found["matches"][-1]["line"], len(found["tail"]["text"]), after - before)
"""


def test_200_mb_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = b"[2026-11-29 16:15:26 TP0] Decode batch, #running-req: 1, #token: 100, token usage: 0.01\n"
    block = line * (4 * 1024 * 1024 // len(line))
    with path.open("wb") as file:
        file.write(ARGS_OLD.encode() + b"\n")
        for _ in range(45):
            file.write(block)
        file.write(ARGS_NEW.encode() + b"\n")
        for _ in range(5):
            file.write(block)
        file.write(READY.encode() + b"\n")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    boot_line, ready_line, tail, grown_kib = map(int, done.stdout.split())
    per_block = block.count(b"\n")
    assert boot_line == 45 * per_block + 2
    assert ready_line == 50 * per_block + 3
    assert 65000 < tail <= 65536
    assert grown_kib < 20 * 1024
    path.unlink()


def test_sparse_file_without_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(300 * 1024 * 1024)
        file.seek(0, os.SEEK_END)
        file.write(f"\n{ARGS_NEW}\n{READY}\n".encode())
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    boot_line, ready_line, _, grown_kib = map(int, done.stdout.split())
    assert (boot_line, ready_line) == (2, 3)
    assert grown_kib < 20 * 1024
