"""Arguments that SGLang does not have are told before the server that runs is ended for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remote.arguments import refuse_adjusted_arguments, refuse_mistyped
from remote.errors import UsageError
from remote.picture import Picture
from tests import pictures


def wanting(**args: Any) -> Picture:
    """A healthy node, whose inventory asks for these too, and whose server tells one argument more."""
    found = pictures.picture()
    server = found.node.server.model_copy(update={"args": {**found.node.server.args, **args}})
    told = {**(found.effective or {}), "enable_metrics": False, "version": found.version}
    return replace(found, node=replace(found.node, server=server), effective=told)


@pytest.mark.parametrize(
    ("typed", "meant"), [("tpsize", "tp-size"), ("speculative_num_stepz", "speculative-num-steps")]
)
def test_a_mistyped_name_is_told_with_the_one_that_is_meant(typed: str, meant: str) -> None:
    found = wanting(**{typed: 2})
    shown = typed.replace("_", "-")
    for refuse in (refuse_mistyped, refuse_adjusted_arguments):
        with pytest.raises(UsageError, match=f"0.5.9 has no argument '{shown}' .did you mean '{meant}'"):
            refuse(found)


@pytest.mark.parametrize("name", ["tp-size", "tensor-parallel-size", "enable-metric", "dist-timeout", "zzz"])
def test_a_name_or_a_beginning_of_one_or_what_nothing_is_like_is_not(name: str) -> None:
    """argparse takes a beginning; and an option may set an argument of quite another name."""
    refuse_mistyped(wanting(**{name: 2}))


def test_nothing_is_said_where_no_server_of_this_version_tells_its_arguments() -> None:
    found = wanting(tpsize=2)
    refuse_mistyped(replace(found, effective=None, boot=None))
    refuse_mistyped(replace(found, version="0.5.10"))
