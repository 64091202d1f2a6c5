"""SGLang's own client as a second opinion: run on the node where it is, unknown where it is not."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remote.bench import second
from remote.bench.assemble import Options
from remote.bench.guards import BOTH
from remote.bench.plan import plan
from remote.errors import ExitCode
from remote.node.base import OpError
from remote.node.client import bench_client
from remote.reporting import Silent
from tests.bench.results import empty
from tests.bench.runs import quiet
from tests.bench.test_cases import PRINTED, client_result
from tests.bench.test_run import Place, place
from tests.node.kit import Probe
from tests.support import wait_until
from tests.wheels import wheel_source

# What the real one does, as far as anybody outside sees: reads the dataset, prints a report, appends a line.
CLIENT = """
import json, os, sys
flags = sys.argv[1:]
def value(name):
    return flags[flags.index(name) + 1]
with open(value("--dataset-path")) as file:
    asked = [each["conversations"][0]["value"] for each in json.load(file)]
print(os.environ["PRINTED"])
result = json.loads(os.environ["RESULT"])
env = {name: os.environ.get(name) for name in ("NO_PROXY", "OPENAI_API_KEY")}
result["seen"] = {"argv": flags, "asked": asked, "env": env}
with open(value("--output-file"), "a") as file:
    file.write("{}\\n" + json.dumps(result) + "\\n")
sys.exit(int(os.environ.get("CODE", "0")))
"""


def package(root: Path, *modules: str, text: str = CLIENT) -> Path:
    """An installed sglang of which only the client matters."""
    for module in modules:
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in [path.parent, *path.parent.parents]:
            if folder == root:
                break
            (folder / "__init__.py").touch()
        path.write_text(text)
    return root


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path / "state")


def ask(root: Path, probe: Probe, module: str = "sglang.bench_serving", **env: str) -> dict[str, Any]:
    given = {"PYTHONPATH": str(root), "PRINTED": PRINTED, "RESULT": json.dumps(client_result()), **env}
    params = {"module": module, "args": ["--seed", "1"], "env": given}
    return bench_client({**params, "dataset": second.dataset(plan(requests=2))}, probe.ctx)


def test_its_last_result_line_is_read_and_nothing_is_left(tmp_path: Path, probe: Probe) -> None:
    reply = ask(package(tmp_path / "site", "sglang.bench_serving"), probe)
    found = second.report(reply)
    assert isinstance(found, dict)
    assert found["output_throughput"] == 183.80
    assert (reply["exit"], reply["ended"]) == (0, "done")
    argv = found["seen"]["argv"]
    assert not Path(argv[argv.index("--output-file") + 1]).exists()
    assert not Path(argv[argv.index("--dataset-path") + 1]).parent.exists()
    assert found["seen"]["asked"] == [prompt.text for prompt in plan(requests=2).prompts]
    assert found["seen"]["env"]["NO_PROXY"] == "*"


def test_why_it_gave_no_result(tmp_path: Path, probe: Probe) -> None:
    site = package(tmp_path / "site", "sglang.bench_serving", text="import aiohttp_that_is_missing\n")
    why = second.report(ask(site, probe))
    assert isinstance(why, str)
    assert "No module named 'aiohttp_that_is_missing'" in why
    silent = package(tmp_path / "other", "sglang.bench_serving", text="import sys; sys.exit(3)\n")
    assert second.report(ask(silent, probe)) == "exit status 3"
    reply = {"ended": "done", "stderr": "", "exit": 0, "result": "not JSON"}
    assert second.report(reply) == "its result is not JSON"
    assert second.report({**reply, "result": "{}"}) == "its result is empty"


def test_it_is_ended_when_it_is_cancelled(tmp_path: Path, probe: Probe) -> None:
    started = tmp_path / "started"
    text = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    site = package(tmp_path / "site", "sglang.bench_serving", text=text)

    def event(_: dict[str, Any]) -> None:
        if started.exists() and started.read_text():
            probe.cancel.set()

    probe.ctx.event = event  # type: ignore[method-assign]
    reply = ask(site, probe)
    assert reply["ended"] == "cancelled"
    assert second.report(reply) == "it was stopped (cancelled)"
    pid = int(started.read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the client's end")


def test_a_folder_that_is_not_there(tmp_path: Path, probe: Probe) -> None:
    params = {"module": "x", "args": [], "dataset": "[]", "cwd": str(tmp_path / "none")}
    with pytest.raises(OpError, match="cannot be started"):
        bench_client(params, probe.ctx)


def opinion(here: Place, root: Path, monkeypatch: pytest.MonkeyPatch, **env: str) -> Any:
    """What `--client sglang` gives on this node, whose package is in `root`."""
    given = {"PYTHONPATH": str(root), "PRINTED": PRINTED, "RESULT": json.dumps(client_result()), **env}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    picture = replace(here.picture, root=str(root))
    options = Options(plan(client="sglang", requests=8))
    return second.opinion(here.session, picture, here.checks, Silent(), options)


def test_the_newer_module_is_taken_where_there_are_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    root = package(tmp_path / "site", "sglang.bench_serving")
    with place(tmp_path, accept_len=3.4) as here:
        picture = replace(here.picture, root=str(root))
        assert second.installed(here.session, picture) == "sglang.bench_serving"
        package(root, "sglang.benchmark.serving")
        assert second.installed(here.session, picture) == "sglang.benchmark.serving"
        found = opinion(here, root, monkeypatch)
    assert found.summary.server_output_tok_s.median == 183.80
    assert found.load["client"] == "sglang"
    assert [run.completion_tokens for run in found.requests] == [2950] * 8
    # It knows no verifications: what was expected of the accept length cannot be judged.
    assert (found.verdict.word, found.exit_code) == ("inconclusive", ExitCode.UNDETERMINED)
    assert found.kept is not None


def test_where_it_is_not_installed_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place(tmp_path) as here:
        found = opinion(here, tmp_path, monkeypatch)
    assert found.summary is None
    assert found.verdict.word == "inconclusive"
    assert "not installed" in found.verdict.reasons[0]


def test_a_client_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(tmp_path / "site", "sglang.bench_serving", text="import numpy_that_is_missing\n")
    with place(tmp_path) as here:
        found = opinion(here, root, monkeypatch)
    assert found.summary is None
    assert "numpy_that_is_missing" in found.verdict.reasons[0]


def test_its_arguments_are_those_that_every_version_knows(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        words = second.arguments(here.session, plan(requests=5, concurrency=3, max_tokens=99))
    pairs = dict(itertools.pairwise(words))
    assert pairs["--num-prompts"] == "5"
    assert pairs["--max-concurrency"] == "3"
    assert pairs["--sharegpt-output-len"] == "99"
    assert pairs["--backend"] == "sglang"
    assert "--disable-ignore-eos" in words
    for version in ("0.5.5", "0.5.9", "0.5.12"):
        source = wheel_source(version, second.MODULES["sglang.bench_serving"]).decode()
        unknown = [word for word in words if word.startswith("--") and f'"{word}"' not in source]
        assert unknown == [], version


def test_requests_that_failed_in_it() -> None:
    found = client_result(errors=["", "timed out", "", "", "", "", "", ""])
    result = second.assemble(empty(), plan(), "0.5.9", found, PRINTED, quiet())
    assert [failure.error for failure in result.failures] == ["timed out"]
    assert "failed-requests" in {guard.id for guard in result.guards if guard.spoils}
    twice = second.assemble(empty(), plan(requests=48), "0.5.9", client_result(), PRINTED, quiet())
    assert {guard.id: guard.spoils for guard in twice.guards if guard.spoils} == {"repeats": BOTH}
    few = client_result(output_lens=[10, 10], ttfts=[0.1, 0.1], itls=[[], []], errors=["", ""])
    result = second.assemble(empty(), plan(), "0.5.9", few, PRINTED, quiet())
    assert "complete" in {guard.id for guard in result.guards if guard.spoils}
