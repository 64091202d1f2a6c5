"""docs/faults.md against the table of faults. What the checks say there: tests/end_to_end/matrix.py."""

from __future__ import annotations

import re

import pytest

from remote.practice.faults import FAULTS
from tools import faults_page

TEXT = faults_page.PAGE.read_text(encoding="utf-8")
PARTS = faults_page.entries(TEXT)


def test_every_fault_has_its_entry_in_the_table_s_order() -> None:
    assert list(PARTS) == list(FAULTS)
    assert faults_page.page(PARTS) == TEXT


@pytest.mark.parametrize("name", FAULTS)
def test_an_entry_says_what_the_table_says(name: str) -> None:
    fault, part = FAULTS[name], PARTS[name]
    assert f"{fault.title}: {fault.does}." in part
    rows = dict(
        re.findall(r"^\| \*\*(\S+)\*\* \| (fail|unknown|exit 3) \| `.+` \| .+ \|$", part, re.MULTILINE)
    )
    assert list(rows) == list(fault.found_by)
    follows = dict(re.findall(r"^- (\S+) is `(fail|unknown)`: .+\.$", part, flags=re.MULTILINE))
    found = {check: "fail" if verdict == "exit 3" else verdict for check, verdict in rows.items()}
    assert found | follows == fault.verdicts


def test_nothing_on_the_page_is_of_one_machine_or_one_run() -> None:
    assert re.findall(r"/tmp/\S+|\bpid \d+|[T ]\d\d:\d\d:\d\d|127\.0\.0\.1:\d{4,}", TEXT) == []
