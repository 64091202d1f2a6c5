"""SGLang's published wheels: fetched once with pip, kept in a cache, checked against their own RECORD.

A wheel is what "pristine" means: its RECORD holds the SHA-256 of every file that pip installs
(https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from remote import cache
from remote.errors import RefusedError, UsageError

# Named in full, so that the same wheel comes whatever Python and platform the engineer's machine has.
# Up to 0.5.10 the wheel fits any platform, from 0.5.11 it is one for CPython 3.11 on Linux.
PIP_FLAGS = [
    "--no-deps",
    "--only-binary",
    ":all:",
    "--python-version",
    "3.11",
    "--implementation",
    "cp",
    "--platform",
    "manylinux_2_34_x86_64",
    "--platform",
    "any",
]

# What pip prints when it got no answer from an index, as against an answer without the version.
_NO_ANSWER = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "SSLError",
    "ProtocolError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Could not fetch URL",
)

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class UnknownVersion(UsageError):
    """No published SGLang wheel has this version."""

    code = "unknown-version"


class WheelUnavailable(RefusedError):
    """The wheel is not in the cache and could not be fetched."""

    code = "wheel-unavailable"


class WheelDamaged(RefusedError):
    """A file of the wheel is not what the wheel's RECORD says."""

    code = "wheel-damaged"


def cache_dir() -> Path:
    """Where the wheels are kept: `wheels` in the toolkit's cache (FIXOPS_CACHE, XDG_CACHE_HOME/fixops)."""
    return cache.directory() / "wheels"


def fetch(version: str, folder: Path | None = None, *, run: Run | None = None) -> Path:
    """The path of SGLang's wheel of `version`, from the cache or else downloaded with pip.

    Checked against its RECORD each time; a damaged one in the cache is fetched anew.
    Raises UnknownVersion, WheelUnavailable (offline, no pip, cache not writable) or WheelDamaged.
    """
    wanted = _parse(version)
    folder = folder or cache_dir()
    cached = _find(folder, wanted)
    if cached is not None and damage(cached) is None:
        return cached
    fetched = _download(wanted, folder, run or _run)
    problem = damage(fetched)
    if problem is not None:
        raise WheelDamaged(f"{fetched.name} was downloaded damaged: {problem}", hint=f"rm {fetched}")
    return fetched


def is_cached(version: str) -> bool:
    """Is there a wheel that `fetch` need not download? Its content is not looked at."""
    return _find(cache_dir(), _parse(version)) is not None


def record(whl: Path) -> dict[str, str]:
    """{path inside the wheel: SHA-256 in hex} for every file that RECORD gives a hash for."""
    with zipfile.ZipFile(whl) as archive:
        return _record(archive)


def read(whl: Path, path: str) -> bytes:
    """One file of the wheel, checked against RECORD. KeyError if the wheel has no such file."""
    with zipfile.ZipFile(whl) as archive:
        content = archive.read(path)
        expected = _record(archive).get(path)
    if expected is not None and hashlib.sha256(content).hexdigest() != expected:
        raise WheelDamaged(f"{path} in {whl.name} is not what its RECORD says", hint=f"rm {whl}")
    return content


def damage(whl: Path) -> str | None:
    """What is wrong with the wheel, or None if every file is there and is what RECORD says."""
    try:
        with zipfile.ZipFile(whl) as archive:
            hashes = _record(archive)
            unlisted = {name for name in archive.namelist() if not name.endswith("/")} - set(hashes)
            for path, expected in hashes.items():
                if hashlib.sha256(archive.read(path)).hexdigest() != expected:
                    return f"{path} is not what RECORD says"
    except KeyError as missing:
        return str(missing.args[0])
    except (OSError, zipfile.BadZipFile, ValueError, EOFError) as broken:
        return f"not a readable wheel ({broken})"
    extra = sorted(name for name in unlisted if not name.endswith(".dist-info/RECORD"))
    return f"{extra[0]} is not listed in RECORD" if extra else None


def _parse(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        raise UnknownVersion(
            f"{version!r} is not a version of SGLang", hint="write it like 0.5.9 or 0.5.10.post1"
        ) from None


def _find(folder: Path, wanted: Version) -> Path | None:
    for path in sorted(folder.glob("sglang-*.whl")):
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if name == canonicalize_name("sglang") and version == wanted:
            return path
    return None


def _record(archive: zipfile.ZipFile) -> dict[str, str]:
    name = next((n for n in archive.namelist() if n.endswith(".dist-info/RECORD")), None)
    if name is None:
        raise KeyError("RECORD is missing")
    hashes = {}
    for row in csv.reader(archive.read(name).decode("utf-8").splitlines()):
        if len(row) >= 2 and row[1].startswith("sha256="):
            digest = row[1].removeprefix("sha256=")
            hashes[row[0]] = base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    return hashes


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def _download(wanted: Version, folder: Path, run: Run) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the cache, so that a finished wheel appears in it whole or not at all.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as beside:
            argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
            argv += ["--retries", "2", *PIP_FLAGS, "--dest", beside, f"sglang=={wanted}"]
            done = run(argv)
            got = _find(Path(beside), wanted)
            if done.returncode != 0 or got is None:
                raise _explain(wanted, done.stderr)
            return got.replace(folder / got.name)
    except OSError as error:
        raise WheelUnavailable(
            f"SGLang {wanted} cannot be kept in {folder}: {error.strerror or error}",
            hint="set FIXOPS_CACHE to a directory that you can write",
        ) from None


def _explain(wanted: Version, stderr: str) -> UsageError | RefusedError:
    offline_hint = "check the network, or put the wheel into the directory that FIXOPS_CACHE names"
    if "No module named pip" in stderr:
        return WheelUnavailable(
            f"SGLang {wanted} cannot be fetched: {sys.executable} has no pip",
            hint=f"{sys.executable} -m ensurepip",
        )
    listed = stderr.partition("(from versions: ")[2].partition(")")[0]
    if listed and listed != "none":
        newest = ", ".join(listed.split(", ")[-5:])
        return UnknownVersion(f"SGLang has published no wheel {wanted}", hint=f"the newest are {newest}")
    if any(sign in stderr for sign in _NO_ANSWER):
        return WheelUnavailable(
            f"SGLang {wanted} is not in the cache and the package index does not answer", hint=offline_hint
        )
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "pip printed nothing")
    return WheelUnavailable(f"SGLang {wanted} cannot be fetched: {last.strip()}", hint=offline_hint)
