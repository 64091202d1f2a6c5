"""Where a server's output ends: its own files, and those that `| tee` writes for it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from remote.node import outputs, procs
from tests.support import wait_until


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def begin(running: ExitStack, *argv: str, **more: Any) -> subprocess.Popen[bytes]:
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
    process = subprocess.Popen(argv, **streams)
    running.callback(process.wait)
    running.callback(process.kill)
    return process


def chain(running: ExitStack, *readers: list[str], output: Any = subprocess.DEVNULL, **more: Any) -> int:
    """`sleep 60 2>&1 | reader | reader > output`: the pid of what stands first."""
    first = begin(running, "sleep", "60", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    before = first
    for number, reader in enumerate(readers, start=1):
        last = number == len(readers)
        target = output if last else subprocess.PIPE
        after = begin(running, *reader, stdin=before.stdout, stdout=target, **more)
        assert before.stdout is not None
        before.stdout.close()
        name = reader[0]
        wait_until(lambda pid=after.pid, name=name: procs.table()[pid]["comm"] == name, 10, what=name)
        before = after
    return first.pid


def ends(pid: int) -> list[str]:
    return outputs.log_files(pid, procs.table())


def test_the_file_that_its_errors_go_to(running: ExitStack, tmp_path: Path) -> None:
    """There SGLang logs; its standard output may be another file, with the records of another boot."""
    log, errors = tmp_path / "server.log", tmp_path / "errors.log"
    with log.open("wb") as out, errors.open("wb") as err:
        apart = begin(running, "sleep", "60", stdout=out, stderr=err)
        both = begin(running, "sleep", "60", stdout=out, stderr=out)
    quiet = begin(running, "sleep", "60", stdout=subprocess.DEVNULL)
    assert ends(apart.pid) == [str(errors)]
    assert ends(quiet.pid) == []
    assert ends(both.pid) == [str(log)]


@pytest.mark.parametrize("option", [[], ["-a"]])
def test_a_copy_by_tee(running: ExitStack, tmp_path: Path, option: list[str]) -> None:
    log = tmp_path / "server.log"
    pid = chain(running, ["tee", *option, str(log)])
    wait_until(log.exists, 10, what="the file of tee")
    assert ends(pid) == [str(log)]


def test_several_copies_and_several_pipes(running: ExitStack, tmp_path: Path) -> None:
    first, second, last = (tmp_path / name for name in ("a.log", "b.log", "c.log"))
    with last.open("wb") as output:
        pid = chain(running, ["cat"], ["tee", str(first), str(second)], ["cat"], output=output)
    wait_until(second.exists, 10, what="the files of tee")
    assert ends(pid) == [str(first), str(second), str(last)]


def test_what_a_filter_left_of_it_is_not_its_log(running: ExitStack, tmp_path: Path) -> None:
    with (tmp_path / "server.log").open("wb") as output:
        assert ends(chain(running, ["grep", "-v", "Traceback"], output=output)) == []


def test_what_tee_reads_or_complains_of_is_none(running: ExitStack, tmp_path: Path) -> None:
    known, errors = tmp_path / "known", tmp_path / "errors"
    known.write_text("x")
    with known.open("rb") as read, errors.open("wb") as err:
        more = {"pass_fds": (read.fileno(),), "stderr": err}
        assert ends(chain(running, ["tee"], **more)) == []


def test_nobody_reads_it_or_it_is_gone(running: ExitStack) -> None:
    first = begin(running, "sleep", "60", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ends(first.pid) == []
    assert ends(2**22 + 1) == []
    assert first.stdout is not None
    first.stdout.close()
