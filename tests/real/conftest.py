"""One real node at a time: two would want 4 GB of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.kit import Real, standing


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A node with the version that the module names, in the state of the incident; its tests share it."""
    version: str = request.module.VERSION
    yield from standing(tmp_path_factory.mktemp("real").resolve() / "node", version)
