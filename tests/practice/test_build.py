"""The node's files, built from the real wheels of two versions."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from remote.practice import build, wheels
from remote.practice.layout import Layout


@pytest.fixture(scope="module", params=["0.5.9", "0.5.10"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Layout]:
    version: str = request.param
    layout = Layout(tmp_path_factory.mktemp("built").resolve())
    build.build(layout, wheels.fetch(version), gpus=2)
    return version, layout


def run(layout: Layout, code: str) -> str:
    """What the node's interpreter prints, in an environment that says nothing about bytecode."""
    done = subprocess.run(
        [layout.python, "-c", code], capture_output=True, text=True, check=True, env={}, cwd="/"
    )
    return done.stdout.strip()


def test_every_installed_file_is_what_record_says(built: tuple[str, Layout]) -> None:
    _, layout = built
    record = next(layout.site_packages.glob("sglang-*.dist-info")) / "RECORD"
    rows = list(csv.reader(record.read_text().splitlines()))
    assert len(rows) > 1000
    for name, digest, _ in rows:
        content = layout.site_packages.joinpath(name).read_bytes()
        if digest:
            assert (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=") == digest[7:]
            )


def test_the_nodes_interpreter_finds_sglang_and_setproctitle(built: tuple[str, Layout]) -> None:
    version, layout = built
    code = (
        "import importlib.util, importlib.metadata, setproctitle, sys;"
        "print(importlib.util.find_spec('sglang').origin, importlib.metadata.version('sglang'), sys.prefix)"
    )
    expected = [layout.site_packages / "sglang" / "__init__.py", version, layout.environment]
    assert run(layout, code) == " ".join(map(str, expected))


def test_bytecode_of_the_wheels_modules_is_there_and_believed(built: tuple[str, Layout]) -> None:
    _, layout = built
    source = layout.site_packages / build.DEEPSEEK
    code = (
        "import importlib.machinery as m, sys;"
        f"loader = m.SourceFileLoader('x', {str(source)!r});"
        "loader.set_data = lambda *a, **k: print('not believed');"
        "loader.get_code('x'); print('done')"
    )
    assert build.bytecode_path(source).exists()
    assert run(layout, code) == "done"


def test_the_target_is_one_that_this_version_can_draft_for(built: tuple[str, Layout]) -> None:
    version, layout = built
    config = json.loads(layout.target.joinpath("config.json").read_text())
    wrapped = config["architectures"] == ["KimiK25ForConditionalGeneration"]
    assert wrapped is (version == "0.5.10")
    assert (config["text_config"] if wrapped else config)["num_hidden_layers"] == 61
    assert list(layout.target.glob("*.safetensors"))


def test_the_draft_has_the_incidents_config_and_weights_with_true_shapes(built: tuple[str, Layout]) -> None:
    _, layout = built
    config = json.loads(layout.draft.joinpath("config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 30, 58]
    weights = layout.draft / "model.safetensors"
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    assert header["fc.weight"]["shape"] == [config["hidden_size"], 3 * config["target_hidden_size"]]
    assert header["lm_head.weight"]["shape"][0] == config["draft_vocab_size"]
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    assert weights.stat().st_size == 8 + length + max(ends)
    assert weights.stat().st_blocks * 512 < 1 << 20


def test_the_node_has_its_own_nvidia_smi_and_simulator(built: tuple[str, Layout]) -> None:
    _, layout = built
    done = subprocess.run([layout.nvidia_smi, "-L"], capture_output=True, text=True, check=True, env={})
    assert done.stdout.count("GPU ") == 2
    assert layout.launcher.exists()
    assert not list(layout.simulator.rglob("__pycache__"))


def test_a_wheel_without_the_model_cannot_be_practised_on(tmp_path: Path) -> None:
    from remote.errors import RefusedError
    from tests.practice.test_wheels import make_wheel

    layout = Layout(tmp_path.resolve() / "node")
    layout.root.mkdir()
    with pytest.raises(RefusedError, match=r"deepseek_v2\.py"):
        build.build(layout, make_wheel(tmp_path, "0.1.0"), gpus=1)
