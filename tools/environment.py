"""Make .venv with everything in it, on a machine that has Python 3.10+ and nothing else.

Debian and Ubuntu split `ensurepip` off into the package python3-venv. Where it is missing, pip comes
from the package index that pip itself would use, as a wheel checked against the index's hash.
"""

from __future__ import annotations

import hashlib
import html.parser
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


def main() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036 - whoever runs this may have any Python
        sys.stderr.write(f"error: Python 3.10 or newer is needed, this is {sys.version.split()[0]}\n")
        sys.stderr.write("next:  make PYTHON=python3.11 ...\n")
        return 2
    python = VENV / "bin" / "python"
    if not (python.exists() and _has_pip(python)):
        _make(python)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The project has no packages to install: this brings what pyproject.toml says that it needs.
    return subprocess.call([*install, f"{ROOT}[dev]"])


def _make(python: Path) -> None:
    if subprocess.call([sys.executable, "-c", "import ensurepip"], stderr=subprocess.DEVNULL) == 0:
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", str(VENV)])
        return
    subprocess.check_call([sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)])
    with tempfile.TemporaryDirectory() as folder:
        wheel = _fetch_pip(Path(folder))
        # A wheel is a zip file, and pip's can be run from it (pip's own documentation of `pip.pyz`).
        subprocess.check_call(
            [str(python), f"{wheel}/pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
        )


def _has_pip(python: Path) -> bool:
    return (
        subprocess.call(
            [str(python), "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        == 0
    )


class _Links(html.parser.HTMLParser):
    """The files of an index page (PEP 503): addresses with `#sha256=...`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.found.append((str(values["href"]), "data-yanked" in values))


def _fetch_pip(folder: Path) -> Path:
    page = f"{INDEX}/pip/"
    parser = _Links()
    with urllib.request.urlopen(page, timeout=60) as reply:
        base = reply.geturl()
        parser.feed(reply.read().decode("utf-8"))
    wheels = [
        urllib.parse.urljoin(base, link)
        for link, yanked in parser.found
        if not yanked and urllib.parse.urlparse(link).path.endswith("-py3-none-any.whl")
    ]
    released = [link for link in wheels if _version(link) is not None]
    address, _, digest = max(released, key=lambda link: _version(link) or ()).partition("#sha256=")
    with urllib.request.urlopen(address, timeout=60) as reply:
        content = reply.read()
    if digest and hashlib.sha256(content).hexdigest() != digest:
        raise SystemExit(f"error: {address} does not have the hash that the index gives")
    wheel = folder / Path(urllib.parse.urlparse(address).path).name
    wheel.write_bytes(content)
    return wheel


def _version(link: str) -> tuple[int, ...] | None:
    """The version of pip's wheel as numbers; None for a pre-release. 25.x still runs on Python 3.9+."""
    name = Path(urllib.parse.urlparse(link).path).name
    parts = name.split("-")[1].split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else None


if __name__ == "__main__":
    sys.exit(main())
