"""Fetching wheels with the real pip, from a directory in place of an index."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from remote.errors import ExitCode
from remote.practice import wheels
from tests.support import free_port

CODE = b"answer = 42\n"


def make_wheel(folder: Path, version: str, *, recorded: bytes = CODE) -> Path:
    """A small wheel called sglang; its RECORD is true if `recorded` is what it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sglang-{version}-py3-none-any.whl"
    info = f"sglang-{version}.dist-info"
    files = {
        "sglang/__init__.py": CODE,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, content in files.items():
        told = recorded if name == "sglang/__init__.py" else content
        digest = base64.urlsafe_b64encode(hashlib.sha256(told).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes wheels from, and nothing else."""
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    make_wheel(folder, "0.5.1")
    make_wheel(folder, "0.5.2")
    return folder


def no_pip(_: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; sys.exit(f'{sys.executable}: No module named pip')"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wheel_is_downloaded_once(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = wheels.fetch("0.5.1", cache)
    index.joinpath(first.name).unlink()
    assert wheels.fetch("0.5.1", cache) == first
    assert first.parent == cache
    assert [path.name for path in cache.iterdir()] == [first.name]


@pytest.mark.usefixtures("index")
def test_record_and_read_give_what_the_wheel_holds(tmp_path: Path) -> None:
    whl = wheels.fetch("0.5.2", tmp_path / "cache")
    assert wheels.record(whl)["sglang/__init__.py"] == hashlib.sha256(CODE).hexdigest()
    assert wheels.read(whl, "sglang/__init__.py") == CODE
    with pytest.raises(KeyError):
        wheels.read(whl, "sglang/absent.py")


@pytest.mark.usefixtures("index")
def test_an_unpublished_version_is_a_usage_error_that_names_others(tmp_path: Path) -> None:
    with pytest.raises(wheels.UnknownVersion) as caught:
        wheels.fetch("0.5.99", tmp_path / "cache")
    assert caught.value.exit_code == ExitCode.USAGE
    assert "0.5.1, 0.5.2" in caught.value.hint


def test_text_that_is_no_version_never_reaches_pip(tmp_path: Path) -> None:
    def never(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise AssertionError(argv)

    with pytest.raises(wheels.UnknownVersion):
        wheels.fetch("--help", tmp_path, run=never)


def test_offline_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free_port()}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(wheels.WheelUnavailable) as caught:
        wheels.fetch("0.5.1", tmp_path / "cache")
    assert caught.value.exit_code == ExitCode.REFUSED
    assert "does not answer" in caught.value.message


def test_without_pip_the_error_names_the_interpreter(tmp_path: Path) -> None:
    with pytest.raises(wheels.WheelUnavailable) as caught:
        wheels.fetch("0.5.1", tmp_path, run=no_pip)
    assert sys.executable in caught.value.message
    assert "ensurepip" in caught.value.hint


@pytest.mark.usefixtures("index")
def test_a_damaged_wheel_in_the_cache_is_fetched_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    whl = wheels.fetch("0.5.1", cache)
    good = whl.read_bytes()
    for bad in (good[:100], good.replace(CODE, b"answer = 43\n"), b""):
        whl.write_bytes(bad)
        assert wheels.damage(whl)
        assert wheels.fetch("0.5.1", cache).read_bytes() == good


def test_a_wheel_that_contradicts_its_record_is_refused(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "0.5.3", recorded=b"other\n")
    with pytest.raises(wheels.WheelDamaged) as caught:
        wheels.fetch("0.5.3", tmp_path / "cache")
    assert "sglang/__init__.py" in caught.value.message


def test_a_file_that_record_does_not_list_is_damage(tmp_path: Path) -> None:
    whl = make_wheel(tmp_path, "0.5.4")
    assert wheels.damage(whl) is None
    with zipfile.ZipFile(whl, "a") as archive:
        archive.writestr("sglang/extra.py", b"")
    assert wheels.damage(whl) == "sglang/extra.py is not listed in RECORD"


@pytest.mark.usefixtures("index")
def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(wheels.WheelUnavailable, match="cannot be kept"):
        wheels.fetch("0.5.1", blocked / "cache")
