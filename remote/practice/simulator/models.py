"""Target and draft model directories: configuration, shards, and the draft's width."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model directory as the server sees it. `hidden_size` and the like are the language model's."""

    path: str
    config: dict[str, Any]
    architecture: str
    num_layers: int
    first_k_dense_replace: int
    hidden_size: int
    vocab_size: int
    context_length: int
    shards: tuple[str, ...]


def read_model(path: str) -> Model:
    """Read `path`/config.json. Raises OSError or ValueError as the configuration is missing or damaged."""
    config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config") or config
    architectures = config.get("architectures") or ["?"]
    return Model(
        path=path,
        config=config,
        architecture=architectures[0],
        num_layers=int(text.get("num_hidden_layers", 1)),
        first_k_dense_replace=int(text.get("first_k_dense_replace", 0)),
        hidden_size=int(text.get("hidden_size", 1)),
        vocab_size=int(text.get("vocab_size", 32000)),
        context_length=int(text.get("max_position_embeddings", 2048)),
        shards=tuple(sorted(item.name for item in Path(path).glob("*.safetensors"))),
    )


def tensor_shapes(path: str) -> dict[str, list[int]]:
    """Names and shapes from the headers of `path`'s safetensors files; those without give nothing."""
    shapes: dict[str, list[int]] = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        with file.open("rb") as stream:
            head = stream.read(8)
            if len(head) < 8:
                continue
            size = struct.unpack("<Q", head)[0]
            if size > 100_000_000:
                continue
            try:
                header = json.loads(stream.read(size))
            except ValueError:
                continue
        shapes |= {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
    return shapes
