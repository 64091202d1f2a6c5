"""Start simulated servers on the practice node as the incident's engineers did: nohup, one log file."""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from remote.errors import UnhealthyError
from remote.inventory import ServerEntry, arguments
from remote.practice.layout import MARKER, Layout
from remote.practice.nvidia_smi import sweep
from remote.practice.processes import Known, alive, known
from remote.practice.record import server_entry
from remote.practice.spawn import Spec, detached

READY = b"The server is fired up and ready to roll!"
# The settings of the two servers that are there before anything was deployed. They come up as fast as they
# can, because somebody waits for the node; later ones take their time, as the node's own settings say.
FIRST_SPEED = 0.05
SETTINGS = "FIXOPS_SIMULATOR_SETTINGS"
# What an earlier server's ranks still hold: with a whole server beside them a GPU's memory is nearly full.
ORPHAN_MIB = 7000
ORPHANS = 4


@dataclass(frozen=True)
class Started:
    """A launcher and the place in its log from which on its own lines come (bytes)."""

    process: Known
    log: Path
    offset: int


def environment(layout: Layout) -> dict[str, str]:
    """What a process on the practice node sees, as after a login; nothing of this command's own."""
    user = pwd.getpwuid(os.getuid())
    return {
        "PATH": f"{layout.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "LANG": "C.UTF-8",
        MARKER: str(layout.root),
    }


def quick(layout: Layout, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server that is to come up as fast as it can, because somebody waits for it."""
    return {**env, SETTINGS: str(layout.first_settings)}


def write_settings(layout: Layout, path: Path, settings: Mapping[str, object]) -> None:
    """The simulated server's settings file; see remote/practice/simulator/settings.py."""
    content = {"gpus_dir": str(layout.holders), "source_texts": [str(layout.pristine)], **settings}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def server_spec(layout: Layout, *, port: int, gpus: int, settings: Path | None = None) -> Spec:
    """The node's server; `settings` in place of the node's simulator.json."""
    entry = ServerEntry.model_validate(server_entry(layout, port=port, gpus=gpus))
    return _spec(layout, [*(entry.command or ()), *arguments(entry)], layout.log, settings)


def orphans_spec(layout: Layout, *, port: int, gpus: int, settings: Path) -> Spec:
    """An earlier server that dies and leaves its ranks behind."""
    base = server_spec(layout, port=port, gpus=min(gpus, ORPHANS))
    return _spec(layout, [*base.argv, "--simulate-orphans"], layout.orphans_log, settings)


def start(layout: Layout, spec: Spec) -> Started:
    """Start a server. UnhealthyError with the end of its log if it is gone already."""
    log = Path(spec.log)
    offset = log.stat().st_size if log.exists() else 0
    sweep(layout.gpus)
    process = known(detached([spec])[0])
    if process is None:
        raise failure("the server ended at once", log, offset)
    return Started(process, log, offset)


def wait_ready(
    server: Started,
    *,
    timeout_s: float,
    every_s: float = 0.01,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Until the server's own ready line is in its log. UnhealthyError with the end of the log otherwise."""
    deadline = time.monotonic() + timeout_s
    while READY not in since(server.log, server.offset):
        if not alive(server.process):
            raise failure("the server ended while starting", server.log, server.offset)
        if time.monotonic() > deadline:
            raise failure(f"the server was not ready after {timeout_s:.0f} s", server.log, server.offset)
        wait(every_s)


def since(log: Path, offset: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read()
    except OSError:
        return b""


def failure(what: str, log: Path, offset: int) -> UnhealthyError:
    lines = since(log, offset).decode("utf-8", "replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
    return UnhealthyError(f"{what}: {last}", hint=f"see {log}")


def _spec(layout: Layout, argv: list[str], log: Path, settings: Path | None) -> Spec:
    env = environment(layout)
    if settings is not None:
        env[SETTINGS] = str(settings)
    return Spec(argv=argv, env=env, cwd=str(layout.root), log=str(log))
