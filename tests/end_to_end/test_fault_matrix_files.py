"""Every fault of files, alone: found by its checks, and no other check says what is not true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remote.practice.fault import Fault
from remote.practice.file_faults import ACCESS, DRAFT, SOURCE
from tests.end_to_end import matrix
from tests.end_to_end.kit import Practice
from tests.end_to_end.matrix import Healthy


@pytest.fixture(scope="module")
def healthy(practice: Practice) -> Iterator[Healthy]:
    yield from matrix.deployed(practice)


@pytest.mark.parametrize("fault", [*SOURCE, *DRAFT], ids=lambda fault: fault.name)
def test_a_fault_of_files(healthy: Healthy, fault: Fault) -> None:
    matrix.check(healthy, fault)


@pytest.mark.parametrize("fault", ACCESS, ids=lambda fault: fault.name)
def test_a_fault_of_access(healthy: Healthy, fault: Fault) -> None:
    matrix.keeps_out(healthy, fault)
