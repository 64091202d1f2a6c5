"""Practice nodes for the end-to-end tests: one for each module that asks for it, or one for a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.kit import Practice, standing


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A node with two GPUs in the state of the incident; the module's tests share it."""
    yield from standing(tmp_path_factory.mktemp("node").resolve() / "practice")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Practice]:
    """A node in the state of the incident for one test."""
    yield from standing(tmp_path.resolve() / "practice")


@pytest.fixture(scope="session")
def shared_incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    yield from standing(tmp_path_factory.mktemp("node").resolve() / "practice")


@pytest.fixture
def incident(shared_incident: Practice) -> Iterator[Practice]:
    """A node in the state of the incident, which the tests share: it must be the same after each."""
    before = shared_incident.everything()
    yield shared_incident
    assert shared_incident.everything() == before
    assert not shared_incident.state.exists()
