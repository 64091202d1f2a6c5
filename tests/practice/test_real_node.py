"""A real practice node as it is asked for, written down and refused. That it works is shown in tests/real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from remote import bundles, inventory
from remote.errors import RefusedError, UsageError
from remote.intent import expected_ranks, our_gpus, uses_no_gpu, wanted_args
from remote.practice import breaking, record, report, wheels
from remote.practice.layout import Layout
from remote.practice.real import entry, environment
from remote.practice.real.environment import VERSIONS, EnvironmentUnavailable
from remote.practice.real.interpreter import Interpreter, NoInterpreter
from remote.practice.record import Record
from remote.practice.ssh_server import SshServer
from remote.practice.up import plan, up
from remote.sglang import speculation


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path.resolve() / "node")


def written(layout: Layout, version: str, *, real: bool = True) -> Record:
    """The record of a node that was up, whose SSH server is gone."""
    folder = layout.root / "ssh"
    folder.mkdir(parents=True)
    ssh = SshServer(
        kind="openssh",
        host="127.0.0.1",
        port=2222,
        user="ops",
        pid=os.getpid(),
        starttime_ticks=0,
        identity_file=folder / "user_key",
        known_hosts=folder / "known_hosts",
        log=folder / "sshd.log",
    )
    made = Record(version, 0 if real else 2, 30000, ssh, {}, real=real)
    record.write(layout, made)
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_the_node_is_an_ordinary_one_of_an_inventory(layout: Layout, version: str) -> None:
    made = written(layout, version)
    assert record.read(layout) == made
    (node,) = inventory.load(str(layout.inventory)).select(None)
    assert node.server.command is None
    assert inventory.command(node)[:3] == [str(layout.python), "-m", "sglang.launch_server"]
    assert uses_no_gpu(node)
    assert our_gpus(node) == frozenset()
    assert expected_ranks(node.server) == 1
    # SGLang keeps these arguments as they are.
    assert speculation.normalise(version, wanted_args(node.server), env=node.server.env) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_its_bundle_covers_the_version_with_its_models_layers(layout: Layout, version: str) -> None:
    written(layout, version)
    (server,) = yaml.safe_load(layout.inventory.read_text())["servers"].values()
    bundle = bundles.find_bundle(server["fix"])
    assert server["fix"] == entry.FIX
    assert bundle.is_covered(version)
    assert bundle.contract is not None
    assert (bundle.contract.draft_input, bundle.contract.layers) == (["embed", "in:2", "in:4"], 6)
    ids = [each.set["eagle_config.eagle_aux_hidden_state_layer_ids"] for each in bundle.config(version)]
    assert ids == [[0, 2, 4] if bundle.is_native(version) else [-1, 1, 3]]


def test_wishes_that_cannot_be_are_told_before_anything_is_fetched(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(_: str) -> Path:
        raise AssertionError("nothing may be fetched")

    monkeypatch.setattr(wheels, "fetch", fetched)
    monkeypatch.setattr(environment, "build", fetched)
    with pytest.raises(UsageError, match="no GPUs"):
        up(layout, real=True, gpus=2)
    with pytest.raises(UsageError, match=r"0\.5\.12"):
        up(layout, real=True, version="0.5.12")
    assert not layout.root.exists()


def test_a_dry_run_for_a_real_node_installs_nothing(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(layout.root))
    monkeypatch.setattr(environment, "find", lambda: Interpreter(Path("python3.11"), ()))
    told, lines = report.up(None, None, None, print, real=True, dry_run=True)
    assert (told["would_make"], told["real"], told["gpus"]) == (True, True, 0)
    assert environment.needs("0.5.9") in "\n".join(lines)
    monkeypatch.setattr(environment, "SPARE_MIB", 10**9)
    with pytest.raises(EnvironmentUnavailable, match="MB are free"):
        plan(layout, real=True)
    assert list(tmp_path.iterdir()) == []


def test_a_real_node_without_an_interpreter_is_refused_by_a_dry_run_too(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXOPS_PYTHON311", "/does/not/exist")
    with pytest.raises(NoInterpreter):
        plan(layout, real=True)


def test_a_simulated_node_does_not_become_a_real_one(layout: Layout) -> None:
    written(layout, "0.5.9", real=False)
    with pytest.raises(RefusedError, match="a simulated one") as error:
        up(layout, real=True)
    assert "practice.down" in error.value.hint


def test_faults_are_for_the_simulated_node(layout: Layout) -> None:
    written(layout, "0.5.9")
    for command in (breaking.break_node, breaking.may_break):
        with pytest.raises(RefusedError, match="this one is real"):
            command(layout, "syntax-error")
    assert not layout.faults.exists()
