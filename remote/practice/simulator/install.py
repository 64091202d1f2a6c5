"""The installed SGLang that the real server would import: where it is, which version, and what its modules
do.

Nothing of it is imported. What a module does is its bytecode's matter: a `.pyc` that this interpreter
believes decides (PEP 552), so the text that is handed on is the one that the bytecode was made from.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Install:
    """`root` holds the package directory `sglang`; `version` is what the real one would call itself."""

    root: Path
    version: str

    def path(self, relative: str) -> Path:
        """`relative` as "sglang/srt/server_args.py"."""
        return self.root / relative


class NotInstalled(Exception):
    """This interpreter would find no sglang."""


def search_path(home: Path, cwd: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """sys.path as `python -m sglang.launch_server` has it: the working directory first, ours not at all."""
    own = {str(home), str(home / "simulator")}
    rest = [entry for entry in sys.path if entry not in own]
    safe = bool(environ.get("PYTHONSAFEPATH")) or getattr(sys.flags, "safe_path", False)
    return rest if safe else [cwd, *rest]


def _version(root: Path) -> str:
    for info in sorted(root.glob("sglang-*.dist-info")):
        found = re.search(r"^Version: *(\S+)", (info / "METADATA").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1]
    generated = root / "sglang" / "_version.py"
    if generated.exists():
        found = re.search(
            r"^__version__ = version = '([^']+)'", generated.read_text(encoding="utf-8"), re.MULTILINE
        )
        if found:
            return found[1]
    return "0.0.0.dev0"  # sglang/version.py says so of a tree without either


def find_install(home: Path, version: str | None) -> Install:
    """The sglang that a server started here would import, editable installs included. Raises NotInstalled."""
    kept = sys.path[:]
    sys.path[:] = search_path(home, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec("sglang")
    finally:
        sys.path[:] = kept
    if spec is None or spec.origin is None:
        raise NotInstalled
    root = Path(spec.origin).parent.parent
    return Install(root, version or _version(root))


@dataclass(frozen=True)
class Loaded:
    """What importing one file gives: `text` is None where the bytecode runs and its source is not known."""

    text: str | None
    error: SyntaxError | None = None
    stale: bool = False


def _module_name(relative: str) -> str:
    return relative.removesuffix(".py").replace("/", ".")


def _older_texts(relative: str, places: Sequence[Path]) -> Iterator[str]:
    for place in places:
        if place.suffix == ".whl":
            with zipfile.ZipFile(place) as wheel:
                if relative in wheel.namelist():
                    yield wheel.read(relative).decode("utf-8")
        elif (place / relative).is_dir():  # our own memory: one file per text
            for path in sorted((place / relative).iterdir()):
                yield path.read_text(encoding="utf-8")
        elif (place / relative).exists():
            yield importlib.util.decode_source((place / relative).read_bytes())


def _compiled(text: str, filename: str) -> types.CodeType | None:
    try:
        code = compile(text, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return code


def load(install: Install, relative: str, known: Sequence[Path]) -> Loaded:
    """Import one file as SourceFileLoader does: believe or write its `.pyc`, and tell which text then runs.

    `known` are places to look for the text of bytecode that is not the source's: wheels, trees, and
    remembered texts. Raises FileNotFoundError.
    """
    path = install.path(relative)
    source = path.read_bytes()
    loader = importlib.machinery.SourceFileLoader(_module_name(relative), str(path))
    try:
        code = loader.get_code(_module_name(relative))
    except SyntaxError as error:
        return Loaded(None, error)
    try:
        text = importlib.util.decode_source(source)
    except (SyntaxError, UnicodeDecodeError):
        text = None
    if text is not None and _compiled(text, str(path)) == code:
        return Loaded(text)
    for older in _older_texts(relative, known):
        if _compiled(older, str(path)) == code:
            return Loaded(older, stale=True)
    return Loaded(None, stale=True)


def remember(memory: Path, relative: str, text: str) -> None:
    """Keep a text that has run, so that bytecode made from it is recognised after the source has changed."""
    place = memory / relative / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    if place.exists():
        return
    with contextlib.suppress(OSError):  # a full or read-only disk is no reason not to serve
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_suffix(f".{os.getpid()}.tmp")
        beside.write_text(text, encoding="utf-8", newline="")
        beside.replace(place)
