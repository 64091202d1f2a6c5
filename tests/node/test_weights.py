"""Facts of a model's directory: when its weights changed, and not only what they claim of themselves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from remote.node import weights
from remote.node.base import OpError
from tests.node.kit import Probe, led_to, now_ns

NAME = "model.safetensors"
HEADER = b'{"fc.weight": {"dtype": "BF16", "shape": [2, 6], "data_offsets": [0, 24]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(24)


def look(probe: Probe, directory: Path) -> dict[str, Any]:
    return weights.weights({"directory": str(directory)}, probe.ctx)


def changed_ns(probe: Probe, directory: Path) -> int:
    return int(look(probe, directory)["ctimes_ns"][NAME])


def test_sizes_shapes_and_times(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(WEIGHTS)
    found = look(probe, tmp_path)
    assert (found["exists"], found["files"], found["shapes"]) == (
        True,
        {NAME: len(WEIGHTS)},
        {"fc.weight": [2, 6]},
    )
    assert found["ctimes_ns"] == {NAME: (tmp_path / NAME).stat().st_ctime_ns}
    nothing = look(probe, tmp_path / "none")
    assert (nothing["exists"], nothing["ctimes_ns"]) == (False, {})
    with pytest.raises(OpError, match="not an absolute path"):
        weights.weights({"directory": "org/draft"}, probe.ctx)


def test_a_copy_that_keeps_the_old_modification_time_is_a_change(probe: Probe, tmp_path: Path) -> None:
    for name in ("draft", "newer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_bytes(WEIGHTS)
        os.utime(tmp_path / name / NAME, (1, 1))
    started = now_ns(tmp_path)
    assert changed_ns(probe, tmp_path / "draft") < started
    shutil.copy2(tmp_path / "newer" / NAME, tmp_path / "draft" / NAME)  # as cp -p and rsync -a
    assert (tmp_path / "draft" / NAME).stat().st_mtime == 1
    assert changed_ns(probe, tmp_path / "draft") > started


@pytest.mark.parametrize("link", ["the file", "the snapshot"])
def test_a_link_that_was_led_to_older_weights_is_a_change(probe: Probe, tmp_path: Path, link: str) -> None:
    """The hub's layout: snapshots/REVISION/NAME links to blobs/HASH, and `current` may link to a revision."""
    for number, revision in enumerate(("ab12", "cd34")):
        snapshot = tmp_path / "snapshots" / revision
        snapshot.mkdir(parents=True)
        (tmp_path / "blobs").mkdir(exist_ok=True)
        (tmp_path / "blobs" / f"{number}").write_bytes(WEIGHTS)
        (snapshot / NAME).symlink_to(f"../../blobs/{number}")
    (tmp_path / "current").symlink_to("snapshots/ab12")
    started = now_ns(tmp_path)
    assert changed_ns(probe, tmp_path / "current") < started
    led, target = {
        "the file": (tmp_path / "snapshots/ab12" / NAME, "../../blobs/1"),
        "the snapshot": (tmp_path / "current", "snapshots/cd34"),
    }[link]
    led_to(led, target)
    assert changed_ns(probe, tmp_path / "current") > started


def test_what_is_written_beside_weights_is_no_change_of_them(probe: Probe, tmp_path: Path) -> None:
    """Such as the configuration, which a deploy replaces."""
    (tmp_path / NAME).write_bytes(WEIGHTS)
    started = now_ns(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert changed_ns(probe, tmp_path) < started
