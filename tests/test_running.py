"""A picture that was taken while the server came up is of no use."""

from __future__ import annotations

from typing import Any

import pytest

from remote.running import came_up
from tests import changes

STARTING = {"line": 1, "text": "[2026-11-29 10:00:00] Load weight begin. avail mem=90.00 GB"}


def loading(facts: dict[str, Any]) -> None:
    facts["log"]["matches"] = [each for each in facts["log"]["matches"] if "server_args" in each["text"]]
    facts["log"]["matches"].append({**facts["log"]["matches"][-1], "text": STARTING["text"]})


def health(status: int | None, elapsed_s: float) -> changes.Change:
    def change(facts: dict[str, Any]) -> None:
        facts["http"]["health"] = {"status": status, "error": None, "elapsed_s": elapsed_s, "body": ""}

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ([], False),
        ([loading], True),
        ([loading, changes.hangs], False),
        ([health(503, 0.1)], True),
        ([health(None, 0.0)], True),
        ([health(503, 20.0)], False),
        ([changes.no_server], False),
    ],
)
def test_a_server_that_came_up_while_it_was_read(change: list[changes.Change], expected: bool) -> None:
    assert came_up(changes.node(*change)) is expected
