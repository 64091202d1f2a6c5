"""Which interpreter a process runs in, found as Python itself finds its sys.executable and its environment.

CPython, Modules/getpath.py: a program without a slash is looked up on PATH; an environment is where
pyvenv.cfg lies beside the program or one folder above it, links not followed. The executable that the kernel
knows cannot tell: it is the same base interpreter for every environment whose `python` is a link to it.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH113, PTH117, PTH118, PTH120

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def of(argv: list[str], cwd: str | None, search_path: str | None) -> dict[str, Any] | None:
    """{program: path, environment: real path|null, file: real path}; None where it cannot be told.

    `cwd` and `search_path` (PATH) are the process's. Two processes have the same interpreter when
    environment and file are the same; in an environment of copies (`venv --copies`) each name is another
    file. A program given by its whole path is told even if it is gone.
    """
    named = argv[0] if argv else ""
    if os.path.isabs(named):
        program = named
    else:
        folders = [""] if "/" in named else (search_path or "").split(os.pathsep)
        places = [os.path.join(cwd or "/", folder, named) for folder in folders] if named else []
        found = [place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)]
        if not found:
            return None
        program = found[0]
    folder = os.path.dirname(program)
    environment = next(
        (
            os.path.realpath(each)
            for each in (folder, os.path.dirname(folder))
            if os.path.isfile(os.path.join(each, "pyvenv.cfg"))
        ),
        None,
    )
    return {"program": program, "environment": environment, "file": os.path.realpath(program)}
