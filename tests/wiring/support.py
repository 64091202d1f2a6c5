"""Installed source for the wiring tests: from the published wheels, as released, patched, or edited."""

from __future__ import annotations

from functools import lru_cache

from remote import wiring
from remote.fixes import evaluate, find_bundle, targets
from remote.wiring import scenario  # noqa: F401  (registers the interpreter's handlers)
from remote.wiring.calls import call
from remote.wiring.machine import Run
from remote.wiring.modules import Modules
from remote.wiring.values import Function, SourceError, Unfollowed
from tests.wheels import wheel_source

V3 = "DeepseekV3ForCausalLM"
K25 = "KimiK25ForConditionalGeneration"
MODEL = "sglang/srt/models/deepseek_v2.py"
GRAPH_RUNNER = "sglang/srt/model_executor/cuda_graph_runner.py"
MODEL_RUNNER = "sglang/srt/model_executor/model_runner.py"
CONTRACT = ["embed", "in:3", "in:31"]
IDS = [-1, 2, 30]


@lru_cache(maxsize=64)
def _pristine(version: str, architecture: str) -> tuple[tuple[str, str], ...]:
    found = []
    for path in wiring.needed_files(version, architecture):
        try:
            found.append((path, wheel_source(version, path).decode()))
        except KeyError:
            continue
    return tuple(found)


def pristine(version: str, architecture: str = V3) -> dict[str, str]:
    """The files that `needed_files` names, as released."""
    return dict(_pristine(version, architecture))


def patched(version: str, bundle_name: str, architecture: str = V3) -> dict[str, str]:
    """The same with a bundle of templates/fixes applied."""
    sources = pristine(version, architecture)
    bundle = find_bundle(bundle_name)
    wanted = targets(bundle, version)
    originals: dict[str, bytes | None] = {path: wheel_source(version, path) for path in wanted}
    for state in evaluate(bundle, version, originals, {}).files:
        if state.new_text is not None and state.path in sources:
            sources[state.path] = state.new_text.decode()
    return sources


def edited(sources: dict[str, str], path: str, old: str, new: str) -> dict[str, str]:
    """`sources` with one text replaced, which must be there exactly once."""
    assert sources[path].count(old) == 1, f"{sources[path].count(old)} times in {path}: {old}"
    return {**sources, path: sources[path].replace(old, new)}


def draft(ids: list[int] | None) -> dict[str, object]:
    """The draft's config.json, as far as the wiring reads it."""
    if ids is None:
        return {}
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True}}


def compute(
    sources: dict[str, str],
    version: str,
    ids: list[int] | None,
    *,
    architecture: str = V3,
    layers: int = 61,
    server_args: dict[str, object] | None = None,
    logged: list[tuple[str, str]] | None = None,
) -> wiring.Wiring:
    """`wiring.compute` with the tests' defaults."""
    return wiring.compute(
        sources,
        version=version,
        architecture=architecture,
        num_layers=layers,
        first_k_dense_replace=1,
        draft_config=draft(ids),
        server_args=server_args,
        log=None if logged is None else lambda level, message: logged.append((level, message)),
    )


def told(result: wiring.ModeResult) -> str:
    """One mode in one word or list, for tables."""
    if result.error is not None:
        return f"crash: {result.error}"
    if result.unknown is not None:
        return f"unknown: {result.unknown}"
    return ", ".join(result.layers or ())


def run_here(source: str, name: str, *args: object) -> object:
    """The result of a function of the source, by the interpreter; kind and text of what it raises."""
    run = Run(Modules({"m.py": source}))
    module = run.modules.get("m.py")
    assert module is not None
    function = module.lookup(run, name)
    assert isinstance(function, Function)
    try:
        return call(run, function, list(args), {})
    except SourceError as error:
        return f"{error.kind}: {error.message}"
    except Unfollowed as error:
        return f"unfollowed: {error}"
