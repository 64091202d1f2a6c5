"""Contents by hash: what was fetched from a node once need not cross the wire again."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path


def directory() -> Path:
    """$FIXOPS_CACHE, else $XDG_CACHE_HOME/fixops, else ~/.cache/fixops."""
    if "FIXOPS_CACHE" in os.environ:
        return Path(os.environ["FIXOPS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fixops"


class Contents:
    """A folder of files named by their SHA-256. A damaged entry counts as absent."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or directory()) / "contents"

    def get(self, sha256: str) -> bytes | None:
        try:
            content = (self.root / sha256).read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == sha256 else None

    def put(self, content: bytes) -> str:
        """Keep `content`; returns its SHA-256."""
        sha256 = hashlib.sha256(content).hexdigest()
        self._write(sha256, content)
        return sha256

    def note(self, sha256: str, about: str) -> object | None:
        """What was once found out about that content (JSON), None when nothing was."""
        try:
            return json.loads((self.root / f"{sha256}.{about}").read_text(encoding="utf-8"))  # type: ignore[no-any-return]
        except (OSError, ValueError):
            return None

    def put_note(self, sha256: str, about: str, value: object) -> None:
        self._write(f"{sha256}.{about}", json.dumps(value).encode())

    def _write(self, name: str, content: bytes) -> None:
        """A cache that cannot be written is only slower."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            beside = self.root / f".{name}.{os.getpid()}.{threading.get_ident()}"
            beside.write_bytes(content)
            beside.replace(self.root / name)
        except OSError:
            pass
