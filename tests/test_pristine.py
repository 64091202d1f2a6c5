"""`--from-pristine`: the fix on the released files, whatever the node has, of a bundle that fits those."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from remote import bundles
from remote.errors import RefusedError
from remote.pristine import from_pristine
from tests import pictures
from tests.pictures import DEEPSEEK, pristine

ANCHOR, MISTYPED = "after: self.layers_to_capture = []", "after: self.layer_to_capture = []"


def edited() -> dict[str, bytes | None]:
    """SGLang's files with a hand's edit in the place of the fix."""
    sources = dict(pristine())
    text = sources[DEEPSEEK]
    assert text is not None
    sources[DEEPSEEK] = text.replace(b"aux_hidden_states.append(", b"aux_hidden_states.extend(")
    return sources


def test_a_foreign_file_is_replaced_by_the_fixed_released_one() -> None:
    found = from_pristine(pictures.picture(sources=edited()))
    assert found.fix is not None
    assert {file.path: file.new_text for file in found.fix.files}[DEEPSEEK] == pictures.fixed()[DEEPSEEK]


def test_a_bundle_that_does_not_fit_the_released_file_is_refused(tmp_path: Path) -> None:
    """It counted as in place, and a deploy ended what was stale for nothing."""
    mine = tmp_path / "eagle3-three-edits"
    shutil.copytree(bundles.TEMPLATES / mine.name, mine)
    file = mine / bundles.FILE_NAME
    text = file.read_text()
    assert ANCHOR in text
    file.write_text(text.replace(ANCHOR, MISTYPED))
    picture = replace(pictures.picture(sources=edited()), bundle=bundles.load_bundle(mine))
    with pytest.raises(RefusedError, match=r"does not fit .*deepseek_v2.py of the released sglang 0\.5\.9"):
        from_pristine(picture)
