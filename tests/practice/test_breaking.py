"""Every fault of the table, brought about on a node where the fix is deployed, and healed."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remote import bundles, fixes
from remote.errors import RefusedError, UsageError
from remote.practice import processes, wheels
from remote.practice.breaking import break_node, in_force
from remote.practice.build import DEEPSEEK, FIXED, bytecode_path
from remote.practice.faults import DRAFT, FAULTS, GPUS, PROCESSES, SOURCE
from remote.practice.healing import heal
from remote.practice.layout import Layout
from remote.practice.process_steps import ranks
from remote.practice.up import Up

CHECKS = {
    *("source.file", "source.state", "source.compiles", "source.behaviour", "bytecode.fresh"),
    *("config.values", "config.draft", "wiring.eager", "wiring.graph", "wiring.overlap"),
    *("process.single", "process.owner", "process.ranks", "process.after_fix", "gpu.holders"),
    *("args.effective", "log.boot", "log.capture", "log.errors", "health.http", "health.generate"),
}


@pytest.fixture(scope="module", autouse=True)
def _deployed(node: Up) -> None:
    """The fix in the node's files, and a server that was started after it."""
    bundle = bundles.find_bundle("eagle3-embedding-capture")
    root, whl = node.layout.site_packages, wheels.fetch(node.record.version)
    names = fixes.targets(bundle, node.record.version)
    record = wheels.record(whl)
    state = fixes.evaluate(
        bundle,
        node.record.version,
        {name: root.joinpath(name).read_bytes() for name in names},
        {name: record.get(name) for name in names},
    )
    for file in state.files:
        assert file.new_text is not None
        root.joinpath(file.path).write_bytes(file.new_text)
    config = node.layout.draft / "config.json"
    changed = fixes.evaluate_config(bundle, config.read_bytes(), node.record.version)
    assert changed.new_text is not None
    config.write_bytes(changed.new_text)
    break_node(node.layout, "server-killed")
    heal(node.layout)


def hashes(layout: Layout) -> dict[str, str | None]:
    """Content of everything that a fault could change in the node's files."""
    sources = [layout.site_packages / name for name in FIXED]
    watched = [*sources, *map(bytecode_path, sources), *layout.draft.glob("*.json"), layout.nvidia_smi]
    found = {}
    for path in watched:
        # The head of a pyc holds the source's time, which a restarted server brings up to date.
        skipped = 16 if path.suffix == ".pyc" else 0
        found[str(path)] = hashlib.sha256(path.read_bytes()[skipped:]).hexdigest() if path.exists() else None
    return found


def gpus(layout: Layout) -> object:
    query = ("--query-gpu=index,memory.used,memory.total,utilization.gpu", "--format=csv")
    apps = ("--query-compute-apps=gpu_uuid,process_name,used_memory", "--format=csv")
    try:
        done = [
            subprocess.run([layout.nvidia_smi, *words], capture_output=True, timeout=2, check=False)
            for words in (query, apps)
        ]
    except subprocess.TimeoutExpired:
        return "hangs"
    except FileNotFoundError:
        return "missing"
    return [(each.returncode, each.stdout) for each in done]


def server(node: Up) -> dict[str, Any]:
    """What can be seen of the server from outside."""
    pid = processes.listener(node.record.server_port)
    if pid is None:
        return {"up": False}
    environ = Path(f"/proc/{pid}/environ").read_text()
    states = [Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[0] for rank in ranks(pid)]
    return {
        "up": True,
        "ranks": len(states),
        "stopped": "T" in states,
        "faults": "FIXOPS_SIMULATOR_FAULTS" in environ,
        "log": Path(f"/proc/{pid}/fd/1").readlink().name,
        "argv": processes.title(pid),
    }


def seen(node: Up) -> tuple[object, ...]:
    return hashes(node.layout), gpus(node.layout), server(node)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_and_heals_without_a_trace(node: Up, name: str) -> None:
    before = seen(node)
    break_node(node.layout, name)
    assert in_force(node.layout) == [name]
    assert seen(node) != before
    (healed,) = heal(node.layout)
    assert healed.kept == ()
    assert in_force(node.layout) == []
    assert seen(node) == before


def test_every_fault_names_checks_that_exist() -> None:
    assert len(FAULTS) == sum(map(len, (SOURCE, DRAFT, PROCESSES, GPUS)))
    for fault in FAULTS.values():
        assert fault.found_by
        assert set(fault.found_by) <= CHECKS
        assert fault.title
        assert fault.does


def believed(layout: Layout, name: str) -> str:
    """What the node's interpreter runs when it imports the file: the names that the module's code stores."""
    code = (
        "import importlib.machinery as m;"
        f"print(sorted(m.SourceFileLoader('x', {str(layout.site_packages / name)!r}).get_code('x').co_names))"
    )
    run = subprocess.run(
        [layout.python, "-B", "-c", code], capture_output=True, text=True, check=True, env={}
    )
    return run.stdout


@pytest.mark.parametrize("name", ["stale-pyc", "unchecked-pyc"])
def test_the_interpreter_believes_stale_bytecode(node: Up, name: str) -> None:
    source = node.layout.site_packages / DEEPSEEK
    content = source.read_bytes()
    source.write_bytes(content + b"\n_only_in_the_source = 1\n")
    try:
        assert "_only_in_the_source" in believed(node.layout, DEEPSEEK)
        break_node(node.layout, name)
        assert "_only_in_the_source" not in believed(node.layout, DEEPSEEK)
        heal(node.layout)
        assert "_only_in_the_source" in believed(node.layout, DEEPSEEK)
    finally:
        source.write_bytes(content)


def test_an_undone_edit_leaves_the_other_edits(node: Up) -> None:
    source = node.layout.site_packages / DEEPSEEK
    fixed = source.read_text()
    pristine = wheels.read(wheels.fetch(node.record.version), DEEPSEEK).decode()
    break_node(node.layout, "edit-undone")
    broken = source.read_text()
    heal(node.layout)
    assert pristine.count("capture_embedding_for_eagle3") < broken.count("capture_embedding_for_eagle3")
    assert broken.count("capture_embedding_for_eagle3") < fixed.count("capture_embedding_for_eagle3")
    compile(broken, "broken", "exec")


def test_a_fault_cannot_be_brought_about_twice(node: Up) -> None:
    break_node(node.layout, "gpu-leak")
    with pytest.raises(RefusedError, match="already"):
        break_node(node.layout, "gpu-leak")
    heal(node.layout)


def test_faults_add_up_and_heal_one_by_one(node: Up) -> None:
    before = seen(node)
    for name in ("gpu-leak", "rank-dead", "gpu-no-permission", "config-string", "server-killed"):
        break_node(node.layout, name)
    with pytest.raises(UsageError):
        heal(node.layout, "gpu-hang")
    assert [each.fault for each in heal(node.layout, "gpu-leak")] == ["gpu-leak"]
    assert [each.fault for each in heal(node.layout)] == [
        "server-killed",
        "config-string",
        "gpu-no-permission",
        "rank-dead",
    ]
    assert seen(node) == before


def test_what_somebody_repaired_is_left_as_it_is(node: Up) -> None:
    config = node.layout.draft / "config.json"
    original = config.read_bytes()
    break_node(node.layout, "config-reverted")
    repaired = json.loads(original)
    config.write_text(json.dumps(repaired))
    (healed,) = heal(node.layout)
    assert healed.kept == (str(config),)
    assert json.loads(config.read_text()) == repaired
    config.write_bytes(original)


def test_a_fault_without_a_place_leaves_nothing_behind(node: Up) -> None:
    break_node(node.layout, "fix-undone")
    before = seen(node)
    for name in ("edit-undone", "graph-edit-undone", "old-server"):
        with pytest.raises(RefusedError, match="not on the node"):
            break_node(node.layout, name)
    assert in_force(node.layout) == ["fix-undone"]
    assert seen(node) == before
    heal(node.layout)
