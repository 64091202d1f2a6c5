"""`--from-pristine`: the fix on top of the released files, whatever the node's files hold now."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from . import fixes
from .errors import RefusedError
from .fixes import FileState, FixState, State
from .picture import Picture
from .practice import wheels


def from_pristine(picture: Picture) -> Picture:
    """The picture as if the node had the wheel's files: what is written is the fixed released file.

    The wheel comes with pip to the engineer's machine and is checked against its own RECORD; where the
    node has a RECORD of its own, both must agree. RefusedError where the bundle does not fit the wheel.
    """
    version, node = picture.version, picture.node
    if version is None or picture.fix is None or picture.fix.state in ("native", "uncovered"):
        return picture
    wheel = wheels.fetch(version)
    released: dict[str, bytes | None] = {}
    for path in fixes.targets(picture.bundle, version):
        content = wheels.read(wheel, path)
        recorded = picture.section("files").get(path, {}).get("record_sha256")
        if recorded is not None and recorded != hashlib.sha256(content).hexdigest():
            raise RefusedError(
                f"{node.name}: {path} of the released sglang {version} is not the one that was installed",
                hint="the node has another build of that version: patch it by hand, or reinstall it",
                node=node.name,
            )
        released[path] = content
    wanted = fixes.evaluate(picture.bundle, version, released, dict.fromkeys(released))
    misfits = [file.path for file in wanted.files if file.state == "foreign"]
    if misfits:
        raise RefusedError(
            f"{node.name}: {wanted.bundle} does not fit {', '.join(misfits)} of the released sglang"
            f" {version}",
            hint="mend the bundle's edits (docs/fixes.md)",
            node=node.name,
            data={"reason": "misfit"},
        )
    files = tuple(_against(file, picture.sources.get(file.path)) for file in wanted.files)
    state: State = "ours" if all(file.new_text is None for file in files) else "partial"
    return replace(picture, fix=FixState(wanted.bundle, version, state, files))


def _against(file: FileState, current: bytes | None) -> FileState:
    """What is to be written, as a change of the file that the node has now."""
    if file.new_text is None or file.new_text == current:
        return replace(file, new_text=None, diff="", state="ours")
    return replace(file, diff=fixes.text_diff(file.path, current or b"", file.new_text))
