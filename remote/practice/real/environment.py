"""What SGLang imports on a real practice node: installed once, kept in the toolkit's cache.

In layers, so that two versions of SGLang share what they can: PyTorch, what is common, and what belongs to
one version. SGLang itself is no part of it: each node has its own, from the wheel, to deploy fixes to.
All versions are pinned (requirements/*.txt): they were seen to work together, without a GPU.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from remote import cache
from remote.errors import RefusedError, UsageError
from remote.practice.real.interpreter import Interpreter, find

REQUIREMENTS = Path(__file__).with_name("requirements")
VERSIONS = ("0.5.9", "0.5.23")
# Of the layers together, as seen (MiB), and what must be free: pip unpacks beside before it moves.
DISK_MIB = {"0.5.9": 2000, "0.5.23": 2200}
SPARE_MIB = 800
MEMORY_MIB = 2048
SAY_EVERY_S = 5.0
_MARK = "fixops-layer.json"
# torchvision's compiled part does not load beside a PyTorch of another build (operator torchvision::nms does
# not exist); what its import needs is the declaration.
_DECLARATION = """import torch as _torch

_declared = _torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    _declared.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

Say = Callable[[str], None]


class EnvironmentUnavailable(RefusedError):
    """The packages could not be installed."""

    code = "real-environment-unavailable"


@dataclass(frozen=True)
class Environment:
    """The interpreter, and the directories that belong on its search path, first one first."""

    python: Path
    layers: tuple[Path, ...]


@dataclass(frozen=True)
class _Layer:
    name: str
    requirements: Path
    dependencies: bool  # whether pip brings what these packages ask for

    @property
    def packages(self) -> list[str]:
        return self.requirements.read_text(encoding="utf-8").split()

    def directory(self) -> Path:
        """Named by what is in it: other pins are another layer."""
        digest = hashlib.sha256(self.requirements.read_bytes()).hexdigest()[:12]
        return directory() / f"{self.name}-cp311-{digest}"


def directory() -> Path:
    """`real` in the toolkit's cache (FIXOPS_CACHE, XDG_CACHE_HOME/fixops)."""
    # Absolute: nodes find the packages by it, wherever they are started.
    return (cache.directory() / "real").resolve()


def needs(version: str) -> str:
    """What a user should know before it is built."""
    return (
        f"SGLang {version} for real needs Python 3.11, {MEMORY_MIB} MB of memory,"
        f" {DISK_MIB[version]} MB of disk"
        " (several GB where pip finds only PyTorch's CUDA build: docs/practice-real.md), and the first time"
        " about two minutes"
    )


def supported(version: str) -> None:
    """UsageError for a version that no set of packages is known for."""
    if version not in VERSIONS:
        raise UsageError(
            f"SGLang {version} is not one that runs without a GPU here",
            hint=f"with --real: --sglang {' or '.join(VERSIONS)}",
        )


def ready(version: str) -> bool:
    """Whether everything is in the cache, and was seen to work together."""
    return _seen_working(_layers(version)).exists()


def build(version: str, say: Say = lambda _: None) -> Environment:
    """The environment for this version of SGLang, installed first where it is not in the cache.

    Raises what `may_build` does, and EnvironmentUnavailable (no network, pip).
    """
    interpreter = may_build(version)
    layers = _layers(version)
    if not ready(version):
        say(needs(version))
        directory().mkdir(parents=True, exist_ok=True)
        with _alone(say):
            for number, layer in enumerate(layers, 1):
                if not _is_complete(layer):
                    _install(layer, interpreter, say, f"layer {number} of {len(layers)}, {layer.name}")
            _mend_torchvision(interpreter, layers)
            _seen_working(layers).touch()
    # What belongs to one version comes first.
    return Environment(interpreter.path, tuple(layer.directory() for layer in reversed(layers)))


def may_build(version: str) -> Interpreter:
    """The interpreter that `build` would take. Installs nothing.

    Raises UsageError (no such version), NoInterpreter, EnvironmentUnavailable (no disk).
    """
    supported(version)
    interpreter = find()
    if not ready(version):
        _check_disk(version)
    return interpreter


def _layers(version: str) -> list[_Layer]:
    return [
        _Layer("torch", REQUIREMENTS / "torch.txt", True),
        _Layer("common", REQUIREMENTS / "common.txt", False),
        _Layer(f"sglang-{version}", REQUIREMENTS / f"{version}.txt", False),
    ]


def _seen_working(layers: Sequence[_Layer]) -> Path:
    """The file that says so, beside the last layer and named after all of them."""
    names = "\n".join(layer.directory().name for layer in layers)
    return directory() / f"{layers[-1].name}-{hashlib.sha256(names.encode()).hexdigest()[:12]}.works"


def _is_complete(layer: _Layer) -> bool:
    return layer.directory().joinpath(_MARK).exists()


def _check_disk(version: str) -> None:
    folder = directory()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free // 2**20
    missing = sum(not _is_complete(layer) for layer in _layers(version))
    wanted = (DISK_MIB[version] * missing) // 3 + SPARE_MIB
    if free < wanted:
        raise EnvironmentUnavailable(
            f"a real practice node needs {wanted} MB in {folder}, and {free} MB are free",
            hint="make room, or name another place in FIXOPS_CACHE",
        )


@contextmanager
def _alone(say: Say) -> Iterator[None]:
    """One build at a time; whoever comes second waits and finds it done."""
    with directory().joinpath(".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting: another command is installing")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(layer: _Layer, interpreter: Interpreter, say: Say, what: str) -> None:
    folder = layer.directory()
    shutil.rmtree(folder, ignore_errors=True)
    beside = folder.with_name(f".{folder.name}")
    shutil.rmtree(beside, ignore_errors=True)
    # No bytecode yet: a server that starts writes what it needs, and thousands of files are never imported.
    options = ["--no-input", "--no-compile", "--disable-pip-version-check", "--progress-bar", "off"]
    options += [] if layer.dependencies else ["--no-deps"]
    argv = [*interpreter.pip, "install", *options, "--target", str(beside), "-r", str(layer.requirements)]
    begin = time.monotonic()
    _run_pip(argv, layer, lambda text: say(f"installing {what}: {text}"))
    beside.rename(folder)
    took = {"packages": layer.packages, "took_s": round(time.monotonic() - begin, 1)}
    folder.joinpath(_MARK).write_text(json.dumps(took, indent=2) + "\n", encoding="utf-8")


def _run_pip(argv: Sequence[str], layer: _Layer, tell: Say) -> None:
    """Run pip, telling how far it is every few seconds."""
    begin = told = time.monotonic()
    seen, lines = 0, []
    tell(f"{len(layer.packages)} packages")
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line.rstrip())
            seen += line.startswith("Collecting ")
            now = time.monotonic()
            if line.startswith("Installing collected"):
                tell(f"unpacking, {now - begin:.0f} s")
                told = float("inf")
            elif now - told > SAY_EVERY_S:
                told = now
                tell(f"{seen} packages found, {now - begin:.0f} s")
    if pip.returncode != 0:
        raise _explain(layer, lines)


def _explain(layer: _Layer, lines: Sequence[str]) -> EnvironmentUnavailable:
    text = "\n".join(lines)
    hint = "check the network, then run the command again: what is complete is kept"
    last = next(
        (line for line in reversed(lines) if line.startswith("ERROR")), (lines or ["pip printed nothing"])[-1]
    )
    if "No module named pip" in text:
        hint = "install pip for the Python that runs this, or for the Python 3.11"
    elif "No space left on device" in text:
        hint = "make room, or name another place in FIXOPS_CACHE"
    return EnvironmentUnavailable(f"the packages of {layer.name} cannot be installed: {last}", hint=hint)


def _mend_torchvision(interpreter: Interpreter, layers: Sequence[_Layer]) -> None:
    """See that the packages fit together; declare torchvision's operators where its compiled part is deaf."""
    paths = [str(layer.directory()) for layer in layers]
    failed = _try_import(interpreter, paths)
    if "torchvision::nms" in failed:
        source = layers[1].directory() / "torchvision" / "__init__.py"
        source.write_text(_DECLARATION + source.read_text(encoding="utf-8"), encoding="utf-8")
        failed = _try_import(interpreter, paths)
    if failed:
        raise EnvironmentUnavailable(
            f"the installed packages do not work together: {failed.splitlines()[-1]}",
            hint=f"remove {directory()} and run the command again",
        )


def _try_import(interpreter: Interpreter, paths: Sequence[str]) -> str:
    """What Python says when the packages are imported, nothing when all is well."""
    code = f"import sys; sys.path[:0] = {list(paths)!r}; import torch, torchvision, triton, transformers"
    done = subprocess.run(
        [str(interpreter.path), "-I", "-c", code],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr.strip()
