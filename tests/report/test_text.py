"""The summary for a chat message, secrets and control characters, and where the page is written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from remote.checks import Check, Evidence
from remote.errors import UsageError
from remote.redact import KnownSecrets
from remote.render import report as render
from remote.render.report.clean import cleaned, printable
from remote.render.report.text import text
from remote.report.model import Brought, Missing
from tests.report.kit import deploy, mode, report

GOLDEN = """\
fixops report on blackwell (SIMULATED server), SGLang 0.5.9, 2026-11-29 20:00:24 UTC
deploy 20261129T195804Z-a95e: deploy-fix eagle3-embedding-capture
by ada@desk, 2026-11-29 19:58:04 UTC, 1 min 15 s
done: push ok, start ok
files: m.py; originals kept on the node
NOT PROVEN: 2 passed, 1 unknown, 1 skipped (inv verify)
- unknown gpu.holders: nvidia-smi tells no pids
trained with [embed, in:3, in:31]
served: prefill [embed, in:3, in:31] right; decode [embed, in:3, in:31] right
accept length: 1.50 [1.35, 1.65] -> 3.38 [3.04, 3.71], x 2.25 [2.10, 2.40]
accept rate: 0.10 [0.07, 0.13] -> 0.47 [0.41, 0.54]
implied acceptance per draft step: 0.334 [0.259, 0.396] -> 0.761 [0.715, 0.803]
output tok/s of one request: 50.0 [45.0, 55.0] -> 125.0 [112.5, 137.5], x 2.50 [2.20, 2.80]
EFFECTIVE: accept length 3.375 [3.037, 3.712], expected 3.4: reached
missing: nothing much (inv status)
"""


def same(value: str) -> str:
    return value


def test_the_text_is_the_same_summary() -> None:
    found = report(simulated=True, missing=(Missing("nothing much", "inv status"),))
    assert text(found) == GOLDEN


def test_without_deploy_and_runs_it_is_short() -> None:
    nothing = Brought(None, None, (), None)
    failing = Check("wiring.graph", "fail", "[embed]", "[in:2]")
    found = report(
        deploy=None,
        brought=nothing,
        checks=(failing,),
        modes=(mode("graph", "mismatch", "[in:2]"),),
        version=None,
    )
    assert text(found).splitlines() == [
        "fixops report on blackwell, SGLang not found, 2026-11-29 20:00:24 UTC",
        "deploy: none",
        "FAILED: 0 passed, 1 failed (inv verify)",
        "- fail wiring.graph: [in:2]",
        "trained with [embed, in:3, in:31]",
        "served: decode [in:2] WRONG",
    ]


def test_secrets_are_in_no_part_of_the_page(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    check = Check("log.errors", "fail", "none", f"--api-key {secret}", (Evidence("log", f"key {secret}"),))
    found = report(checks=(check,), deploy=deploy(who=f"x {secret}", later=(secret,)), answer=secret)
    written = render.write(found, KnownSecrets([secret]).clean, str(tmp_path / "page.html"))
    assert secret not in (tmp_path / "page.html").read_text()
    assert secret not in written.text
    assert secret not in str(written.to_json())


def test_control_characters_and_turned_text_are_made_visible() -> None:
    assert printable("\x1b[31mred\x1b[0m\x00\u202eevil\r\n\tx") == "red\ufffd\ufffdevil\n\tx"
    found = cleaned(report(answer="a\x07b"), same)
    assert found.answer == "a\ufffdb"
    assert found.checks == report().checks


def test_the_page_lies_in_the_state_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    written = render.write(report(), same, None)
    path = tmp_path / "fixops" / "reports" / "fixops-report-blackwell-20261129T195804Z-a95e.html"
    assert written.path == str(path)
    assert path.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    again = render.write(report(deploy=None), same, None)
    assert again.path is not None
    assert again.path.endswith("fixops-report-blackwell-no-deploy.html")


def test_output_is_a_file_or_a_folder(tmp_path: Path) -> None:
    assert render.write(report(), same, str(tmp_path / "x.html"), many=False).path == str(tmp_path / "x.html")
    inside = render.write(report(), same, f"{tmp_path}/new/", many=True).path
    assert inside == str(tmp_path / "new" / "fixops-report-blackwell-20261129T195804Z-a95e.html")
    assert render.target(report(), str(tmp_path), many=True).parent == tmp_path
    with pytest.raises(UsageError, match="several nodes"):
        render.write(report(), same, str(tmp_path / "y.html"), many=True)


def test_a_page_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        render.write(report(), same, str(tmp_path / "no" / "such" / "x.html"))
    (tmp_path / "dir.html" / "inside").mkdir(parents=True)
    assert [each.name for each in tmp_path.iterdir()] == ["dir.html"]


def test_text_alone_writes_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = render.write(report(), same, None, page=False)
    render.show(written, as_text=True)
    assert capsys.readouterr().out == written.text
    assert written.path is None
    assert list(tmp_path.iterdir()) == []


def test_the_path_is_printed_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(missing=(Missing("no benchmark", "inv bench"),))
    render.show(render.write(found, same, str(tmp_path / "x.html")), as_text=False)
    assert capsys.readouterr().out.splitlines() == [
        "missing: no benchmark",
        "next:    inv bench",
        f"report: {tmp_path / 'x.html'}",
    ]
