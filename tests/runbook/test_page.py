"""When two prints count as the same, and what of a print the page leaves out."""

from __future__ import annotations

import pytest

from tests.runbook.page import normal, scripts, shown

VERIFY = """\
FAIL wiring.graph      [in:2, in:30, in:58]
       expected decode: [embed, in:3, in:31]
       next     inv diagnose --node practice
pass source.file       /srv/practice/python/lib/python3.11/site-packages/sglang/
                       __init__.py
skip wiring.overlap    this mode is off on this server
FAILED practice: 18 passed, 1 failed, 2 skipped
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pid 11, 12, 13 (gone)", "pid 4711,\n   4712, 4713 (gone)"),
        ("ready after 3.9 s: 2 of 2 ranks", "ready after 12 s: 2 of 2 ranks"),
        ("started 2026-11-29 19:15:10.89 UTC", "started 2027-01-01\n 00:00:00.01 UTC"),
        ("log x.20261129T194053Z-c93d.log", "log x.20270101T0000\n   00Z-0a0b.log"),
        ("/lib/python3.11/sglang/a.py:12", "/lib/python3.13/sglang/a.py\n   :1234"),
        ("read back: a.py d15f06793412", "read back: a.py 0123456789ab"),
        ("accept length  1.45 [1.42, 1.52]", "accept length  1.5 [1.4, 1.629]"),
        ("a\n[...]\nb", "a\nb"),
    ],
)
def test_these_say_the_same(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("FAIL wiring.graph x", "pass wiring.graph x"),
        ("[in:2, in:30, in:58]", "[embed, in:3, in:31]"),
        ("2 of 2 ranks", "1 of 2 ranks"),
        ("3 processes ended: 3 by TERM", "3 processes ended: 3 by KILL"),
        ("gpu 0  88880 of 97887 MiB", "gpu 0  4 of 97887 MiB"),
        ("19:45:27 19:45:28 1.48       66.1", "19:45:27 19:45:28 3.48       66.1"),
        ("runbook: inv runbook locked", "runbook: inv runbook refused"),
        ("listens on port 8000", "listens on port 8001"),
    ],
)
def test_these_do_not(one: str, other: str) -> None:
    assert normal(one) != normal(other)


def test_what_passed_is_left_out_and_nothing_else() -> None:
    lines = shown(VERIFY).splitlines()
    assert lines == [*VERIFY.splitlines()[:3], "[...]", VERIFY.splitlines()[-1]]


def test_of_the_boots_the_last_is_shown_and_of_a_diff_its_beginning() -> None:
    boots = "boot started\n1    2026-11-29 x\n2    2026-11-29 y\n3    2026-11-30 z\nafter\n"
    assert shown(boots).splitlines() == ["boot started", "[...]", "3    2026-11-30 z", "after"]
    diff = "".join(["--- a/f.py\n", "+++ b/f.py\n", *["+line\n"] * 30, "-      push-config    in place\n"])
    lines = shown(diff).splitlines()
    assert len(lines) < 20
    assert lines[-2:] == ["[...]", "-      push-config    in place"]


def test_progress_is_left_out_and_a_result_is_not() -> None:
    said = "health         loading-target 3 %, 0/2 ranks, 10 s\nok      health         ready after 12.0 s\n"
    assert shown(said) == "ok      health         ready after 12.0 s\n"


def test_a_page_is_read_as_a_script() -> None:
    text = (
        "intro\n\n## one\n\n<!-- do: inv practice.break x -->\n<!-- undo: inv practice.heal -->\n\n"
        "```console exit=7\n$ inv verify\nFAIL\n```\n\n## two\n\n```console\n$ inv status\n```\n"
    )
    one, two = scripts(text)
    step, block = one.items
    assert (step, one.undo) == ("inv practice.break x", ("inv practice.heal",))
    assert not isinstance(block, str)
    assert (block.command, block.exit, block.output) == ("verify", 7, "FAIL\n")
    assert text[block.start : block.end] == block.renewed(7, "FAIL\n")
    assert [item.command for item in two.items if not isinstance(item, str)] == ["status"]
