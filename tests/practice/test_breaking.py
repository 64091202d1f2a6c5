"""Breaking and healing itself. Each fault on a deployed node: tests/end_to_end/test_fault_matrix_*.py."""

from __future__ import annotations

import json
import subprocess

import pytest

from remote import bundles, fixes
from remote.errors import RefusedError, UsageError
from remote.practice import processes, wheels
from remote.practice.breaking import break_node, in_force
from remote.practice.build import DEEPSEEK
from remote.practice.fault import CONNECT
from remote.practice.faults import ACCESS, DRAFT, FAULTS, GPUS, LOGS, PROCESSES, SOURCE
from remote.practice.healing import heal
from remote.practice.layout import Layout
from remote.practice.up import DEFAULT_VERSION, Up
from remote.proofs import PROOFS
from tests.end_to_end import matrix

CHECKS = {CONNECT, *PROOFS}


def put_fix(layout: Layout) -> None:
    """The fix in the node's files, as a deploy leaves them."""
    bundle = bundles.find_bundle("eagle3-embedding-capture")
    root, whl = layout.site_packages, wheels.fetch(DEFAULT_VERSION)
    names = fixes.targets(bundle, DEFAULT_VERSION)
    record = wheels.record(whl)
    state = fixes.evaluate(
        bundle,
        DEFAULT_VERSION,
        {name: root.joinpath(name).read_bytes() for name in names},
        {name: record.get(name) for name in names},
    )
    for file in state.files:
        assert file.new_text is not None
        root.joinpath(file.path).write_bytes(file.new_text)
    config = layout.draft / "config.json"
    changed = fixes.evaluate_config(bundle, config.read_bytes(), DEFAULT_VERSION)
    assert changed.new_text is not None
    config.write_bytes(changed.new_text)


@pytest.fixture(scope="module")
def still(quiet: Layout) -> Layout:
    """A node's files with the fix; no process of it lives."""
    put_fix(quiet)
    return quiet


@pytest.fixture(scope="module")
def serving(node: Up) -> Up:
    """A node with the fix, and a server that was started after it."""
    put_fix(node.layout)
    orphans = [processes.known(pid) for pid in node.orphans]
    assert processes.end([each for each in orphans if each]) == []
    break_node(node.layout, "server-killed")
    heal(node.layout)
    return node


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


def seen(node: Up) -> tuple[object, ...]:
    return matrix.files(node.layout), gpus(node.layout), matrix.server(node.record.server_port)


def test_every_fault_names_checks_that_exist() -> None:
    assert len(FAULTS) == sum(map(len, (SOURCE, DRAFT, PROCESSES, LOGS, GPUS, ACCESS)))
    for fault in FAULTS.values():
        assert fault.found_by
        assert set(fault.verdicts) <= CHECKS
        assert set(fault.undetermined) <= set(fault.found_by)
        assert not set(fault.found_by) & {each.check for each in fault.also}
        assert all(each.why for each in fault.also)
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
def test_the_interpreter_believes_stale_bytecode(still: Layout, name: str) -> None:
    source = still.site_packages / DEEPSEEK
    content = source.read_bytes()
    source.write_bytes(content + b"\n_only_in_the_source = 1\n")
    try:
        assert "_only_in_the_source" in believed(still, DEEPSEEK)
        break_node(still, name)
        assert "_only_in_the_source" not in believed(still, DEEPSEEK)
        heal(still)
        assert "_only_in_the_source" in believed(still, DEEPSEEK)
    finally:
        source.write_bytes(content)


def test_an_undone_edit_leaves_the_other_edits(still: Layout) -> None:
    source = still.site_packages / DEEPSEEK
    fixed = source.read_text()
    pristine = wheels.read(wheels.fetch(DEFAULT_VERSION), DEEPSEEK).decode()
    break_node(still, "edit-undone")
    broken = source.read_text()
    heal(still)
    assert pristine.count("capture_embedding_for_eagle3") < broken.count("capture_embedding_for_eagle3")
    assert broken.count("capture_embedding_for_eagle3") < fixed.count("capture_embedding_for_eagle3")
    compile(broken, "broken", "exec")


def test_a_fault_cannot_be_brought_about_twice(still: Layout) -> None:
    break_node(still, "gpu-leak")
    with pytest.raises(RefusedError, match="already"):
        break_node(still, "gpu-leak")
    heal(still)


def test_faults_add_up_and_heal_in_any_order(serving: Up) -> None:
    layout, before = serving.layout, seen(serving)
    for name in ("gpu-leak", "rank-dead", "gpu-no-permission", "config-string", "server-killed"):
        break_node(layout, name)
    with pytest.raises(UsageError):
        heal(layout, "gpu-hang")
    for name in ("gpu-leak", "rank-dead"):
        assert [each.fault for each in heal(layout, name)] == [name]
    assert [each.fault for each in heal(layout)] == ["server-killed", "config-string", "gpu-no-permission"]
    assert seen(serving) == before


def test_what_somebody_repaired_is_left_as_it_is(still: Layout) -> None:
    config = still.draft / "config.json"
    original = config.read_bytes()
    break_node(still, "config-reverted")
    repaired = json.loads(original)
    config.write_text(json.dumps(repaired))
    (healed,) = heal(still)
    assert healed.kept == (str(config),)
    assert json.loads(config.read_text()) == repaired
    config.write_bytes(original)


def test_a_fault_without_a_place_leaves_nothing_behind(serving: Up) -> None:
    break_node(serving.layout, "fix-undone")
    before = seen(serving)
    for name in ("edit-undone", "graph-edit-undone", "old-server"):
        with pytest.raises(RefusedError, match="not on the node"):
            break_node(serving.layout, name)
    assert in_force(serving.layout) == ["fix-undone"]
    assert seen(serving) == before
    heal(serving.layout)
