"""Every fault of processes, GPUs and logs, alone, and some pairs: no check says what is not true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remote.practice.fault import Fault
from remote.practice.faults import FAULTS
from remote.practice.gpu_faults import GPUS
from remote.practice.log_faults import LOGS
from remote.practice.process_faults import PROCESSES
from tests.end_to_end import matrix
from tests.end_to_end.kit import Practice
from tests.end_to_end.matrix import Healthy

# The first may start the server again, which must find the files as they should be.
PAIRS = (
    ("gpu-leak", "config-reverted"),
    ("other-log", "graph-edit-undone"),
    ("rank-stopped", "gpu-no-permission"),
    ("other-arguments", "stale-ranks"),
    ("server-killed", "stale-pyc"),
    ("health-lies", "draft-layers"),
)


@pytest.fixture(scope="module")
def healthy(practice: Practice) -> Iterator[Healthy]:
    yield from matrix.deployed(practice)


@pytest.mark.parametrize("fault", [*PROCESSES, *LOGS, *GPUS], ids=lambda fault: fault.name)
def test_a_fault_of_processes_logs_and_gpus(healthy: Healthy, fault: Fault) -> None:
    matrix.check(healthy, fault)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_a_fault_hides_no_other(healthy: Healthy, pair: tuple[str, str]) -> None:
    matrix.check(healthy, *(FAULTS[name] for name in pair))
