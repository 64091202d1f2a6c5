"""Fixtures of the tests of the operations on the node."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
