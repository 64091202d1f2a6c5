"""Which text means which failure.

A rule is (code, pattern of the exception line or of a line of its message, what it needs besides, note).
The first rule that holds wins. Sources: SGLang 0.5.3 to 0.5.23 (files named at the rules), the public
issues named in the tests, PyTorch's and uvicorn's own messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

HOOKS = "set_eagle3_layers_to_capture|get_embed_and_head|set_embed_and_head|capture_aux_hidden_states"


@dataclass(frozen=True)
class Context:
    """What is known where an exception was raised. `frames`: file names and code lines of its traceback,
    joined; `raised_in`: the last of these files, "" without a traceback. `stage`: of the start-up (see
    `progress`). `draft_is_target`: EAGLE3 with no draft of its own. `target_type`, `draft_type`: classes
    that were loaded. `warmup`: raised by the warm-up request."""

    frames: str = ""
    raised_in: str = ""
    stage: str = "starting"
    draft_is_target: bool = False
    target_type: str | None = None
    draft_type: str | None = None
    warmup: bool = False

    @property
    def drafting(self) -> bool:
        """Raised while the draft model was being set up, or within its own code."""
        return self.stage == "loading-draft" or bool(_DRAFT_FRAME.search(self.frames))


@dataclass(frozen=True)
class Rule:
    code: str
    pattern: re.Pattern[str]
    when: Callable[[Context, re.Match[str]], bool] = lambda _context, _match: True
    note: str | None = None


_DRAFT_FRAME = re.compile(
    r"draft_worker = |EAGLEWorker|EagleWorker|eagle_worker|_eagle3?\.py|eagle3|init_lm_head|draft_runner"
)


def _drafting(context: Context, _match: re.Match[str]) -> bool:
    return context.drafting


def _of_draft_class(context: Context, match: re.Match[str]) -> bool:
    """The class that lacks something is the draft's, and not the target's too."""
    return match.group("cls") == context.draft_type != context.target_type


def _passes(*names: str) -> Callable[[Context, re.Match[str]], bool]:
    return lambda context, _match: any(name in context.frames for name in names)


def _rule(
    code: str,
    pattern: str,
    when: Callable[[Context, re.Match[str]], bool] = lambda _context, _match: True,
    note: str | None = None,
) -> Rule:
    return Rule(code, re.compile(pattern), when, note)


_ARGUMENTS = ("server_args.py", "arg_groups/", "argparse.py")
_NO_ATTRIBUTE = r"AttributeError: '(?P<cls>\w+)' object has no attribute "

_SHM = r"(?:/dev/shm|/psm_|/torch_|shared memory)"

RULES: tuple[Rule, ...] = (
    # First, since these texts name a path, in which any other rule's words may be.
    _rule(
        "weights-missing",
        r"Cannot find any model weights with|HeaderTooLarge|InvalidHeader|SafetensorError"
        r"|MetadataIncompleteBuffer|does not appear to have a file named"
        r"|No such file or directory: '[^']{0,300}\.(?:safetensors|bin|pt|json)"
        r"|is not a local folder and is not a valid model identifier|Repository ?Not ?Found"
        r"|Repo id must be in the form|Incorrect path_or_model_id",
    ),
    # Python's, PyTorch's (MapAllocator.cpp) and NCCL's (shmutils.cc) words for a segment without room; one
    # that cannot be opened for another reason is none.
    _rule(
        "shm-full",
        rf"No space left on device.{{0,200}}{_SHM}|{_SHM}.{{0,300}}No space left on device"
        r"|Error while creating shared memory segment .{0,300}\(size \d+\)|insufficient shared memory"
        r"|[Bb]us error",
    ),
    _rule(
        "gpu-oom",
        r"(?:CUDA|HIP|XPU|NPU|MUSA) out of memory|OutOfMemoryError|CUDA error: out of memory"
        r"|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
        note="lower --mem-fraction-static or --cuda-graph-max-bs, or see who else holds the GPU",
    ),
    # model_executor/model_runner.py (0.5.3), pool_configurator.py (0.5.23)
    _rule("kv-pool-too-small", r"Not enough memory\. Please try to increase --mem-fraction-static"),
    # model_runner.py, init_torch_distributed. Runs once more for the draft.
    _rule(
        "memory-unbalanced",
        r"memory capacity is unbalanced",
        lambda context, _match: context.stage in ("loading-draft", "graph-capture"),
        "the draft's balance check: the 'other process' is this server's own target model; kill nothing",
    ),
    _rule(
        "memory-unbalanced",
        r"memory capacity is unbalanced",
        note="another process may hold a GPU: see its holders",
    ),
    _rule("port-in-use", r"\[Errno (?:98|48|10048)\] error while attempting to bind on address"),
    _rule(
        "internal-port-conflict",
        r"EADDRINUSE|[Aa]ddress already in use|Port is already in use|is not available in \d+ seconds"
        r"|Failed to bind",
        note="not the HTTP port but one of SGLang's own (nccl, dist-init, ZeroMQ)",
    ),
    _rule(
        "nccl",
        r"NCCL error|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclInvalidUsage|NCCL Error \d",
    ),
    # models/llama_eagle3.py, kimi_k25_eagle3.py
    _rule("draft-layers", r"EAGLE3 currently only supports 1 layer"),
    _rule(
        "draft-is-target",
        r"has no attribute '(?:hot_token_id|set_embed|draft_model)'",
        lambda context, _match: (
            context.draft_is_target
            or (context.draft_type is not None and context.draft_type == context.target_type)
        ),
        "no draft of its own: --speculative-draft-model-path is missing or is the target's path",
    ),
    _rule(
        "draft-arch",
        r"has no attribute '(?:hot_token_id|set_embed)'",
        note="the draft was loaded as a class that is no EAGLE-3 draft",
    ),
    _rule(
        "draft-arch", rf"{_NO_ATTRIBUTE}'(?:{HOOKS})'", _of_draft_class, "the draft was loaded as this class"
    ),
    _rule("eagle3-hook-missing", rf"has no attribute '(?:{HOOKS})'"),
    _rule("draft-arch", r"Model architectures .{0,200} are not supported", _drafting),
    # Transformers' own list, read before any class of SGLang's.
    _rule("draft-arch", r"Transformers does not recognize this architecture", _drafting),
    _rule("draft-arch", r"requires --speculative-algorithm|is not supported for this draft architecture"),
    _rule(
        "model-arch",
        r"Model architectures .{0,200} are not supported",
        note="no model file of this SGLang implements it",
    ),
    # layers/vocab_parallel_embedding.py asserts the rows of embed_tokens and lm_head without a message.
    _rule("draft-vocab", r"size mismatch for \S*(?:lm_head|embed_tokens|d2t|t2d)"),
    _rule("draft-vocab", r"(?:lm_head|embed_tokens|d2t|t2d|draft_vocab_size|hot_token)", _drafting),
    _rule("draft-vocab", r"AssertionError\s*$", _passes("vocab_parallel_embedding")),
    _rule(
        "draft-vocab",
        r"AssertionError\s*$",
        lambda context, _match: (
            bool(re.search(r"draft_worker = |EAGLEWorker\(", context.frames))
            and "linear.py" not in context.frames
        ),
        "a bare assertion while the draft is loaded: its vocabulary size is the usual reason",
    ),
    _rule(
        "capture-layers",
        r"TypeError: unsupported operand type\(s\) for \+: 'Tensor' and 'NoneType'",
        _passes("aux_hidden_states", "deepseek_v2.py"),
        "layer 0 is captured, where there is no residual yet: a layer id of -1 was not filtered",
    ),
    # layers/aux_hidden_states.py, logits_processor.py (0.5.23)
    _rule("capture-layers", r"captured \d+ (?:of \d+ )?aux hidden states"),
    _rule("draft-shape", r"size mismatch for \S*(?:fc|midlayer)"),
    _rule(
        "draft-shape",
        r"mat1 and mat2 shapes cannot be multiplied",
        _drafting,
        "the draft's fc wants another number of captured layers",
    ),
    _rule(
        "draft-shape",
        r"shape|size of tensor|AssertionError\s*$",
        lambda context, _match: context.stage == "loading-draft",
    ),
    # configs/model_config.py, _derive_context_length: for a draft the reason reads "Target model's".
    _rule("draft-context", r"Target model's context_length"),
    _rule("draft-context", r"context_length|max_position_embeddings", _drafting),
    _rule(
        "bad-argument",
        r"Unknown speculative algorithm name|Spec v2 currently only supports topk|only supports topk = 1",
    ),
    _rule("bad-argument", r"(?:User-specified|Warning: User).{0,20}context_length"),
    # Raised there, not below it: the arguments' own code reads the model's configuration too.
    _rule(
        "bad-argument",
        r".",
        lambda context, _match: any(name in context.raised_in for name in _ARGUMENTS),
    ),
    _rule("warmup", r".", lambda context, _match: context.warmup),
)

# Consequences of another rank's end: a cause only when there is no other.
SECONDARY = re.compile(
    r"monitoredBarrier|Connection closed by peer|Connection reset by peer|remote process exited"
    r"|Broken ?[Pp]ipe|EOFError|ncclRemoteError|[Gg]loo|TCPStore|recvValue failed|sendBytes failed|heartbeat"
    r"|SystemExit|KeyboardInterrupt|CancelledError|zmq\.error"
)


def classify(text: str, context: Context) -> tuple[str, str | None] | None:
    """(code, note) of an exception line or a line of its message; None when no rule holds."""
    for rule in RULES:
        match = rule.pattern.search(text)
        if match and rule.when(context, match):
            return rule.code, rule.note
    return None
