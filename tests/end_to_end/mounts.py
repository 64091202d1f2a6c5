"""File systems that are full or read-only: real ones where this account may mount, else stand-ins.

A stand-in is told by the node's interpreter (sitecustomize), which then refuses to open a file for writing
below the folder as the kernel would.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_STAND_IN = """
import os

_open, _mkdir = os.open, os.mkdir


def _refuse(path):
    if os.fspath(path).startswith({folder!r}):
        raise OSError({number}, os.strerror({number}), path)


def _guarded_open(path, flags, *args, **more):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _refuse(path)
    return _open(path, flags, *args, **more)


def _guarded_mkdir(path, *args, **more):
    _refuse(path)
    return _mkdir(path, *args, **more)


os.open, os.mkdir = _guarded_open, _guarded_mkdir
"""


def _mount(*words: str | Path) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def _unmounted_after(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        # Lazily: a process may still look at it.
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def _stand_in(site_packages: Path, folder: Path, number: int) -> Iterator[None]:
    custom = site_packages / "sitecustomize.py"
    custom.write_text(_STAND_IN.format(folder=str(folder), number=number))
    try:
        yield
    finally:
        custom.unlink()


@contextlib.contextmanager
def full(folder: Path, site_packages: Path) -> Iterator[None]:
    """The folder on a file system of its own, with its content, that has no room for another byte."""
    size = sum(path.stat().st_size + 8192 for path in folder.rglob("*")) + 65536
    copy = folder.with_name(f"{folder.name}.copy")
    shutil.copytree(folder, copy, symlinks=True)
    try:
        if not _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder):
            with _stand_in(site_packages, folder, errno.ENOSPC):
                yield
            return
        with _unmounted_after(folder):
            shutil.copytree(copy, folder, symlinks=True, dirs_exist_ok=True)
            with contextlib.suppress(OSError), (folder / ".filler").open("wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
            yield
    finally:
        shutil.rmtree(copy)


@contextlib.contextmanager
def read_only(folder: Path, site_packages: Path) -> Iterator[None]:
    """The folder as if it came from a read-only image."""
    if not _mount("--bind", folder, folder):
        with _stand_in(site_packages, folder, errno.EROFS):
            yield
        return
    with _unmounted_after(folder):
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
