"""The examples of docs/fixes.md do what it says."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from remote import bundles
from remote.fixes import evaluate, evaluate_config, load_bundle, targets

GUIDE = (Path(__file__).parent.parent / "docs" / "fixes.md").read_text(encoding="utf-8")
PARTS = re.findall(r"<!-- example: ([a-z]+) ([a-z-]+) -->\n```[a-z]*\n(.*?)```\n", GUIDE, re.S)
USES = dict(re.findall(r"<!-- example: ([a-z]+) uses ([a-z]+) -->", GUIDE))
EXAMPLES = sorted({name for name, _, _ in PARTS})


def test_every_piece_of_code_in_the_guide_belongs_to_an_example() -> None:
    fences = len(re.findall(r"^```[a-z]*\n", GUIDE, re.M)) // 2
    assert fences - len(PARTS) in (1,)  # the directory's tree


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_guides_examples_do_what_it_says(name: str, tmp_path: Path) -> None:
    parts = {part: code for example, part, code in PARTS if example == name}
    owner = USES.get(name, name)
    folder = tmp_path / owner
    folder.mkdir()
    for example, part, code in PARTS:
        if example == owner and part in ("bundle", "patch"):
            (folder / ("bundle.yaml" if part == "bundle" else "toy.patch")).write_text(code)
    bundle = load_bundle(folder)
    if "config-before" in parts:
        state = evaluate_config(bundle, parts["config-before"].encode(), "0.5.9")
        assert (state.new_text or b"").decode() == parts["config-after"]
        return
    (path,) = targets(bundle, "0.5.9")
    before = parts["before"].encode()
    fix = evaluate(bundle, "0.5.9", {path: before}, {path: hashlib.sha256(before).hexdigest()})
    if "refused" in parts:
        assert fix.state == "foreign"
        assert fix.files[0].problem == parts["refused"].strip()
        return
    assert fix.state == "pristine"
    assert (fix.files[0].new_text or b"").decode() == parts["after"]
    again = evaluate(
        bundle, "0.5.9", {path: fix.files[0].new_text}, {path: hashlib.sha256(before).hexdigest()}
    )
    assert (again.state, again.local_changes) == ("ours", False)


def test_the_guide_names_every_key() -> None:
    models = (bundles.BundleFile, bundles.FileEntry, bundles.EditEntry, bundles.ConfigEntry)
    table = GUIDE[GUIDE.index("## All keys") : GUIDE.index("## What a node's state")]
    for model in models:
        for key in model.model_fields:
            assert f"`{key}`" in table, f"{model.__name__}.{key}"
