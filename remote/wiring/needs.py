"""Which installed files the wiring is read from."""

from __future__ import annotations

_SRT = "sglang/srt/"
TARGETS: dict[str, str] = {
    "DeepseekV2ForCausalLM": "models/deepseek_v2.py",
    "DeepseekV3ForCausalLM": "models/deepseek_v2.py",
    "DeepseekV32ForCausalLM": "models/deepseek_v2.py",
    "KimiK25ForConditionalGeneration": "models/kimi_k25.py",
    "KimiVLForConditionalGeneration": "models/kimi_vl.py",
}
_WRAPPERS = ("models/kimi_k25.py", "models/kimi_vl.py")
# From which version on a file exists; all exist up to 0.5.23 unless an end is given.
_RUNNER: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("model_executor/model_runner.py", (0, 0, 0), (99,)),
    ("model_executor/cuda_graph_runner.py", (0, 0, 0), (0, 5, 13)),
    ("model_executor/runner/decode_cuda_graph_runner.py", (0, 5, 14), (99,)),
    ("model_executor/model_runner_components/attention_backend_setup.py", (0, 5, 16), (99,)),
    ("model_executor/model_runner_components/spec_aux_hidden_state.py", (0, 5, 16), (99,)),
    ("model_executor/model_runner_components/cuda_graph_setup.py", (0, 5, 16), (99,)),
)
_LAYERS: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("layers/communicator.py", (0, 5, 14), (0, 5, 20)),
    ("layers/aux_hidden_states.py", (0, 5, 17), (99,)),
    ("layers/layer_boundary/stage.py", (0, 5, 21), (99,)),
    ("models/llama_eagle3.py", (0, 0, 0), (99,)),
)
SLICED = frozenset(f"{_SRT}{path}" for path, _, _ in _RUNNER)
DRAFT_FILE = f"{_SRT}models/llama_eagle3.py"
MODEL_RUNNER = f"{_SRT}model_executor/model_runner.py"


def release(version: str) -> tuple[int, ...]:
    """The release numbers of a version, without post, local and development parts."""
    numbers = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def needed_files(version: str | None, architecture: str) -> list[str]:
    """Paths to fetch (`sglang/srt/...`) for `compute`. Without a version: all that any version has, so that
    some of them may not exist. For an unknown architecture the executor's files only."""
    target = TARGETS.get(architecture)
    paths = [] if target is None else [target]
    if target in _WRAPPERS:
        paths += ["models/deepseek_v2.py", "managers/mm_utils.py"]
    number = None if version is None else release(version)
    for path, first, last in (*_RUNNER, *_LAYERS):
        if number is None or first <= number <= (*last, 99) or not number:
            paths.append(path)
    return [f"{_SRT}{path}" for path in paths]
