"""Fixtures of the tests of the operations on the node."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.node.dispatcher import Bench, Op
from tests.node.kit import Probe


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    """A context with a state directory that does not exist yet."""
    made = Probe(tmp_path / "state")
    yield made
    made.state.close()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can enter: pytest's own ones are private."""
    made = Path(tempfile.mkdtemp(prefix="fixops-test-"))
    made.chmod(0o755)
    yield made
    for folder in [made, *made.rglob("*")]:
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o755)
    shutil.rmtree(made)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Some files of a node: sources with a mode and times of their own, a linked configuration."""
    made = tmp_path / "node"
    (made / "blobs").mkdir(parents=True)
    for name, text in (("a.py", "a = 1\n"), ("b.py", "b = 1\n")):
        (made / name).write_text(text)
        (made / name).chmod(0o640)
        os.utime(made / name, ns=(1_000_000_000_123_456_789, 1_500_000_000_987_654_321))
    (made / "blobs/ab12").write_text('{"ids": [2]}')
    (made / "config.json").symlink_to("blobs/ab12")
    os.utime(made / "config.json", ns=(5, 1_400_000_000_000_000_001), follow_symlinks=False)
    if os.geteuid() == 0:
        os.chown(made / "a.py", 12, 34)
    return made


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Op]], Bench]]:
    made: list[Bench] = []

    def make(ops: dict[str, Op]) -> Bench:
        made.append(Bench(tmp_path / "state", ops, monkeypatch))
        return made[-1]

    yield make
    for one in made:
        one.close()
