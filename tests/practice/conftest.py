"""A practice node of its own for each test module that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remote.practice.down import down
from remote.practice.layout import Layout
from remote.practice.up import Up, up


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A node with two GPUs, fresh from `up`, taken away afterwards."""
    layout = Layout(tmp_path_factory.mktemp("node").resolve() / "practice")
    made = up(layout, gpus=2)
    try:
        yield made
    finally:
        down(layout)
