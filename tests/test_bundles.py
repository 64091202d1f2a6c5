"""Fix bundles as files: what may stand in one, and how a mistake is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote.bundles import Bundle, covers, find_bundle, list_bundles, load_bundle
from remote.errors import BundleError, ExitCode

GOOD = """\
name: mine
title: A small fix
why: because
sglang: ">=0.5.5,<0.5.13"
contract: {draft_input: [embed, in:3], layers: 61}
marker: 'EAGLE-3 \\[(?P<draft_input>.*)\\]'
files:
  - path: sglang/srt/a.py
    edits:
      - id: one
        where: C.m
        after: x = 1
        code: y = 2
  - path: sglang/srt/b.py
    versions: "<0.5.9"
    patch: b.patch
config:
  - target: draft
    set:
      eagle_config.ids: [-1, 2]
"""
PATCH = b"--- a/sglang/srt/b.py\n+++ b/sglang/srt/b.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


def write(tmp_path: Path, text: str, patch: bytes | None = PATCH, name: str = "mine") -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    (folder / "bundle.yaml").write_text(text)
    if patch is not None:
        (folder / "b.patch").write_bytes(patch)
    return folder


def test_a_bundle_is_read(tmp_path: Path) -> None:
    bundle = load_bundle(write(tmp_path, GOOD))
    assert (bundle.name, bundle.title, bundle.why) == ("mine", "A small fix", "because")
    assert bundle.contract is not None
    assert bundle.contract.draft_input == ["embed", "in:3"]
    assert bundle.contract.layers == 61
    assert bundle.marker == "EAGLE-3 \\[(?P<draft_input>.*)\\]"
    assert [e.path for e in bundle.entries("0.5.8.post1")] == ["sglang/srt/a.py", "sglang/srt/b.py"]
    assert [e.path for e in bundle.entries("0.5.9")] == ["sglang/srt/a.py"]
    assert bundle.entries("0.5.13") == []
    edit = bundle.entries("0.5.9")[0].edits[0].as_edit()
    assert (edit.scope, edit.kind, edit.anchor, edit.new) == ("C.m", "after", "x = 1", "y = 2")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("title: A", "titel: A", 2, "unknown key 'titel' (did you mean 'title'?)"),
        ("        where: C.m\n", "        wehre: C.m\n", 11, "(did you mean 'where'?)"),
        ("why: because\n", "", 1, "why is missing"),
        ("name: mine", "name: other", 1, "the directory is 'mine'"),
        ('">=0.5.5,<0.5.13"', '"0.5.5 to 0.5.12"', 4, "a range of versions like"),
        ('">=0.5.5,<0.5.13"', "0.5", 4, "a text like"),
        ("[embed, in:3]", "[embed, layer3]", 5, "layer3"),
        ("[embed, in:3]", "[embed, in:0]", 5, "in:0"),
        ("layers: 61", "layers: many", 5, "valid integer"),
        ("(?P<draft_input>", "(?P<draft_input", 6, "a regular expression"),
        ("(?P<draft_input>", "(?P<other>", 6, "(?P<draft_input>...)"),
        ("path: sglang/srt/a.py", "path: /usr/lib/a.py", 8, "a path like sglang/"),
        ("path: sglang/srt/a.py", "path: sglang/../../a.py", 8, "a path like sglang/"),
        ("path: sglang/srt/a.py", "path: sglang//srt/b.py", 8, "a path like sglang/"),
        ('">=0.5.5,<0.5.13"', '"===nightly"', 4, "a range of versions like"),
        ('"<0.5.9"', '"===nightly"', 15, "(for one version: '==0.5.9')"),
        ("    patch: b.patch\n", "", 14, "either edits or patch"),
        ("    patch: b.patch", "    patch: ../b.patch", 16, "bundle's own directory"),
        ("    patch: b.patch", "    patch: c.patch", 16, "cannot be read"),
        ("after: x = 1", "after: x = = 1", 10, "Python code (the anchor of edit one"),
        ("code: y = 2", "code: '# nothing'", 10, "at least one Python statement"),
        ("code: y = 2", "code: y = 2; z = 3", 10, "one statement a line"),
        ("code: y = 2", 'code: "y = 2\\n# end\\n"', 10, "end with the last statement"),
        ("after: x = 1", "at: middle", 12, "'start' or 'end'"),
        ("        after: x = 1\n", "", 10, "exactly one of after, before, replace, at (edit one has none)"),
        ("after: x = 1", "after: x = 1\n        at: end", 10, "(edit one has after, at)"),
        (
            "after: x = 1\n        code: y = 2",
            "replace: x = 1\n        code: 'y = 2  # two'",
            10,
            "without a comment",
        ),
        ("target: draft", "target: target", 18, "'draft'"),
        ("eagle_config.ids: [-1, 2]", "{}", 19, "at least 1 item"),
        ("eagle_config.ids", "eagle_config..ids", 20, "eagle_config..ids"),
        ("[-1, 2]", "2026-02-13", 20, "a value that JSON has"),
        ("[-1, 2]", ".nan", 20, "a value that JSON has"),
        ("[-1, 2]", "{1: 2}", 20, "a value that JSON has"),
        ("[-1, 2]", "!!binary aGVsbG8=", 20, "a value that JSON has"),
        ("[-1, 2]", '"\\ud800"', 20, "a value that JSON has"),
        ("sglang/srt/a.py", "sglang/srt/b.py", 14, "has a patch and more"),
        ("title: A small fix\n", "title: A small fix\ntitle: B\n", 3, "given twice"),
        ("why: because", "why: [", 5, "not valid YAML"),
    ],
)
def test_a_mistake_is_reported_with_file_and_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in GOOD
    folder = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(BundleError) as caught:
        load_bundle(folder)
    assert caught.value.message.startswith(f"{folder / 'bundle.yaml'}:{line}: ")
    assert message in caught.value.message
    assert caught.value.exit_code == ExitCode.USAGE


def test_two_entries_of_one_file_may_not_share_an_edit(tmp_path: Path) -> None:
    second = (
        "  - path: sglang/srt/a.py\n    versions: '>=0.5.9'\n    edits: [{id: one, at: end, code: z = 3}]\n"
    )
    text = GOOD.replace("  - path: sglang/srt/b.py", second + "  - path: sglang/srt/b.py")
    with pytest.raises(BundleError, match=r"bundle.yaml:14: sglang/srt/a.py has two edits 'one'"):
        load_bundle(write(tmp_path, text))
    apart = text.replace(
        "    edits:\n      - id: one", "    versions: '<0.5.9'\n    edits:\n      - id: one", 1
    )
    assert [e.versions is not None for e in load_bundle(write(tmp_path, apart)).entries("0.5.9")] == [True]


def test_a_patch_is_checked_with_its_own_line(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD, PATCH + b"+d\n")
    with pytest.raises(BundleError, match=r"b\.patch:7: a line that belongs to no hunk"):
        load_bundle(folder)
    with pytest.raises(BundleError, match=r"bundle\.yaml:16: b\.patch is a patch of sglang/srt/c\.py"):
        load_bundle(write(tmp_path, GOOD, PATCH.replace(b"b.py", b"c.py")))


def test_the_digest_follows_every_file_of_the_bundle(tmp_path: Path) -> None:
    first = load_bundle(write(tmp_path, GOOD)).digest
    assert load_bundle(write(tmp_path, GOOD)).digest == first
    assert load_bundle(write(tmp_path, GOOD.replace("y = 2", "y = 3"))).digest != first
    assert load_bundle(write(tmp_path, GOOD, PATCH.replace(b"+c", b"+d"))).digest != first


EXTENDING = """\
name: wider
title: The same for another model
why: its draft was trained on other layers
extends: mine
contract: {draft_input: [embed, in:7], layers: 9}
config:
  - target: draft
    set:
      eagle_config.ids: [-1, 6]
"""


def test_a_bundle_extends_another(tmp_path: Path) -> None:
    """What it says itself replaces, key by key; the rest, patches included, is the other one's."""
    base = load_bundle(write(tmp_path, GOOD))
    wider = load_bundle(write(tmp_path, EXTENDING, patch=None, name="wider"))
    assert wider.spec.files == base.spec.files
    assert wider.patches == base.patches
    assert (wider.name, wider.marker, wider.sglang) == ("wider", base.marker, base.sglang)
    assert wider.contract is not None
    assert wider.contract.draft_input == ["embed", "in:7"]
    assert wider.config("0.5.9")[0].set == {"eagle_config.ids": [-1, 6]}
    own_files = EXTENDING + "files:\n  - path: sglang/srt/c.py\n    edits: [{id: x, at: end, code: y = 1}]\n"
    narrow = load_bundle(write(tmp_path, own_files, patch=None, name="wider"))
    assert [entry.path for entry in narrow.entries("0.5.9")] == ["sglang/srt/c.py"]
    assert narrow.patches == {}
    write(tmp_path, GOOD.replace("y = 2", "y = 3"))
    changed = load_bundle(write(tmp_path, EXTENDING, patch=None, name="wider"))
    assert changed.digest != wider.digest  # nothing remembered of the old edits is used


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mime", r"bundle.yaml:4: there is no bundle 'mime'"),
        ("eagle3-three-edit", r"there is no bundle 'eagle3-three-edit' \(did you mean 'eagle3-three-edits'"),
        ("../mine", r"there is no bundle '../mine'"),
        ("wider", r"bundle.yaml:4: 'wider' would extend itself"),
        ("[mine]", r"bundle.yaml:4: extends is \['mine'\]"),
    ],
)
def test_what_cannot_be_extended(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path, GOOD)
    folder = write(tmp_path, EXTENDING.replace("extends: mine", f"extends: {name}"), None, "wider")
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


def test_a_circle_of_extensions_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, EXTENDING.replace("extends: mine", "extends: other"), None, "wider")
    other = EXTENDING.replace("extends: mine", "extends: wider").replace("name: wider", "name: other")
    folder = write(tmp_path, other, None, "other")
    with pytest.raises(BundleError, match="'other' would extend itself"):
        load_bundle(folder)


def test_a_mistake_in_an_extended_bundle_is_told_of_that_one(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("marker:", "markr:"))
    folder = write(tmp_path, EXTENDING, None, "wider")
    with pytest.raises(BundleError, match=r"mine/bundle.yaml:6: unknown key 'markr' \(did you mean 'marker'"):
        load_bundle(folder)


def test_bundles_are_found_by_name(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    own = find_bundle("mine", extra=[tmp_path])
    assert own.directory == tmp_path / "mine"
    assert "mine" in [b.name for b in list_bundles(extra=[tmp_path])]
    with pytest.raises(
        BundleError, match=r"no fix 'eagle3-embeding-capture' \(did you mean 'eagle3-embedding-capture'"
    ):
        find_bundle("eagle3-embeding-capture")
    for odd in ("", ".", "../fixes/eagle3-three-edits", "a/b"):
        with pytest.raises(BundleError, match="there is no fix"):
            find_bundle(odd)
    with pytest.raises(BundleError, match="does not exist"):
        load_bundle(tmp_path / "nothing")


def test_two_bundles_of_one_name_are_refused(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        write(tmp_path / place, GOOD)
    with pytest.raises(BundleError, match="'mine' is there twice"):
        list_bundles(tmp_path / "a", [tmp_path / "b"])


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.5", True),
        ("0.5.4.post3", False),
        ("0.5.10.post1", True),
        ("0.5.9+cu128", True),
        ("0.5.11", False),
        # Newer than 0.5.10 and older than 0.5.11: which of its edits apply is not known.
        ("0.5.11.dev3", False),
        ("0.5.9rc1", False),
        ("0.0.0.dev0", False),
        ("unknown", False),
    ],
)
def test_which_versions_a_range_covers(tmp_path: Path, version: str, expected: bool) -> None:
    bundle = load_bundle(write(tmp_path, GOOD.replace("<0.5.13", "<0.5.11")))
    assert bundle.is_covered(version) is expected
    assert covers(None, version, unset=True) is (expected or version in ("0.5.4.post3", "0.5.11"))


def test_a_version_that_has_it_natively_has_no_edits(tmp_path: Path) -> None:
    text = GOOD.replace('sglang: ">=0.5.5,<0.5.13"', 'sglang: ">=0.5.5,<0.5.13"\nnative: "==0.5.23"')
    bundle = load_bundle(write(tmp_path, text))
    assert bundle.is_covered("0.5.23")
    assert bundle.is_native("0.5.23")
    assert bundle.entries("0.5.23") == []
    assert not bundle.is_native("0.5.9")


@pytest.fixture(params=["eagle3-embedding-capture", "eagle3-three-edits"])
def shipped(request: pytest.FixtureRequest) -> Bundle:
    return find_bundle(request.param)


def test_the_shipped_bundles_cover_the_same_versions(shipped: Bundle) -> None:
    covered = [
        "0.5.5",
        "0.5.5.post3",
        "0.5.6.post2",
        "0.5.7",
        "0.5.8.post1",
        "0.5.9",
        "0.5.10.post1",
        "0.5.12.post1",
    ]
    assert all(shipped.is_covered(version) for version in covered)
    assert not any(shipped.is_covered(version) for version in ("0.5.4", "0.5.13", "0.5.13.post1", "0.5.24"))
    assert shipped.contract is not None
    assert shipped.contract.draft_input == ["embed", "in:3", "in:31"]
