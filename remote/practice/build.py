"""Put the practice node's files in place: interpreter environment, SGLang, models, GPUs, simulator."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import py_compile
import shlex
import shutil
import sys
import uuid
import venv
import zipfile
from pathlib import Path

from remote.errors import RefusedError
from remote.practice import models, nvidia_smi, wheels
from remote.practice.layout import PROJECT, Layout

GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell (simulated)"
GPU_TOTAL_MIB = 97887
GPU_IDLE_MIB = 4
DRIVER = "580.00.00"

DEEPSEEK = "sglang/srt/models/deepseek_v2.py"
KIMI = "sglang/srt/models/kimi_k25.py"
GRAPH_RUNNER = "sglang/srt/model_executor/cuda_graph_runner.py"
MODEL_RUNNER = "sglang/srt/model_executor/model_runner.py"
FIXED = (DEEPSEEK, KIMI, GRAPH_RUNNER, MODEL_RUNNER)  # what fixes touch

# kimi_k25.py exists from 0.5.9 on, but has the hook only from 0.5.10 on: before that no server with an
# EAGLE-3 draft starts on the wrapper, so that no node can be in the incident's state with it.
_HOOK = b"def set_eagle3_layers_to_capture"


def build(layout: Layout, whl: Path, *, gpus: int) -> None:
    """Everything below `layout.root`, which exists and is empty. Raises WheelDamaged, RefusedError."""
    make_interpreter(layout)
    unpack(whl, layout.site_packages)
    finish_install(layout.site_packages, whl, layout.pristine)
    wrapped = _HOOK in _read(layout.site_packages / KIMI)
    models.write_models(layout.target, layout.draft, wrapped=wrapped)
    make_gpus(layout, gpus)
    copy_simulator(layout)
    layout.log.parent.mkdir()


def make_interpreter(layout: Layout) -> None:
    """An environment of the interpreter that runs this: no pip, but setproctitle as a GPU node has it."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(layout.environment)
    for entry in importlib.metadata.files("setproctitle") or ():
        source = Path(str(entry.locate()))
        if ".." not in entry.parts and source.suffix != ".pyc":
            copy = layout.site_packages / entry
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


def unpack(whl: Path, site_packages: Path) -> None:
    """All files of the wheel, each checked against RECORD on the way, with the time of now, as pip does."""
    hashes = wheels.record(whl)
    made: set[Path] = set()
    with zipfile.ZipFile(whl) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            content = archive.read(info)
            expected = hashes.get(info.filename)
            if expected is not None and hashlib.sha256(content).hexdigest() != expected:
                raise wheels.WheelDamaged(f"{info.filename} in {whl.name} is not what its RECORD says")
            path = site_packages / info.filename
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(content)


def finish_install(site_packages: Path, whl: Path, pristine: Path) -> None:
    """What pip does after unpacking: INSTALLER, bytecode of what fixes touch, both in RECORD.

    What fixes touch is kept in `pristine` as well.
    """
    dist_info = next(site_packages.glob("sglang-*.dist-info"))
    installer = dist_info / "INSTALLER"
    installer.write_bytes(b"pip\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"pip\n").digest()).decode().rstrip("=")
    rows = [f"{dist_info.name}/INSTALLER,sha256={digest},4"]
    for name in FIXED:
        source = site_packages / name
        if source.exists():
            kept = pristine / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, kept)
            rows.append(f"{compile_module(source).relative_to(site_packages)},,")
    with dist_info.joinpath("RECORD").open("a", encoding="utf-8") as record:
        record.write("".join(f"{row}\n" for row in rows))
    if not site_packages.joinpath(DEEPSEEK).exists():
        raise RefusedError(f"{whl.name} holds no {DEEPSEEK}: this version cannot be practised on")


def bytecode_path(source: Path) -> Path:
    """Where the node's interpreter looks for the bytecode of a module (PEP 3147)."""
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def compile_module(
    source: Path, mode: py_compile.PycInvalidationMode = py_compile.PycInvalidationMode.TIMESTAMP
) -> Path:
    """Write the module's bytecode beside it, whatever PYTHONPYCACHEPREFIX this process has."""
    cached = bytecode_path(source)
    py_compile.compile(str(source), cfile=str(cached), doraise=True, invalidation_mode=mode)
    return cached


def make_gpus(layout: Layout, count: int) -> None:
    """`count` idle GPUs, and an nvidia-smi that answers for them."""
    layout.holders.mkdir(parents=True)
    layout.gpu_faults.mkdir()
    gpus = [
        {
            "index": index,
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'fixops-practice-gpu-{index}')}",
            "name": GPU_NAME,
            "bus_id": f"00000000:{0x11 + 0x10 * index:02X}:00.0",
            "total_mib": GPU_TOTAL_MIB,
            "idle_mib": GPU_IDLE_MIB,
        }
        for index in range(count)
    ]
    stored = {"driver_version": DRIVER, "gpus": gpus}
    layout.gpus_json.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(str(nvidia_smi.__file__), layout.nvidia_smi_script)
    layout.bin.mkdir()
    # Not a #! line to the interpreter: the kernel cuts those at 127 or 255 bytes, and paths can be longer.
    command = [str(layout.python), "-I", "-S", str(layout.nvidia_smi_script), str(layout.gpus)]
    layout.nvidia_smi.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    layout.nvidia_smi.chmod(0o755)


def copy_simulator(layout: Layout) -> None:
    """The simulated server and the wiring that it computes with, as plain files of the node."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "remote" / "practice" / "simulator", layout.simulator, ignore=ignore)
    shutil.copytree(PROJECT / "remote" / "wiring", layout.wiring, ignore=ignore)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
