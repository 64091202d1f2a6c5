"""The shipped bundles on every release that they cover: they fit, and the edited code does what it should."""

from __future__ import annotations

import ast
import re

import pytest

from remote.fixes import config_values, targets

from .fixkit import (
    BUNDLES,
    DEEPSEEK,
    FULL,
    GRAPHS,
    KIMI,
    PAIRS,
    RUNNER,
    THREE,
    VERSIONS,
    fixed,
    held,
    on_released,
    text,
)
from .wheels import wheel_source

# -- every bundle on every version -------------------------------------------------------------------


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_a_bundle_fits_the_released_files(name: str, version: str) -> None:
    bundle = BUNDLES[name]
    state = on_released(name, version)
    assert (state.state, state.problem, state.local_changes) == ("pristine", None, False)
    assert {e.state for f in state.files for e in f.edits} <= {"todo"}
    for file in state.files:
        assert file.new_text is not None
        ast.parse(file.new_text)
        assert file.diff.count("\n@@ ") >= 1
        assert all(
            sum(name in line for line in text(wheel_source(version, file.path)).splitlines()) == 0
            for entry in bundle.entries(version)
            if entry.path == file.path
            for name in entry.introduces
        )


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_a_second_run_changes_nothing(name: str, version: str) -> None:
    bundle = BUNDLES[name]
    state = held(bundle, version, fixed(bundle, version))
    assert (state.state, state.local_changes) == ("ours", False)
    assert [(f.state, f.new_text, f.diff) for f in state.files] == [("ours", None, "")] * len(state.files)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_incidents_fix_is_partial_and_is_completed(version: str) -> None:
    three = fixed(THREE, version)
    assert set(three) == {DEEPSEEK}
    state = held(FULL, version, three)
    assert (state.state, state.local_changes) == ("partial", False)
    edits = {e.id: e.state for e in state.files[0].edits}
    assert [edits[e.id] for e in THREE.entries(version)[0].edits] == ["done"] * 3
    assert state.files[0].new_text == fixed(FULL, version)[DEEPSEEK]


def test_the_three_edits_are_the_same_in_both_bundles() -> None:
    full = {e.id: e.as_edit() for e in FULL.entries("0.5.9")[0].edits}
    for entry in THREE.entries("0.5.9")[0].edits:
        ours, theirs = full[entry.id], entry.as_edit()
        assert (ours.scope, ours.kind) == (theirs.scope, theirs.kind)
        for a, b in ((ours.anchor, theirs.anchor), (ours.new, theirs.new)):
            assert ast.dump(ast.parse(a)) == ast.dump(ast.parse(b))
    assert config_values(FULL, "0.5.9") == config_values(THREE, "0.5.9")
    assert "replay the incident" in THREE.title
    assert "without effect on decode" in THREE.title


def test_which_files_are_edited_in_which_version() -> None:
    assert targets(FULL, "0.5.5.post3") == (DEEPSEEK, GRAPHS, RUNNER)
    assert targets(FULL, "0.5.8") == (DEEPSEEK, GRAPHS, RUNNER)
    assert targets(FULL, "0.5.9") == (DEEPSEEK, GRAPHS, RUNNER, KIMI)
    assert targets(FULL, "0.5.10.post1") == (DEEPSEEK, GRAPHS, RUNNER)
    assert targets(FULL, "0.5.11") == targets(FULL, "0.5.12.post1") == (DEEPSEEK,)
    assert targets(FULL, "0.5.13") == targets(FULL, "0.5.4") == ()


# -- what the edited code does -----------------------------------------------------------------------


BEFORE_0_5_8 = [v for v in VERSIONS if v.startswith(("0.5.5", "0.5.6", "0.5.7"))]


class Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, line: str) -> None:
        self.lines.append(line)


class Bag:
    """An object with the attributes given."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


def method_of(source: bytes | None, cls: str, name: str) -> ast.FunctionDef:
    tree = ast.parse(source or b"")
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls).body
    return next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == name)


def run(statements: list[ast.stmt], names: dict[str, object]) -> dict[str, object]:
    exec(compile(ast.Module(body=statements, type_ignores=[]), "edited", "exec"), names)
    return names


@pytest.mark.parametrize("version", VERSIONS)
def test_the_edited_hook_sets_what_it_logs(version: str) -> None:
    log = Logger()
    hook = method_of(fixed(FULL, version)[DEEPSEEK], "DeepseekV2ForCausalLM", "set_eagle3_layers_to_capture")
    hook.args.args[1].annotation = None
    names = run([hook], {"logger": log})
    model = Bag(layers_to_capture=[], capture_embedding_for_eagle3=False)
    target = Bag(pp_group=Bag(is_last_rank=True), config=Bag(num_hidden_layers=61), model=model)
    expected = [
        ([-1, 2, 30], True, [3, 31], "embed, in:3, in:31"),
        (None, False, [2, 30, 58], "in:2, in:30, in:58"),
        ([1, 29, 57], False, [2, 30, 58], "in:2, in:30, in:58"),
        ([30, -1, 2], True, [31, 3], "embed, in:3, in:31"),
    ]
    for ids, flag, layers, draft_input in expected:
        names["set_eagle3_layers_to_capture"](target, ids)  # type: ignore[operator]
        assert vars(model) == {"layers_to_capture": layers, "capture_embedding_for_eagle3": flag}
        match = re.search(FULL.marker or "", log.lines[-1])
        assert match is not None
        assert match.groupdict() == {"draft_input": draft_input, "ids": str(ids)}
    assert len(log.lines) == len(expected)


@pytest.mark.parametrize("version", [v for v in VERSIONS if GRAPHS in targets(FULL, v)])
def test_graphs_and_dummy_run_use_the_configured_ids(version: str) -> None:
    sources = fixed(FULL, version)
    places = [method_of(sources[GRAPHS], "CudaGraphRunner", "__init__")]
    if not version.startswith("0.5.5"):
        places.append(method_of(sources[RUNNER], "ModelRunner", "_dummy_run"))
    for ids in ([-1, 2, 30], None):
        for function in places:
            (guard,) = [
                n
                for n in ast.walk(function)
                if isinstance(n, ast.If) and "set_eagle3_layers_to_capture" in ast.unparse(n) and not n.orelse
            ]
            got: list[object] = []
            runner = Bag(
                spec_algorithm=Bag(is_eagle3=lambda: True),
                model=Bag(set_eagle3_layers_to_capture=got.append),
                eagle_aux_hidden_state_layer_ids=ids,
                eagle_use_aux_hidden_state=True,
            )
            is_graphs = function.name == "__init__"
            run([guard], {"model_runner": runner, "self": Bag(model_runner=runner) if is_graphs else runner})
            assert got == [ids]


@pytest.mark.parametrize("version", BEFORE_0_5_8)
@pytest.mark.parametrize(
    ("config", "draft_worker", "expected"),
    [
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 2, 30]}}, False, [-1, 2, 30]),
        ({"eagle_config": {}}, False, None),
        ({"eagle_config": None}, False, None),
        ({}, False, None),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 2, 30]}}, True, None),
    ],
)
def test_before_0_5_8_the_ids_are_known_before_graphs_are_captured(
    version: str, config: dict[str, object], draft_worker: bool, expected: object
) -> None:
    body = method_of(fixed(FULL, version)[RUNNER], "ModelRunner", "initialize").body
    texts = [ast.unparse(statement) for statement in body]
    first = texts.index("self.eagle_aux_hidden_state_layer_ids = None")
    assert texts[first - 1] == "self.load_model()"
    assert first < next(n for n, t in enumerate(texts) if "init_device_graphs" in t)
    asked: list[dict[str, object]] = []

    def from_server_args(_args: object, **options: object) -> Bag:
        asked.append(options)
        return Bag(hf_config=Bag(**config))

    runner = Bag(spec_algorithm=Bag(is_eagle3=lambda: True), is_draft_worker=draft_worker)
    args = Bag(speculative_draft_model_path="draft", speculative_draft_model_revision="main")
    run(
        body[first : first + 2],
        {"self": runner, "server_args": args, "ModelConfig": Bag(from_server_args=from_server_args)},
    )
    assert vars(runner)["eagle_aux_hidden_state_layer_ids"] == expected
    # Read in the way in which this version itself reads it later.
    late = next(t for t in texts[first + 2 :] if "eagle_aux_hidden_state_layer_ids" in t)
    for options in asked:
        assert options.pop("is_draft_model") is True
        assert options.pop("model_path") == "draft"
        assert list(options) == (["model_revision"] if "model_revision" in late else [])


@pytest.mark.parametrize(
    "version", [v for v in VERSIONS if GRAPHS in targets(FULL, v) and v not in BEFORE_0_5_8]
)
def test_from_0_5_8_on_the_ids_are_read_before_initialize(version: str) -> None:
    body = method_of(wheel_source(version, RUNNER), "ModelRunner", "__init__").body
    texts = [ast.unparse(statement) for statement in body]
    read = next(n for n, t in enumerate(texts) if "self.eagle_aux_hidden_state_layer_ids" in t)
    assert read < next(n for n, t in enumerate(texts) if t.startswith("self.initialize("))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_call_without_ids_is_left(version: str) -> None:
    for path in (GRAPHS, RUNNER):
        content = fixed(FULL, version).get(path) or wheel_source(version, path)
        assert re.search(rb"set_eagle3_layers_to_capture\(\s*\)", content) is None
    if GRAPHS in targets(FULL, version):
        assert re.search(rb"set_eagle3_layers_to_capture\(\s*\)", wheel_source(version, GRAPHS)) is not None


def test_the_kimi_wrapper_of_0_5_9_hands_on_to_its_language_model() -> None:
    source = fixed(FULL, "0.5.9")[KIMI]
    calls: list[object] = []
    inner = Bag(
        set_eagle3_layers_to_capture=calls.append,
        get_embed_and_head=lambda: ("embed", "head"),
        set_embed_and_head=lambda *pair: calls.append(pair),
    )
    wrapper = Bag(language_model=inner)
    for name, given, result in (
        ("set_eagle3_layers_to_capture", ([-1, 2, 30],), None),
        ("get_embed_and_head", (), ("embed", "head")),
        ("set_embed_and_head", ("e", "h"), None),
    ):
        function = method_of(source, "KimiK25ForConditionalGeneration", name)
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
        assert run([function], {})[name](wrapper, *given) == result  # type: ignore[operator]
    assert calls == [[-1, 2, 30], ("e", "h")]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_key_is_the_one_that_this_version_reads(version: str) -> None:
    source = ast.parse(wheel_source(version, RUNNER))
    read = {
        n.slice.value
        for n in ast.walk(source)
        if isinstance(n, ast.Subscript)
        and ast.unparse(n.value) == "eagle_config"
        and isinstance(n.slice, ast.Constant)
    }
    assert [f"eagle_config.{key!s}" for key in read] == list(config_values(FULL, version))
