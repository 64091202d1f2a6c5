"""Fixtures of the tests of the operations on the node."""

from __future__ import annotations

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
