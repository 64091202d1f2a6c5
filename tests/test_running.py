"""A picture that was taken while the server came up is of no use."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from remote.picture import Picture
from remote.plan import serve
from remote.proofs import prove
from remote.running import came_up, started_otherwise
from tests import changes, pictures
from tests.pictures import PYTHON

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


def test_it_is_told_where_a_start_would_be_by_other_words() -> None:
    """A wrapper or another interpreter: the old server ended, and the new one could not start."""
    found = changes.node()
    facts = dict(found.facts)
    assert started_otherwise(changes.node(changes.no_server)) == []
    (said,) = started_otherwise(with_argv(facts, ["/opt/serve", "--tp-size", "2"]))
    assert said == f"it runs as `/opt/serve`, and will be started as `{PYTHON} -m sglang.launch_server`"
    assert started_otherwise(with_argv(facts, [PYTHON, "-m", "sglang.launch_server", "--tp-size", "4"])) == []
    served = serve(with_argv(facts, ["/opt/serve"]), prove(found), ["its code changes"])
    assert served.action("start").detail.startswith("its code changes; it runs as `/opt/serve`")


def with_argv(facts: dict[str, Any], argv: list[str]) -> Picture:
    """The healthy node, whose server has this command line."""
    changed = copy.deepcopy(facts)
    changed["procs"]["processes"][0]["argv"] = argv
    return pictures.picture(changed)
