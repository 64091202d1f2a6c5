"""Which bundle a command takes for a node: --fix, else the server's own, else the inventory's, else ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remote import inventory
from remote.commands import chosen_bundles
from remote.errors import BundleError, InventoryError

INVENTORY = """\
defaults: {}
nodes:
  big: {host: big, python: /opt/python, server: kimi}
  small: {host: small, python: /opt/python, server: tiny}
groups: {both: [big, small]}
servers:
  kimi: {model_path: /m, port: 8000, log: /l}
  tiny: {model_path: /m, port: 8000, log: /l, fix: practice-real-capture}
"""


def chosen(folder: Path, defaults: str, given: str | None) -> dict[str, str]:
    path = folder / "inventory.yaml"
    path.write_text(INVENTORY.replace("defaults: {}", f"defaults: {defaults}"))
    found = inventory.load(str(path))
    nodes = found.select("both")
    bundle: Any = chosen_bundles(found, given, nodes)
    return {node.name: bundle(SimpleNamespace(node=node)).name for node in nodes}


def test_the_nearest_word_counts(tmp_path: Path) -> None:
    ours, small = "eagle3-embedding-capture", "practice-real-capture"
    assert chosen(tmp_path, "{}", None) == {"big": ours, "small": small}
    three = "eagle3-three-edits"
    assert chosen(tmp_path, f"{{fix: {three}}}", None) == {"big": three, "small": small}
    assert chosen(tmp_path, f"{{fix: {three}}}", ours) == {"big": ours, "small": ours}


def test_a_server_that_names_no_bundle_is_found_out_before_any_node_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY.replace("practice-real-capture", "practice-real-captur"))
    with pytest.raises(
        InventoryError, match=r":8: servers\.tiny\.fix .*did you mean 'practice-real-capture'"
    ):
        inventory.load(str(path))


@pytest.mark.parametrize("given", ["", "no-such"])
def test_a_word_that_names_no_bundle_is_not_the_default(tmp_path: Path, given: str) -> None:
    """Not the empty one of an unset shell variable either."""
    with pytest.raises(BundleError, match=f"there is no fix '{given}'"):
        chosen(tmp_path, "{}", given)
