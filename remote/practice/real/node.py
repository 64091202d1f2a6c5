"""Put a real practice node's files in place, and say how its server is started."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from remote.errors import RefusedError
from remote.inventory import ServerEntry, arguments
from remote.practice import build, spawn
from remote.practice.layout import PROJECT, Layout
from remote.practice.real.entry import server_entry, target
from remote.practice.real.environment import Environment, Say
from remote.practice.server import environment as login_environment

SHIM = PROJECT / "remote" / "practice" / "real" / "shim"
# The incident in small: the draft was trained with [embed, in:2, in:4], and gets in:2, in:4, in:5.
WRONG_LAYER_IDS = "[1, 3, 4]"


def server_spec(layout: Layout, *, port: int, version: str) -> spawn.Spec:
    """The server as somebody starts it by hand, before anything was deployed."""
    entry = ServerEntry.model_validate(server_entry(layout, port=port, version=version))
    return spawn.Spec(
        argv=[str(layout.python), "-m", "sglang.launch_server", *arguments(entry)],
        env={**login_environment(layout), **entry.env},
        cwd=str(layout.root),
        log=str(layout.log),
    )


def make(layout: Layout, whl: Path, environment: Environment, say: Say) -> None:
    """Everything below `layout.root`, which exists and is empty. Raises WheelDamaged, RefusedError."""
    _run([str(environment.python), "-m", "venv", "--without-pip", str(layout.environment)], "the environment")
    say(f"unpacking {whl.name}")
    build.unpack(whl, layout.site_packages)
    build.finish_install(layout.site_packages, whl, layout.pristine)
    _join(layout.site_packages, environment.layers)
    say("making the models")
    script = str(SHIM / "make_models.py")
    _run(
        [str(layout.python), "-B", script, str(target(layout)), str(layout.draft), WRONG_LAYER_IDS],
        "the models",
    )
    layout.log.parent.mkdir()
    layout.bin.mkdir()


def _join(site_packages: Path, layers: Sequence[Path]) -> None:
    """Let the node's Python find the shared packages, and the stand-in for SGLang's compiled kernels."""
    site_packages.joinpath("fixops_layers.pth").write_text("".join(f"{path}\n" for path in layers))
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SHIM / "sgl_kernel", site_packages / "sgl_kernel", ignore=ignore)
    for name in ("fixops_cpu.py", "datasets.py"):
        shutil.copyfile(SHIM / name, site_packages / name)
    # An installed plug-in is known by its metadata (entry points: packaging.python.org).
    about = site_packages / "fixops_cpu-0.1.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: fixops-cpu\nVersion: 0.1\n")
    about.joinpath("entry_points.txt").write_text("[sglang.srt.plugins]\nfixops_cpu = fixops_cpu:activate\n")
    # Of the node's own, so that its processes are known by it although their titles cover their environment.
    for layer in layers:
        for part in layer.glob("setproctitle*"):
            shutil.copytree(part, site_packages / part.name, ignore=ignore)


def _run(argv: Sequence[str], what: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise RefusedError(
            f"{what} of the practice node cannot be made: {last}", hint="inv practice.up --real"
        )
