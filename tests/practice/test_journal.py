"""What a fault replaced comes back exactly, and what somebody changed since does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remote.practice import journal
from remote.practice.models import write_safetensors
from remote.practice.processes import Known
from remote.practice.spawn import Spec


def first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "faults" / "one"


def test_a_file_comes_back_with_content_mode_and_times(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o640)
    os.utime(path, ns=(1_000_000_007, 2_000_000_009))
    journal.save_path(folder, path)
    path.write_bytes(b"after")
    path.chmod(0o600)
    journal.close(folder)
    assert journal.restore_paths(folder) == ([str(path)], [])
    found = path.stat()
    assert path.read_bytes() == b"before"
    assert (found.st_mode & 0o777, found.st_mtime_ns) == (0o640, 2_000_000_009)


def test_absence_and_links_come_back(folder: Path, tmp_path: Path) -> None:
    new, link = tmp_path / "new" / "file", tmp_path / "link"
    link.symlink_to("somewhere")
    for path in (new, link):
        journal.save_path(folder, path)
    new.parent.mkdir()
    new.write_text("made by the fault")
    link.unlink()
    link.write_text("made by the fault")
    journal.close(folder)
    journal.restore_paths(folder)
    assert not new.parent.exists()
    assert str(link.readlink()) == "somewhere"


def test_weights_come_back_without_being_read(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"w": ("BF16", (1 << 20, 1 << 14))})
    head, size = first_bytes(path), path.stat().st_size
    journal.save_path(folder, path)
    path.unlink()
    journal.close(folder)
    journal.restore_paths(folder)
    assert path.stat().st_size == size == 8 + int.from_bytes(head[:8], "little") + (1 << 35)
    assert first_bytes(path) == head


@pytest.mark.parametrize("repaired", [True, False])
def test_what_was_changed_since_is_left_alone(folder: Path, tmp_path: Path, repaired: bool) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    journal.save_path(folder, path)
    path.write_text("broken")
    journal.close(folder)
    path.write_text("before" if repaired else "somebody's")
    assert journal.restore_paths(folder) == ([], [] if repaired else [str(path)])
    assert path.read_text() == ("before" if repaired else "somebody's")


def test_an_interrupted_fault_heals_without_its_end(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    journal.save_path(folder, path)
    path.write_text("half bro")
    assert journal.restore_paths(folder) == ([str(path)], [])
    assert path.read_text() == "before"


def test_processes_and_servers_are_read_back(folder: Path) -> None:
    running = journal.Running(Known(7, 8), Spec(["python", "x"], {"A": "b=c"}, "/", "/log"))
    journal.save_started(folder, Known(1, 2))
    journal.save_server(folder, running)
    assert [(e.started, e.server) for e in journal.entries(folder)] == [(Known(1, 2), None), (None, running)]
