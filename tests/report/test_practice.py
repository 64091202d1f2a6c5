"""The report of a practice node: before anything was done, after a deploy, with runs on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.kit import FIXED, Practice, standing
from tests.report.kit import Page

STEP_MS = 4.0
SMALL = ("--requests", "6", "--max-tokens", "32", "--concurrency", "6")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    root = tmp_path_factory.mktemp("node").resolve()
    for made in standing(root / "practice"):
        made.settings(step_ms=STEP_MS)
        yield Practice(made.root, {**made.env, "XDG_STATE_HOME": str(root / "xdg")})


def test_from_nothing_to_before_and_after(node: Practice, tmp_path: Path) -> None:
    first = node.inv("report", "--json").is_(0).entry
    assert first["deploy_id"] is None
    assert first["simulated"] is True
    assert [each["command"] for each in first["missing"]] == [
        "inv deploy-fix --node practice",
        "inv diagnose --node practice",
        "inv bench --anyway --save-as before --node practice",
    ]
    page = Page(Path(first["path"]).read_text())
    assert "Still missing" in page.text
    assert "fail" in page.of("check-wiring.graph")
    assert not node.state.exists()  # a report changes nothing

    before = node.inv("bench", "--anyway", "--save-as", "before", "--json", *SMALL).is_(0).entry
    deployed = node.deploy()
    after = node.inv("bench", "--baseline", "before", "--json", *SMALL).entry
    out = tmp_path / "page.html"
    told = node.inv("report", "--json", "--output", str(out)).is_(0).entry
    assert told["path"] == str(out)
    assert told["deploy_id"] == deployed.entry["deploy_id"]
    assert told["runs"] == {"before": before["run_id"], "after": after["run_id"]}
    assert (told["missing"], told["proven"], told["verdict"]) == ([], "proven", after["verdict"])

    page = Page(out.read_text())
    assert (page.misnested, page.open) == ([], [])
    for check in node.inv("verify", "--json").entry["checks"]:
        assert check["verdict"] in page.of(f"check-{check['id']}")
    for run in (before, after):
        length = run["summary"]["accept_len"]
        shown = f"{length['median']:.2f} [{length['low']:.2f}, {length['high']:.2f}]"
        assert shown in page.of("plot-accept_len")
        assert shown in told["text"]
    for path in FIXED:
        assert f"+++ b/{path}" in page.of("change")
    assert "+ self.capture_embedding_for_eagle3 = False" in page.of("change")
    for action in ("push", "purge-pycache", "kill-stale", "free-gpus", "start"):
        assert action in page.of("done")
    drawn = [each["aria-label"] for each in page.tags("svg") if each.get("class") == "wiring"]
    assert "before in:2, in:30, in:58; trained with embed, in:3, in:31; now embed, in:3, in:31" in drawn[1]
    assert "SIMULATED server" in page.text

    text = node.inv("report", "--text").is_(0)
    assert text.out.splitlines()[1] == f"deploy {told['deploy_id']}: deploy-fix eagle3-embedding-capture"
    assert "report: " not in text.out

    node.inv("report", "--deploy", "20200101T000000Z-0000").refuses(5, "no deploy")
    node.inv("report", "--output", str(tmp_path / "nowhere" / "x.html")).refuses(2, "cannot be written")
