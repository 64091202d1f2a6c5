"""The node of this folder's tests. One at a time: two would want 4 GB of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.kit import Real, standing


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """In the state of the incident; the tests share it, in order."""
    yield from standing(tmp_path_factory.mktemp("real").resolve() / "node", "0.5.23")
