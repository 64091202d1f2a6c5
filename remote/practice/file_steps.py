"""What a fault does to the practice node's files; each step first notes in the journal what heals it."""

from __future__ import annotations

import difflib
import json
import py_compile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from remote.errors import RefusedError
from remote.practice import journal, wheels
from remote.practice.build import FIXED, bytecode_path
from remote.practice.layout import Layout
from remote.practice.models import WRONG_LAYER_IDS
from remote.practice.record import Record


@dataclass(frozen=True)
class Breaking:
    """The node that is being broken, and the folder of this fault's journal."""

    layout: Layout
    record: Record
    folder: Path


Step = Callable[[Breaking], None]


def source(at: Breaking, name: str) -> Path:
    """A file of the installed package. RefusedError if this version has none."""
    path = at.layout.site_packages / name
    if not path.exists():
        raise RefusedError(
            f"SGLang {at.record.version} has no {name}", hint="inv practice.break lists the others"
        )
    return path


def write(at: Breaking, path: Path, content: bytes) -> None:
    """Replace or make a file as an editor does: same mode, time of now."""
    journal.save_path(at.folder, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def edit(name: str, find: str, put: str) -> Step:
    """Replace the one place of a package's file that reads `find`."""

    def step(at: Breaking) -> None:
        path = source(at, name)
        text = path.read_text(encoding="utf-8")
        if text.count(find) != 1:
            raise RefusedError(
                f"{path.name} holds {find.strip()!r} {text.count(find)} times: this fault has no place there",
                hint="inv practice.break lists the others",
            )
        write(at, path, text.replace(find, put).encode())

    return step


def append(name: str, text: str) -> Step:
    """Add text to the end of a package's file."""

    def step(at: Breaking) -> None:
        path = source(at, name)
        write(at, path, path.read_bytes() + text.encode())

    return step


def undo(*names: str, holding: str | None = None) -> Step:
    """Put back the wheel's text where a file differs from it: all of it, or the changes that hold a text."""

    def step(at: Breaking) -> None:
        changed = False
        for name in names:
            path = at.layout.site_packages / name
            if path.exists():
                now = path.read_text(encoding="utf-8")
                text = _without_changes(now, pristine(at, name).decode(), holding)
                if text != now:
                    write(at, path, text.encode())
                    changed = True
        if not changed:
            raise RefusedError(
                "the fix is not on the node, so nothing of it can be undone", hint="inv deploy-fix"
            )

    return step


def pristine(at: Breaking, name: str) -> bytes:
    """A file as the wheel has it. Errors of wheels.fetch, KeyError if the wheel has no such file."""
    return wheels.read(_wheel(at.record.version), name)


@cache
def _wheel(version: str) -> Path:
    return wheels.fetch(version)


def _without_changes(now: str, original: str, holding: str | None) -> str:
    ours, theirs = now.splitlines(keepends=True), original.splitlines(keepends=True)
    lines: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        undone = tag != "equal" and (holding is None or holding in "".join(ours[a:b]))
        lines += theirs[c:d] if undone else ours[a:b]
    return "".join(lines)


def empty(name: str) -> Step:
    """Leave nothing in a package's file, as a full disk does."""
    return lambda at: write(at, source(at, name), b"")


def shadow(at: Breaking) -> None:
    """A second SGLang comes first on the interpreter's path: the installed one is not the one that runs."""
    other = at.layout.root / "other"
    names = [*wheels.record(_wheel(at.record.version)), f"sglang-{at.record.version}.dist-info/RECORD"]
    for name in names:
        if name in FIXED or name.count("/") == 1:
            write(at, other / name, pristine(at, name))
    line = f"import sys; sys.path.insert(0, {str(other)!r})\n"
    write(at, at.layout.site_packages / "other-sglang.pth", line.encode())


def draft_text(find: str, put: str) -> Step:
    """Replace text in the draft's config.json without regard to what it means."""

    def step(at: Breaking) -> None:
        path = at.layout.draft / "config.json"
        text = path.read_text(encoding="utf-8")
        if find not in text:
            raise RefusedError(f"the draft's config.json holds no {find!r}", hint="inv deploy-fix")
        write(at, path, text.replace(find, put, 1).encode())

    return step


def draft_linked(at: Breaking) -> None:
    """The draft's config.json becomes a link into a cache of snapshots, which holds the wrong layer ids."""
    path = at.layout.draft / "config.json"
    blob = at.layout.draft.parent / "blobs" / "config"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(WRONG_LAYER_IDS)
    write(at, blob, (json.dumps(config, indent=2) + "\n").encode())
    journal.save_path(at.folder, path)
    path.unlink()
    path.symlink_to(blob)


def other_host_key(at: Breaking) -> None:
    """known_hosts names another key than the one that the SSH server has."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    ssh = at.record.ssh
    write(at, ssh.known_hosts, f"[{ssh.host}]:{ssh.port} {key.decode()}\n".encode())


def no_host_key(at: Breaking) -> None:
    """known_hosts names no key for the node."""
    write(at, at.record.ssh.known_hosts, b"")


def draft(change: Callable[[dict[str, Any]], object]) -> Step:
    """Change values of the draft's config.json in place."""

    def step(at: Breaking) -> None:
        path = at.layout.draft / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        before = json.dumps(config)
        change(config)
        if json.dumps(config) == before:
            raise RefusedError("the draft's config.json says that already", hint="inv deploy-fix")
        write(at, path, (json.dumps(config, indent=2) + "\n").encode())

    return step


def stale_bytecode(name: str, *, unchecked: bool) -> Step:
    """Bytecode of other source that the interpreter believes.

    It is compiled from the wheel's file where that differs from the installed one, else from that plus one
    statement; with the installed file's second and size in its head, or as an unchecked-hash pyc.
    """

    def step(at: Breaking) -> None:
        path = source(at, name)
        other = pristine(at, name)
        if other == path.read_bytes():
            other += b"\n_left_over = True\n"
        cached = bytecode_path(path)
        journal.save_path(at.folder, cached)
        modes = py_compile.PycInvalidationMode
        with tempfile.TemporaryDirectory() as folder:
            beside = Path(folder, path.name)
            beside.write_bytes(other)
            mode = modes.UNCHECKED_HASH if unchecked else modes.TIMESTAMP
            py_compile.compile(
                str(beside), str(cached), dfile=str(path), doraise=True, invalidation_mode=mode
            )
        if not unchecked:
            found = path.stat()
            # PEP 552: magic, flags, source's mtime in whole seconds, source's size; 4 bytes each.
            head = b"".join(
                (int(n) & 0xFFFFFFFF).to_bytes(4, "little") for n in (found.st_mtime, found.st_size)
            )
            content = cached.read_bytes()
            cached.write_bytes(content[:8] + head + content[16:])

    return step


def gpus(**settings: Any) -> Step:
    """Switch on faults of nvidia-smi; see remote/practice/nvidia_smi.py."""

    def step(at: Breaking) -> None:
        path = at.layout.gpu_faults / f"{at.folder.name}.json"
        write(at, path, json.dumps(settings).encode())

    return step


def remove(where: Callable[[Layout], Path]) -> Step:
    """Take a file away."""

    def step(at: Breaking) -> None:
        path = where(at.layout)
        journal.save_path(at.folder, path)
        path.unlink()

    return step
