"""What a model directory holds: its files, and the shapes of its tensors from the safetensors headers.

A header is an 8-byte little-endian length and that much JSON at the file's start
(https://github.com/huggingface/safetensors, "Format"): no weight is read.
"""

# No pathlib on the node: importing it costs milliseconds of its CPU.
# ruff: noqa: PTH112, PTH116, PTH118, PTH123, PTH208

from __future__ import annotations

import json
import os

from .base import OpError
from .files import changed_ns, resolve
from .fsio import absolute, op_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Context

# The format's own limit is 100 MB; a draft's header has a few kB.
HEADER_LIMIT = 8 * 1024 * 1024


def weights(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """{directory} -> {exists, files: {name: bytes}, ctimes_ns: {name: ns}, shapes: {tensor: [int]}|null,
    shards: [name], problem}.

    `ctimes_ns`: when each file changed, or a link on the way to it, as files.describe() has it: a copy keeps
    the old modification time, and a snapshot of the Hugging Face hub may be led to another blob.
    `shapes` of all *.safetensors files together; null, with `problem`, where one header cannot be read
    or there is no such file. `shards`: the files that the index names, if there is one.
    """
    directory = absolute(params["directory"])
    if not os.path.isdir(directory):
        nothing: dict[str, Any] = {"files": {}, "ctimes_ns": {}, "shapes": None, "shards": []}
        return {"exists": False, **nothing, "problem": "no such directory"}
    files: dict[str, int] = {}
    ctimes_ns: dict[str, int] = {}
    try:
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            info = os.stat(path)
            files[name], ctimes_ns[name] = info.st_size, changed_ns(info, resolve(path)[1])
    except OSError as error:
        raise op_error(error, error.filename or directory) from None
    shapes: dict[str, Any] | None = None
    problem = None
    for name in files:
        if not name.endswith(".safetensors"):
            continue
        try:
            shapes = {**(shapes or {}), **_shapes(os.path.join(directory, name))}
        except (OSError, ValueError) as error:
            shapes, problem = None, f"{name}: {error}"
            break
    return {
        "exists": True,
        "files": files,
        "ctimes_ns": ctimes_ns,
        "shapes": shapes,
        "shards": _shards(directory, files),
        "problem": problem,
    }


def _shapes(path: str) -> dict[str, Any]:
    """Shape by tensor name. ValueError for what is no safetensors file."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= HEADER_LIMIT:
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")  # noqa: TRY004 - the file is at fault
    return {
        name: entry["shape"]
        for name, entry in header.items()
        if name != "__metadata__" and isinstance(entry, dict) and "shape" in entry
    }


def _shards(directory: str, files: dict[str, int]) -> list[str]:
    index = "model.safetensors.index.json"
    if index not in files:
        return []
    try:
        with open(os.path.join(directory, index), "rb") as file:
            return sorted(set(json.load(file)["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise OpError("unsupported", f"{index}: {error}") from None


OPS = {"facts.weights": weights}
