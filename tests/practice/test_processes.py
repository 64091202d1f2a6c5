"""Which processes belong to a practice node: by evidence, and nobody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remote.practice import processes
from remote.practice.layout import MARKER, Layout
from remote.practice.processes import Known
from remote.practice.spawn import Spec, detached
from tests.support import free_port, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path.resolve())


@contextmanager
def running(argv: list[str], **options: object) -> Iterator[Known]:
    process = subprocess.Popen(argv, **options)  # type: ignore[call-overload]
    try:
        entry = processes.known(process.pid)
        assert entry is not None
        yield entry
    finally:
        process.kill()
        process.wait()


def test_the_marker_in_the_environment_is_evidence(layout: Layout) -> None:
    with running(SLEEP, env={MARKER: str(layout.root)}) as ours:
        wait_until(lambda: processes.of(layout) == [ours], what="finding the marked process")


def test_another_nodes_marker_is_none(layout: Layout) -> None:
    with running(SLEEP, env={MARKER: f"{layout.root}-other"}) as other:
        assert other not in processes.of(layout)


def test_who_merely_stands_in_the_directory_is_left_alone(layout: Layout) -> None:
    log = layout.root / "log"
    log.write_text("")
    with (
        running(SLEEP, cwd=layout.root) as shell,
        running(["tail", "-f", str(log)]) as reader,
        running([*SLEEP, f"{layout.ssh}/sshd_config"]) as editor,
    ):
        assert not {shell, reader, editor} & set(processes.of(layout))


def test_code_of_the_nodes_interpreter_is_evidence_that_a_title_cannot_hide(layout: Layout) -> None:
    import setproctitle

    shutil.copytree(Path(setproctitle.__file__).parent, layout.site_packages / "setproctitle")
    code = (
        f"import sys, time; sys.path.insert(0, {str(layout.site_packages)!r}); import setproctitle as s;"
        "s.setproctitle('sglang::scheduler_TP0'); time.sleep(1000)"
    )
    with running([sys.executable, "-c", code], env={"LANG": "C.UTF-8"}) as ours:
        wait_until(lambda: processes.title(ours.pid).startswith("sglang"), what="the title")
        assert processes.of(layout) == [ours]


def test_this_process_and_its_ancestors_are_spared(layout: Layout) -> None:
    code = (
        "from pathlib import Path; from remote.practice import processes, layout as l;"
        f"print(processes.of(l.Layout(Path({str(layout.root)!r}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, MARKER: str(layout.root)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_recorded_processes_count_only_with_their_start_time(layout: Layout) -> None:
    layout.holders.mkdir(parents=True)
    with running(SLEEP) as ours:
        entry = layout.holders / "x.json"
        entry.write_text(f'{{"pid": {ours.pid}, "starttime_ticks": {ours.starttime_ticks + 1}}}')
        assert processes.of(layout) == []
        entry.write_text(f'{{"pid": {ours.pid}, "starttime_ticks": {ours.starttime_ticks}}}')
        assert processes.of(layout) == [ours]


def test_end_needs_kill_for_a_process_that_ignores_term(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(1000)"
    )
    with running([sys.executable, "-c", code]) as stubborn:
        wait_until(ready.exists, what="the signal handler")
        assert processes.end([stubborn], term_timeout_s=0.2) == []
        assert not processes.alive(stubborn)


def test_a_detached_process_is_nobodys_child_and_logs_to_its_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os, time; print(os.getsid(0) == os.getpid(), flush=True); time.sleep(1000)"
    pid = detached([Spec([sys.executable, "-c", code], {}, str(tmp_path), str(log))])[0]
    entry = processes.known(pid)
    assert entry is not None
    try:
        wait_until(lambda: log.read_text() == "True\n", what="the log line")
        assert processes.parent(pid) != os.getpid()
    finally:
        processes.end([entry])


def test_a_listener_is_found_by_its_port() -> None:
    port = free_port()
    code = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(1000)"
    assert processes.listener(port) is None
    with running([sys.executable, "-c", code]) as server:
        wait_until(lambda: processes.listener(port) == server.pid, what="the listener")
