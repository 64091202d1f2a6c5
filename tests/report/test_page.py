"""The page: self-contained, escaped, whole, and equal to its data."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from remote.checks import Check, Evidence
from remote.render.report.clean import cleaned
from remote.render.report.page import html
from remote.render.report.text import text
from remote.report import runs
from remote.report.model import Brought, Missing, Report, Step
from remote.report.runs import from_document
from tests.report.kit import BEGAN_S, CHECKS, Page, after, before, brought, deploy, mode, replaced, report

HOSTILE = "</pre></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;{{ 7*7 }}"
EMPTY = Brought(None, None, (), None)


def page(found: Report) -> Page:
    return Page(html(cleaned(found, lambda text: text)))


@pytest.mark.parametrize("load", [None, {}, {"concurrency": None}])
@pytest.mark.parametrize("time", [None, 1.0])
def test_a_baseline_may_tell_nothing_but_a_figure(load: dict[str, None] | None, time: float | None) -> None:
    """The shipped baseline 'incident' knows nothing of the load; it stands in for the run before."""
    told = {"accept_len": 1.8, "name": "incident", "time": time, "load": load}
    run = from_document(after(baseline=told))
    found = runs.brought([run], BEGAN_S, None)
    shown = report(brought=found)
    assert "'incident'" in page(shown).text
    assert "accept length: 1.80 -> 3.38" in text(shown)


@pytest.mark.parametrize("missing", ["load", "verdict", "reasons", "guards", "expected", "wiring", "runs"])
def test_a_run_may_lack_what_is_not_its_figures(missing: str) -> None:
    for run in (after(**{missing: None}), {k: v for k, v in after().items() if k != missing}):
        shown = report(brought=brought(last=run))
        assert "None" not in page(shown).text
        assert "NONE" not in text(shown)


def test_a_run_in_the_journal_has_its_figures_only() -> None:
    entry = {"command": "bench", "phase": "end", "deploy_id": "r1", "time": BEGAN_S + 9}
    found = runs.all_runs([{**entry, "bench": {"accept_len": 3.0}}], [])
    shown = report(brought=runs.brought(found, BEGAN_S, None))
    assert "3.00" in page(shown).text
    assert "NONE" not in text(shown)


def hostile() -> Report:
    """A node that says everywhere what would be markup if it were not escaped."""
    run = after(
        reasons=[HOSTILE],
        guards=[{"id": HOSTILE, "state": "shown", "detail": HOSTILE, "spoils": []}],
        saved_as=HOSTILE,
        who=HOSTILE,
        kept=HOSTILE,
        wiring={"graph": [HOSTILE]},
    )
    run["runs"][0]["prompt"] = HOSTILE
    run["summary"]["definitions"] = {HOSTILE: HOSTILE}
    run["comparison"]["accept_len"]["why_not"] = HOSTILE
    check = Check("source.file", "fail", HOSTILE, HOSTILE, (Evidence(HOSTILE, HOSTILE),), HOSTILE)
    return report(
        node=HOSTILE,
        host=HOSTILE,
        version=HOSTILE,
        fix_why=HOSTILE,
        checks=(check,),
        answer=HOSTILE,
        contract=("embed", HOSTILE),
        wiring={"eager": [HOSTILE, "embed"], "graph": None, "overlap": {"error": HOSTILE}},
        modes=(mode("eager", "mismatch", HOSTILE), mode("graph", "unknown", HOSTILE)),
        deploy=deploy(
            who=HOSTILE,
            command=HOSTILE,
            later=(HOSTILE,),
            steps=(Step(HOSTILE, HOSTILE, "error", HOSTILE, None, None),),
            files=(replaced(HOSTILE.encode(), b"+" + HOSTILE.encode(), HOSTILE),),
        ),
        brought=brought(before(wiring={"eager": [HOSTILE]}), run),
        missing=(Missing(HOSTILE, HOSTILE),),
    )


@pytest.mark.parametrize("found", [report(), report(brought=EMPTY, deploy=None), hostile()])
def test_it_stands_alone_and_is_well_formed(found: Report) -> None:
    seen = page(found)
    assert (seen.misnested, seen.open) == ([], [])
    loads = {
        "script",
        "iframe",
        "img",
        "object",
        "embed",
        "image",
        "use",
        "foreignobject",
        "form",
        "base",
        "a",
    }
    assert {tag for tag, _ in seen.elements} & loads == set()
    assert [attrs for attrs in seen.tags("link") if attrs["href"] != "data:,"] == []
    names = {name for _, attrs in seen.elements for name in attrs}
    assert not [name for name in names if name.startswith("on") or name in ("src", "srcset", "xlink:href")]
    styles = [*seen.styles, *(attrs.get("style", "") for _, attrs in seen.elements)]
    assert not re.search(r"url\s*\(|@import|//", " ".join(styles))
    (policy,) = [each["content"] for each in seen.tags("meta") if "http-equiv" in each]
    assert policy.startswith("default-src 'none'")
    assert len(html(found)) < 1_000_000


def test_what_the_node_says_is_text_and_never_markup() -> None:
    seen = page(hostile())
    for part in ("check-source.file", "done", "wiring", "brought", "change"):
        assert HOSTILE in seen.of(part), part
    assert seen.text.count(HOSTILE) > 20
    assert "49" not in seen.of("done")


def test_every_check_is_there_with_its_evidence() -> None:
    seen = page(report())
    for check in CHECKS:
        text = seen.of(f"check-{check.id}")
        assert check.verdict in text
        assert check.expected in text
        assert check.observed in text
        assert check.remedy in text
        for each in check.evidence:
            assert each.source in text
            assert each.text in text
    assert "not proven 2 passed, 1 unknown, 1 skipped" in seen.of("proven")
    opened = {attrs["id"] for attrs in seen.tags("details") if "open" in attrs and "id" in attrs}
    assert opened == {"check-gpu.holders"}


def test_the_figures_are_those_of_the_runs() -> None:
    seen = page(report())
    table = seen.of("brought")
    assert "accept length 1.50 [1.35, 1.65] 3.38 [3.04, 3.71] 2.25 [2.10, 2.40] better" in table
    assert "output tok/s of one request 50.0 [45.0, 55.0] 125.0 [112.5, 137.5] 2.50 [2.20, 2.80]" in table
    assert "implied acceptance per draft step" in table
    assert "before 1.50 [1.35, 1.65] after 3.38 [3.04, 3.71] expected 3.4" in seen.of("plot-accept_len")
    assert "before, 100 verifications after, 100 verifications" in seen.of("plot-histogram")
    assert "5 of 5 prompts gain" in seen.of("plot-pairs-accept_len")
    assert "effective" in table
    assert "spoils other-load 3 strangers (not judged: output_tok_s)" in table


def test_what_was_done_is_told_with_its_diff() -> None:
    seen = page(report(deploy=deploy(later=("restart (x, by bob)",), restored=1795982300.0)))
    text = seen.of("done")
    for words in ("push ok write sglang/m.py 0.2 s", "start ok its code changes 1 min 10 s", "since then"):
        assert words in text
    assert "rolled back 2026-11-29 19:58:20 UTC" in text
    change = seen.of("change")
    assert "as deployed" in change
    assert "-a = 1 +a = 2" in change
    assert "/state/blobs/" + "b" * 64 in change


def test_the_wiring_is_drawn_for_each_mode() -> None:
    seen = page(report())
    drawn = {attrs["aria-label"]: attrs for attrs in seen.tags("svg") if attrs.get("class") == "wiring"}
    assert list(drawn) == [
        "wiring of Prefill (eager): before embed, in:3, in:31; trained with embed, in:3, in:31;"
        " now embed, in:3, in:31",
        "wiring of Decode (CUDA graph): before in:2, in:30, in:58; trained with embed, in:3, in:31;"
        " now embed, in:3, in:31",
        "wiring of Two-batch overlap: before nothing is captured; trained with embed, in:3, in:31; now embed",
    ]
    assert "Decode (CUDA graph) as trained" in seen.of("wiring-graph")
    assert "off on this server" in seen.of("wiring-overlap")


def test_a_simulated_server_is_said_to_be() -> None:
    assert "SIMULATED" not in page(report()).text
    assert "SIMULATED server" in page(report(simulated=True)).text


def test_without_anything_it_says_what_is_missing() -> None:
    nothing = Missing("no deploy", "inv deploy-fix --node blackwell")
    seen = page(report(deploy=None, brought=EMPTY, missing=(nothing,)))
    assert "no deploy: inv deploy-fix --node blackwell" in seen.text
    assert "Nothing was measured yet." in seen.of("brought")
    assert "nothing was deployed with fixops" in seen.text
    assert "change" not in seen.by_id or seen.of("change") == ""


def test_figures_of_the_journal_alone_are_drawn_too() -> None:
    first = from_document(before())
    bare = replace(first, prompts={}, wiring=None, summary=replace(first.summary, histogram=None))
    seen = page(report(brought=Brought(bare, None, (), None)))
    assert "before 1.50 [1.35, 1.65]" in seen.of("plot-accept_len")
    assert not [id for id in seen.by_id if id.startswith(("plot-pairs", "plot-histogram"))]


def test_light_and_dark_have_the_same_colours_to_set() -> None:
    css = "".join(page(report()).styles)
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", css)
    names = [set(re.findall(r"(--[a-z-]+):", block)) for block in blocks]
    assert len(names) == 3
    assert names[0] == names[1] == names[2]
    used = set(re.findall(r"var\((--[a-z-]+)\)", css))
    assert used <= names[0]


def test_the_same_report_gives_the_same_page() -> None:
    assert html(report()) == html(report())
