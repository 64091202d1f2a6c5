"""Nodes for the simulator's tests: as released, and with the incident's fix made complete."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .kit import DEEPSEEK, Node, apply_three_edits, configure_graphs, make_node


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node with 0.5.9 as released; to be copied."""
    root = tmp_path_factory.mktemp("released")
    make_node(root, "0.5.9", DEEPSEEK)
    return root


def copy(original: Path, root: Path) -> Node:
    shutil.copytree(original, root, dirs_exist_ok=True)
    node = Node(root)
    node.settings()
    return node


@pytest.fixture
def node(released: Path, tmp_path: Path) -> Node:
    """0.5.9 as released, the DeepSeek model alone, two GPUs, a draft with the ids [2, 30, 58]."""
    return copy(released, tmp_path / "node")


@pytest.fixture(scope="module")
def fixed(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """0.5.9 with the complete fix and the draft's ids [-1, 2, 30]."""
    node = copy(released, tmp_path_factory.mktemp("fixed"))
    apply_three_edits(node)
    configure_graphs(node)
    node.layers([-1, 2, 30])
    return node
