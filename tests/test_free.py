"""What is said of memory that does not come back."""

from __future__ import annotations

from typing import Any

import pytest

from remote.free import held_by

LISTED = {"pid": 99, "name": "python3", "gpu_index": 1}
OPENED = {"pid": 20511, "name": "pt_data_worker", "user": "ops", "path": "/dev/nvidia0"}


@pytest.mark.parametrize(
    ("holders", "opened", "said"),
    [
        ([LISTED], [OPENED], "held by pid 99 python3 on GPU 1"),
        (
            [],
            [OPENED, {**OPENED, "path": "/dev/nvidia1"}],
            "the devices are open in pid 20511 pt_data_worker (ops)",
        ),
        ([], [], "held by the driver, or in another container"),
    ],
)
def test_who_holds_it(holders: list[dict[str, Any]], opened: list[dict[str, Any]], said: str) -> None:
    """Case 061: whom nvidia-smi lists, else whom fuser would show, else nobody that is visible."""
    told = held_by({"holders": holders, "device_file_holders": opened})
    assert said in told
    assert told.count("pid") == (1 if holders or opened else 0)
