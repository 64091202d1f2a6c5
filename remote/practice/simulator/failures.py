"""How the real server fails at start, with its own words."""

from __future__ import annotations

from .models import tensor_shapes
from .rank import Server, Voice
from .tracebacks import FORWARD_FRAMES, SCHEDULER_FRAMES, Frame, SimulatedError
from .wired import Mode

_RUNNER = "sglang/srt/model_executor/model_runner.py"
_LOAD_FRAMES: tuple[Frame, ...] = (
    *SCHEDULER_FRAMES,
    (_RUNNER, "initialize", "self.load_model()"),
    (_RUNNER, "load_model", "self.model = self.loader.load_model("),
)


def out_of_memory(rank: int, stage: str, avail_gb: float) -> SimulatedError:
    text = (
        f"CUDA out of memory. Tried to allocate 448.00 MiB. GPU {rank} has a total capacity of 94.97 GiB "
        f"of which {avail_gb * 0.01 + 210:.2f} MiB is free. Including non-PyTorch memory, this process has 94.70 GiB memory in use."
    )
    if stage != "graph-capture":
        return SimulatedError(_LOAD_FRAMES, f"torch.OutOfMemoryError: {text}")
    runner = "sglang/srt/model_executor/cuda_graph_runner.py"
    advice = (
        "Possible solutions:\n"
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
        "3. disable torch compile by not using --enable-torch-compile\n"
        "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
        "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
    )
    frames = (
        *SCHEDULER_FRAMES,
        (_RUNNER, "initialize", "self.init_device_graphs()"),
        (runner, "__init__", "raise Exception("),
    )
    return SimulatedError(frames, f"Exception: Capture cuda graph failed: {text}\n{advice}")


def nccl() -> SimulatedError:
    frames = (*SCHEDULER_FRAMES, (_RUNNER, "init_torch_distributed", "init_distributed_environment("))
    return SimulatedError(
        frames, "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    )


def no_weights(path: str) -> SimulatedError:
    frames = (*_LOAD_FRAMES, ("sglang/srt/model_loader/loader.py", "_prepare_weights", "raise RuntimeError("))
    return SimulatedError(frames, f"RuntimeError: Cannot find any model weights with `{path}`")


def imported_architecture(server: Server, voice: Voice) -> str:
    """The class that the registry gives for the target, after the lines about model files that do not import."""
    del voice
    return server.target.architecture


def check_hooks(server: Server, architecture: str) -> None:
    """Has the target's class what EAGLE-3 needs?"""
    del server, architecture


def check_setting(server: Server) -> None:
    """Would set_eagle3_layers_to_capture raise with this configuration?"""
    del server


def check_draft(server: Server) -> None:
    """Is the draft something that the draft worker can load?"""
    del server


def check_draft_weights(server: Server) -> None:
    """Do the draft's tensors fit its configuration?"""
    draft = server.draft
    if draft is None:
        return
    rows = tensor_shapes(draft.path).get("lm_head.weight", [0])[0]
    expected = draft.config.get("draft_vocab_size") or draft.vocab_size
    if rows and rows != expected:
        frames = (
            *_LOAD_FRAMES,
            (
                "sglang/srt/layers/vocab_parallel_embedding.py",
                "weight_loader",
                "assert loaded_weight.shape[output_dim]",
            ),
        )
        raise SimulatedError(frames, "AssertionError")


def check_forward(server: Server, mode: Mode, tokens: int) -> None:
    """Would this forward pass crash: in the capture itself, or where the draft's `fc` takes what was captured?"""
    if not server.eagle3 or server.draft is None:
        return
    worker = "sglang/srt/speculative/eagle_worker.py"
    if mode.error:
        frames = (
            *FORWARD_FRAMES,
            (
                worker,
                "forward_batch_generation",
                "logits_output, next_token_ids, seq_lens_cpu = self.forward_target_extend(",
            ),
        )
        raise SimulatedError(frames, mode.error)
    if mode.layers is None:
        return
    width = len(mode.layers) * server.target.hidden_size
    if width != server.draft_fc_width:
        frames = (
            *FORWARD_FRAMES,
            (worker, "forward_batch_generation", "self.forward_draft_extend("),
            ("sglang/srt/models/llama_eagle3.py", "forward", "hidden_states = self.fc(hidden_states)"),
        )
        shapes = f"({tokens}x{width} and {server.draft_fc_width}x{server.target.hidden_size})"
        raise SimulatedError(frames, f"RuntimeError: mat1 and mat2 shapes cannot be multiplied {shapes}")
