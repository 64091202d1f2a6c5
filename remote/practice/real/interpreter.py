"""Find a Python 3.11: what the pinned packages of a real practice node are built for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remote.errors import RefusedError

WANTED = (3, 11)
NAMED = "FIXOPS_PYTHON311"
_ASK = """
import importlib.util, json, sys
print(json.dumps([sys.version_info[:2], importlib.util.find_spec("pip") is not None]))
"""


@dataclass(frozen=True)
class Interpreter:
    """`pip` is the command that installs packages for it."""

    path: Path
    pip: tuple[str, ...]


class NoInterpreter(RefusedError):
    """No usable Python 3.11 was found."""

    code = "no-python-3.11"


def find() -> Interpreter:
    """$FIXOPS_PYTHON311, else this very Python, `python3.11` on PATH, or one that pyenv installed."""
    tried = []
    for path in _candidates():
        asked = _ask(path)
        if asked is not None and asked[0] == WANTED:
            return Interpreter(path, _pip(path, has_pip=asked[1]))
        tried.append(f"{path} ({'does not run' if asked is None else '.'.join(map(str, asked[0]))})")
    raise NoInterpreter(
        "a real practice node needs Python 3.11, and there is none"
        + (f": looked at {', '.join(tried)}" if tried else ""),
        hint=f"install it (Debian: python3.11), or name it: {NAMED}=/path/to/python3.11",
    )


def _candidates() -> Iterator[Path]:
    named = os.environ.get(NAMED)
    if named:
        yield Path(named)
        return
    yield Path(sys.executable)
    found = shutil.which("python3.11")
    if found:
        yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(root.glob("versions/3.11.*/bin/python"), reverse=True)


def _ask(path: Path) -> tuple[tuple[int, int], bool] | None:
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=False
        )
        version, has_pip = json.loads(done.stdout)
        return (version[0], version[1]), has_pip
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _pip(path: Path, *, has_pip: bool) -> tuple[str, ...]:
    """Its own pip, else that of the Python that runs this (Debian's python3.11 comes without)."""
    if has_pip:
        return (str(path), "-m", "pip")
    return (sys.executable, "-m", "pip", "--python", str(path))
