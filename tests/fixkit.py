"""The shipped fix bundles held against the released files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from remote.bundles import Bundle
from remote.fixes import FixState, evaluate, list_bundles, targets

from .wheels import record_sha256, wheel_source

DEEPSEEK = "sglang/srt/models/deepseek_v2.py"
GRAPHS = "sglang/srt/model_executor/cuda_graph_runner.py"
RUNNER = "sglang/srt/model_executor/model_runner.py"
KIMI = "sglang/srt/models/kimi_k25.py"

# Every release that the shipped bundles cover; what distinguishes them is in their bundle.yaml.
VERSIONS = (
    *("0.5.5", "0.5.5.post1", "0.5.5.post2", "0.5.5.post3", "0.5.6", "0.5.6.post1", "0.5.6.post2", "0.5.7"),
    *("0.5.8", "0.5.8.post1", "0.5.9", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1"),
)
BUNDLES = {bundle.name: bundle for bundle in list_bundles()}
FULL = BUNDLES["eagle3-embedding-capture"]
THREE = BUNDLES["eagle3-three-edits"]
PAIRS = [(name, version) for name in BUNDLES for version in VERSIONS if BUNDLES[name].is_covered(version)]


def released(bundle: Bundle, version: str) -> dict[str, bytes | None]:
    return {path: wheel_source(version, path) for path in targets(bundle, version)}


def held(
    bundle: Bundle, version: str, sources: Mapping[str, bytes | None] | None = None, *, recorded: bool = True
) -> FixState:
    """The bundle against `sources`, or the released files where none are given."""
    files = {**released(bundle, version), **(sources or {})}
    record = {path: record_sha256(version, path) if recorded else None for path in files}
    return evaluate(bundle, version, files, record)


@cache
def on_released(name: str, version: str) -> FixState:
    """A shipped bundle against the released files; remembered, many tests start from it."""
    return held(BUNDLES[name], version)


def fixed(bundle: Bundle, version: str) -> dict[str, bytes | None]:
    """The files with the whole fix in them."""
    return {file.path: file.new_text for file in on_released(bundle.name, version).files}


def text(content: bytes | None) -> str:
    assert content is not None
    return content.decode()


def local(sources: Mapping[str, bytes | None], path: str, old: str, new: str) -> dict[str, bytes | None]:
    """The files after somebody changed `old` to `new` in one of them."""
    assert text(sources[path]).count(old) >= 1
    return {**sources, path: text(sources[path]).replace(old, new, 1).encode()}
