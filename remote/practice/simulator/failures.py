"""How the real server fails while it starts on its GPUs and at a forward pass, with its own words."""

from __future__ import annotations

from .models import Model, tensor_shapes
from .rank import Server
from .tracebacks import FORWARD_FRAMES, SCHEDULER_FRAMES, Frame, SimulatedError
from .wired import Mode

_RUNNER = "sglang/srt/model_executor/model_runner.py"
_GRAPHS = "sglang/srt/model_executor/cuda_graph_runner.py"
_WORKER = "sglang/srt/speculative/eagle_worker.py"
LOAD_FRAMES: tuple[Frame, ...] = (
    *SCHEDULER_FRAMES,
    (_RUNNER, "initialize", "self.load_model()"),
    (_RUNNER, "load_model", "self.model = self.loader.load_model("),
)
DISTRIBUTED_FRAMES: tuple[Frame, ...] = (
    *SCHEDULER_FRAMES[:-1],
    (_RUNNER, "__init__", "min_per_gpu_memory = self.init_torch_distributed()"),
)
GRAPH_FRAMES: tuple[Frame, ...] = (
    *SCHEDULER_FRAMES,
    (_RUNNER, "initialize", "self.init_device_graphs()"),
    (_RUNNER, "init_device_graphs", "self.graph_runner = graph_runners[self.device](self)"),
)
_ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
)


def out_of_memory(gpu: int, stage: str, *, free_mib: float, total_mib: int) -> SimulatedError:
    """No room on a GPU, while loading or while CUDA graphs are captured (case: the text hides in a plain
    Exception).
    """
    free_mib = max(free_mib, 0.0)
    wanted_mib = max(448.0, free_mib + 64.0)
    text = (
        f"CUDA out of memory. Tried to allocate {wanted_mib:.2f} MiB. GPU {gpu} has a total capacity of "
        f"{total_mib / 1024:.2f} GiB of which {free_mib:.2f} MiB is free."
    )
    if stage == "graph-capture":
        frames = (*GRAPH_FRAMES, (_GRAPHS, "__init__", "raise Exception("))
        return SimulatedError(frames, f"Exception: Capture cuda graph failed: {text}\n{_ADVICE}")
    return SimulatedError(LOAD_FRAMES, f"torch.OutOfMemoryError: {text}")


def kv_pool_too_small() -> SimulatedError:
    frames = (*SCHEDULER_FRAMES, (_RUNNER, "initialize", "self.init_memory_pool(min_per_gpu_memory)"))
    last = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    return SimulatedError(frames, last)


def unbalanced(least_gb: float, own_gb: float) -> SimulatedError:
    """Some GPUs are held by others: the ranks on the free ones complain (init_torch_distributed)."""
    frames = (*DISTRIBUTED_FRAMES, (_RUNNER, "init_torch_distributed", "raise RuntimeError(msg)"))
    return SimulatedError(
        frames,
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        f"min_per_gpu_memory={least_gb}, local_gpu_memory={own_gb}, local_gpu_memory * 0.9={own_gb * 0.9}",
    )


def no_such_gpu() -> SimulatedError:
    device = "torch.get_device_module(self.device).set_device(self.gpu_id)"
    frames = (*DISTRIBUTED_FRAMES, (_RUNNER, "init_torch_distributed", device))
    return SimulatedError(
        frames,
        "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
        "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    )


def nccl() -> SimulatedError:
    frames = (*DISTRIBUTED_FRAMES, (_RUNNER, "init_torch_distributed", "init_distributed_environment("))
    last = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    return SimulatedError(frames, last)


def no_weights(path: str) -> SimulatedError:
    frames = (*LOAD_FRAMES, ("sglang/srt/model_loader/loader.py", "_prepare_weights", "raise RuntimeError("))
    return SimulatedError(frames, f"RuntimeError: Cannot find any model weights with `{path}`")


def fc_width(draft: Model) -> int:
    """What the draft's `fc` takes: three target hidden states (models/llama_eagle3.py: LlamaModel)."""
    return 3 * int(draft.config.get("target_hidden_size") or draft.hidden_size)


def check_draft_weights(draft: Model) -> None:
    """Do the draft's tensors fit its configuration? Raises SimulatedError as the weight loaders would."""
    shapes = tensor_shapes(draft.path)
    fc, head = shapes.get("fc.weight"), shapes.get("lm_head.weight")
    wanted = [draft.hidden_size, fc_width(draft)]
    loader = "sglang/srt/model_loader/weight_utils.py"
    if fc and fc != wanted:
        frames = (
            *LOAD_FRAMES,
            (loader, "default_weight_loader", "assert param.size() == loaded_weight.size()"),
        )
        sizes = f"weight (torch.Size({fc})) into parameter (torch.Size({wanted}))"
        last = f"AssertionError: Attempted to load {sizes}"
        raise SimulatedError(frames, last)
    rows = draft.config.get("draft_vocab_size") or draft.vocab_size
    if head and head[0] != rows:
        embedding = "sglang/srt/layers/vocab_parallel_embedding.py"
        raise SimulatedError(
            (*LOAD_FRAMES, (embedding, "weight_loader", "assert loaded_weight.shape[output_dim]")),
            "AssertionError",
        )


def check_forward(server: Server, mode: Mode, tokens: int) -> None:
    """Would a forward pass in this mode crash: in the capture, or where the draft's `fc` takes what was
    captured?

    Raises SimulatedError. A single captured state is as wide as the draft's own embedding, and then `fc` is
    passed over without a word (models/llama_eagle3.py: forward).
    """
    draft = server.draft
    if server.plan.fallback:
        last = (
            "RuntimeError: shape mismatch: value tensor of shape "
            f"[{2 * tokens}, 4, 16] cannot be broadcast to indexing result of shape [{tokens}, 1, 48]"
        )
        pool = (
            "sglang/srt/mem_cache/memory_pool.py",
            "set_kv_buffer",
            "self.kv_buffer[layer_id - self.start_layer][loc]",
        )
        raise SimulatedError((*FORWARD_FRAMES, pool), last)
    if not server.eagle3 or draft is None:
        return
    if mode.error and mode.layers is None:
        extend = "logits_output, next_token_ids, seq_lens_cpu = self.forward_target_extend("
        model = (
            "sglang/srt/models/deepseek_v2.py",
            "forward",
            "aux_hidden_states.append(hidden_states + residual)",
        )
        raise SimulatedError(
            (*FORWARD_FRAMES, (_WORKER, "forward_batch_generation", extend), model), mode.error
        )
    if mode.layers is None:
        return
    width = len(mode.layers) * server.target.hidden_size
    if len(mode.layers) > 1 and width != fc_width(draft):
        frames = (
            *FORWARD_FRAMES,
            (_WORKER, "forward_batch_generation", "self.forward_draft_extend("),
            ("sglang/srt/models/llama_eagle3.py", "forward", "hidden_states = self.fc(hidden_states)"),
        )
        shapes = f"({tokens}x{width} and {fc_width(draft)}x{draft.hidden_size})"
        raise SimulatedError(frames, f"RuntimeError: mat1 and mat2 shapes cannot be multiplied {shapes}")
