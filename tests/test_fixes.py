"""The states of a fix on a node, and the draft's config."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote.errors import BundleError
from remote.fixes import evaluate, evaluate_config, load_bundle, targets

from .fixkit import DEEPSEEK, FULL, KIMI, fixed, held, local, released, text
from .wheels import wheel_source

# -- states ------------------------------------------------------------------------------------------


def test_a_version_outside_the_range_is_uncovered() -> None:
    state = evaluate(FULL, "0.5.13", {}, {})
    assert (state.state, state.files) == ("uncovered", ())
    ranges = "<0.5.13,>=0.5.5 (and <0.5.24,>=0.5.14, which needs no edit)"
    assert state.problem == f"eagle3-embedding-capture covers SGLang {ranges}, not 0.5.13"


def test_local_changes_are_kept_and_reported() -> None:
    changed = local(released(FULL, "0.5.9"), DEEPSEEK, "residual = None\n", "residual = None  # looked at\n")
    state = held(FULL, "0.5.9", changed)
    assert (state.state, state.local_changes) == ("pristine", True)
    assert [f.local_changes for f in state.files] == [True, False, False, False]
    after = {f.path: f.new_text for f in state.files}
    assert "residual = None  # looked at\n" in text(after[DEEPSEEK])
    again = held(FULL, "0.5.9", after)
    assert (again.state, again.local_changes) == ("ours", True)


def test_windows_line_ends_of_a_whole_file_are_a_local_change_that_stays() -> None:
    sources = released(FULL, "0.5.9")
    sources[DEEPSEEK] = text(sources[DEEPSEEK]).replace("\n", "\r\n").encode()
    state = held(FULL, "0.5.9", sources)
    assert (state.state, state.local_changes) == ("pristine", True)
    assert state.files[0].new_text == text(fixed(FULL, "0.5.9")[DEEPSEEK]).replace("\n", "\r\n").encode()


def test_without_record_the_edits_decide_and_local_changes_are_unknown() -> None:
    for sources, expected in ((released(FULL, "0.5.9"), "pristine"), (fixed(FULL, "0.5.9"), "ours")):
        state = held(FULL, "0.5.9", sources, recorded=False)
        assert (state.state, state.local_changes) == (expected, None)


def test_an_interrupted_run_is_partial() -> None:
    half = {**released(FULL, "0.5.9"), DEEPSEEK: fixed(FULL, "0.5.9")[DEEPSEEK]}
    state = held(FULL, "0.5.9", half)
    assert (state.state, state.local_changes) == ("partial", False)
    assert [f.state for f in state.files] == ["ours", "pristine", "pristine", "pristine"]
    assert state.files[0].new_text is None


def test_a_file_that_is_not_there_is_foreign() -> None:
    state = held(FULL, "0.5.9", {KIMI: None})
    assert state.state == "foreign"
    assert state.problem == f"{KIMI}: the file is not there"


def test_a_released_file_that_has_the_edits_is_native(tmp_path: Path) -> None:
    """0.5.10 has the methods that the bundle adds to kimi_k25.py of 0.5.9."""
    source = text(wheel_source("0.5.10", KIMI))
    method = source[source.index("    def set_eagle3_layers_to_capture(") :].split(
        "\n\n    def get_embed_and_head"
    )[0]
    rest = source[source.index("    def get_embed_and_head(") :].split("\n\n\nEntryClass")[0]
    code = "\n".join(line[4:] for line in (method + "\n\n" + rest).splitlines())
    folder = tmp_path / "methods"
    folder.mkdir()
    indented = "\n".join("          " + line if line else "" for line in code.splitlines())
    (folder / "bundle.yaml").write_text(
        "name: methods\ntitle: t\nwhy: w\nsglang: '>=0.5.9'\nfiles:\n"
        f"  - path: {KIMI}\n    edits:\n      - id: all\n        where: KimiK25ForConditionalGeneration\n"
        f"        at: end\n        code: |\n{indented}\n"
    )
    bundle = load_bundle(folder)
    state = held(bundle, "0.5.10")
    assert (state.state, state.local_changes) == ("native", False)
    # The same text in a file that was not released so is somebody's edit.
    assert held(bundle, "0.5.10", recorded=False).state == "ours"


def test_a_native_version_needs_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "n"
    folder.mkdir()
    (folder / "bundle.yaml").write_text(
        "name: n\ntitle: t\nwhy: w\nsglang: '==0.5.9'\nnative: '==0.5.23'\n"
        f"files: [{{path: {KIMI}, edits: [{{id: a, at: end, code: x = 1}}]}}]\n"
        "config:\n  - {target: draft, versions: '==0.5.9', set: {ids: [-1, 2, 30]}}\n"
        "  - {target: draft, versions: '==0.5.23', set: {ids: [0, 3, 31]}}\n"
    )
    bundle = load_bundle(folder)
    assert evaluate(bundle, "0.5.23", {}, {}).state == "native"
    assert evaluate_config(bundle, b'{"ids": [0, 3, 31]}', "0.5.23").state == "done"
    assert evaluate_config(bundle, b'{"ids": [0, 3, 31]}', "0.5.9").changes == (
        ("ids", [0, 3, 31], [-1, 2, 30]),
    )


def test_a_value_and_one_within_it_are_refused(tmp_path: Path) -> None:
    """Each undid the other: the config was never done, and every deploy started the server anew."""
    folder = tmp_path / "n"
    folder.mkdir()
    (folder / "bundle.yaml").write_text(
        "name: n\ntitle: t\nwhy: w\nsglang: '==0.5.9'\n"
        "config:\n  - {target: draft, set: {eagle_config: {ids: [1]}, eagle_config.ids: [2]}}\n"
    )
    with pytest.raises(BundleError, match=r"n: eagle_config\.ids is set, and eagle_config as a whole"):
        evaluate_config(load_bundle(folder), CONFIG, "0.5.9")


# -- cases from the field ----------------------------------------------------------------------------


def test_case_074_the_copy_that_is_imported_decides(tmp_path: Path) -> None:
    """Two installs: to have patched the copy that nobody imports changes nothing for the other."""
    for root, files in (("site-packages", fixed(FULL, "0.5.9")), ("workspace", released(FULL, "0.5.9"))):
        for path, content in files.items():
            place = tmp_path / root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content or b"")
    states = {
        root: held(
            FULL, "0.5.9", {p: (tmp_path / root / p).read_bytes() for p in targets(FULL, "0.5.9")}
        ).state
        for root in ("site-packages", "workspace")
    }
    assert states == {"site-packages": "ours", "workspace": "pristine"}


def test_case_076_an_anchor_must_be_there_exactly_once() -> None:
    """A similar block appeared, or the statement went away: refused, nothing to write, both lines named."""
    sources = released(FULL, "0.5.9")
    anchor = "        aux_hidden_states = []\n"
    twice = held(FULL, "0.5.9", local(sources, DEEPSEEK, anchor, anchor * 2))
    assert twice.state == "foreign"
    assert "anchor found 2 times in DeepseekV2Model.forward: lines 2712, 2713" in (twice.problem or "")
    gone = held(FULL, "0.5.9", local(sources, DEEPSEEK, anchor, "        aux_hidden_states = None\n"))
    assert gone.state == "foreign"
    assert "nearest, line 2712: aux_hidden_states = None" in (gone.problem or "")
    assert "+        aux_hidden_states = []" in gone.files[0].diff
    for state in (twice, gone):
        assert state.files[0].new_text is None
        assert [e.state for e in state.files[0].edits].count("misfit") == 1
    renamed = held(FULL, "0.5.9", local(sources, DEEPSEEK, "class DeepseekV2Model(", "class DeepseekModel("))
    assert "there is no DeepseekV2Model" in (renamed.problem or "")


def test_case_077_a_second_definition_of_the_hook_is_refused() -> None:
    again = "    def set_eagle3_layers_to_capture(self, layer_ids=None):\n        pass\n\n\n"
    sources = local(
        released(FULL, "0.5.9"),
        DEEPSEEK,
        "class DeepseekV3ForCausalLM(",
        again + "class DeepseekV3ForCausalLM(",
    )
    state = held(FULL, "0.5.9", sources)
    assert state.state == "foreign"
    assert "set_eagle3_layers_to_capture in DeepseekV2ForCausalLM is defined 2 times" in (state.problem or "")


def test_case_077_native_methods_are_not_defined_again() -> None:
    sources = {**released(FULL, "0.5.9"), KIMI: wheel_source("0.5.10", KIMI)}
    state = held(FULL, "0.5.9", sources, recorded=False)
    assert state.state == "foreign"
    assert "set_eagle3_layers_to_capture is defined there differently, on line 841" in (state.problem or "")


def test_case_079_a_second_run_is_a_no_op(tmp_path: Path) -> None:
    """With a patch too: what `patch --batch` would take out again stays."""
    before, after = released(FULL, "0.5.9")[DEEPSEEK], fixed(FULL, "0.5.9")[DEEPSEEK]
    folder = tmp_path / "by-patch"
    folder.mkdir()
    (folder / "eagle3.patch").write_text(held(FULL, "0.5.9").files[0].diff + "\n")
    (folder / "bundle.yaml").write_text(
        "name: by-patch\ntitle: t\nwhy: w\nsglang: '==0.5.9'\n"
        f"files: [{{path: {DEEPSEEK}, patch: eagle3.patch}}]\n"
    )
    bundle = load_bundle(folder)
    first = held(bundle, "0.5.9")
    assert (first.state, first.files[0].new_text) == ("pristine", after)
    second = held(bundle, "0.5.9", {DEEPSEEK: after})
    assert (second.state, second.local_changes, second.files[0].new_text) == ("ours", False, None)
    other = held(
        bundle, "0.5.9", {DEEPSEEK: text(before).replace("aux_hidden_states = []", "aux = []").encode()}
    )
    assert other.state == "foreign"
    assert "edit eagle3.patch#3: neither" in (other.problem or "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # The hook sets an attribute that nobody reads.
        (
            "            self.model.layers_to_capture = [2, num",
            "            self.model.set_eagle3_layers_to_capture = [2, num",
            "nearest, line 2976: self.model.set_eagle3_layers_to_capture = [2, num",
        ),
        (
            "self.model.layers_to_capture = [val + 1 for val in layer_ids if",
            "self.model.layers = [val + 1 for val in layer_ids if",
            "edit parse-ids",
        ),
        # What the edit sets is set again behind it.
        (
            "        draft_input = [",
            "        self.model.layers_to_capture = [val + 1 for val in layer_ids]\n        draft_input = [",
            "the new code, line 2982 and what it replaces, line 2984: both are there",
        ),
        (
            "        self.capture_embedding_for_eagle3 = False\n",
            "        self.capture_embedding_for_eagle3 = False\n"
            "        self.capture_embedding_for_eagle3 = True\n",
            "again, which undoes",
        ),
        (
            "        if self.capture_embedding_for_eagle3:",
            "        if self.capture_embeding_for_eagle3:",
            "edit capture: line 2715 is nearly the new code: if self.capture_embeding_for_eagle3:",
        ),
        (
            "            self.model.capture_embedding_for_eagle3 = -1 in",
            "            self.capture_embedding_for_eagle3 = -1 in",
            "edit parse-ids",
        ),
    ],
)
def test_case_081_the_code_is_there_and_does_not_take_effect(old: str, new: str, message: str) -> None:
    state = held(FULL, "0.5.9", local(fixed(FULL, "0.5.9"), DEEPSEEK, old, new))
    assert state.state == "foreign"
    assert message in (state.problem or "")


# -- the draft's config ------------------------------------------------------------------------------

CONFIG = b"""{
  "eagle_config": {
    "eagle_aux_hidden_state_layer_ids": [
      2,
      30,
      58
    ]
  }
}
"""


def test_the_config_is_changed_once_and_only_there() -> None:
    first = evaluate_config(FULL, CONFIG, "0.5.9")
    assert first.state == "todo"
    assert first.changes == (("eagle_config.eagle_aux_hidden_state_layer_ids", [2, 30, 58], [-1, 2, 30]),)
    assert first.new_text == CONFIG.replace(
        b"      2,\n      30,\n      58\n", b"      -1,\n      2,\n      30\n"
    )
    assert "+      -1," in first.diff
    second = evaluate_config(FULL, first.new_text, "0.5.9")
    assert (second.state, second.changes, second.new_text, second.diff) == ("done", (), None, "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (CONFIG + b"}", "line 10: text after the end"),
        (b"", "line 1: a value is missing"),
        (b"\xff{}", "not UTF-8"),
        (b"\xef\xbb\xbf" + CONFIG, "line 1: it begins with a byte order mark"),
        (b'{"eagle_config": null}', "eagle_config is no object"),
        (b'{"a": 1, "a": 2}', 'the key "a" is there twice'),
    ],
)
def test_a_config_that_cannot_be_edited_safely_is_refused(content: bytes, problem: str) -> None:
    state = evaluate_config(FULL, content, "0.5.9")
    assert (state.state, state.new_text) == ("misfit", None)
    assert problem in (state.problem or "")
