"""First causes: every code, in real logs where there are any."""

# Lines of logs are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from remote.sglang.failures import first_cause
from remote.sglang.progress import State, feed
from tests.sglang import data

_HEAD = "[10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
_TARGET = "[10:00:00] Load weight begin.\n[10:00:00] Load weight end. elapsed=1 s, type=A, avail mem=1 GB\n"
_DRAFT = _TARGET + "[10:00:00] Load weight begin.\n"
# ServerArgs.__post_init__ reads the model's configuration (0.5.9, server_args.py), the deeper the longer.
_BELOW_ARGUMENTS = (
    "Traceback (most recent call last):\n"
    '  File "/s/sglang/srt/server_args.py", line 700, in __post_init__\n    self._handle_model_specific()\n'
    + '  File "/s/sglang/srt/configs/model_config.py", line 90, in __init__\n    self.hf_config = get_config(\n'
    * 200
    + '  File "/s/transformers/configuration_utils.py", line 658, in get_config_dict\n    load(path)\n'
)


def _code(text: str) -> str | None:
    failure = first_cause(text)
    return failure.code if failure else None


@pytest.mark.parametrize(
    ("name", "code", "cause"),
    [
        (
            "syntax_error_0.5.9.log",
            "model-import",
            "loading sglang.srt.models.deepseek_v2: invalid syntax (deepseek_v2.py, line 2988)",
        ),
        (
            "syntax_error_nospec_0.5.9.log",
            "model-import",
            "loading sglang.srt.models.deepseek_v2: invalid syntax",
        ),
        (
            "wrong_layers_0.5.9.log",
            "draft-shape",
            "mat1 and mat2 shapes cannot be multiplied (29x128 and 192x64)",
        ),
        ("unfiltered_minus_one_0.5.9.log", "capture-layers", "TypeError: unsupported operand type(s) for +"),
        ("port_in_use_0.5.9.log", "port-in-use", "('127.0.0.1', 31009): address already in use"),
        ("crash_after_ready_0.5.23.log", "unknown", "RuntimeError: Expected size for first two dimensions"),
        (
            "scheduler_killed_0.5.23.log",
            "rank-died",
            "Subprocess scheduler_0 (pid=5909) crashed with exit code -9",
        ),
    ],
)
def test_real_failures(name: str, code: str, cause: str) -> None:
    text = data.capture(name)
    failure = first_cause(text)
    assert failure is not None
    assert failure.code == code
    assert cause in failure.cause
    assert failure.cause in text.split("\n")[failure.line - 1]


@pytest.mark.parametrize("name", ["eagle3_0.5.9.log", "eagle3_0.5.23.log", "freeze_gc_0.5.23.log"])
def test_real_logs_without_a_failure(name: str) -> None:
    """The last holds three tracebacks, "post-warmup freeze_gc failed", of a server that then serves."""
    assert first_cause(data.capture(name)) is None


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("gpu-oom", _HEAD + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"),
        ("gpu-oom", _HEAD + "torch.cuda.OutOfMemoryError: HIP out of memory.\n"),
        ("gpu-oom", _HEAD + "RuntimeError: CUDA error: out of memory\n"),
        ("kv-pool-too-small", _HEAD + "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"),
        ("port-in-use", "[10:00:00] ERROR:    [Errno 98] error while attempting to bind on address ('::', 80): x\n"),
        (
            "internal-port-conflict",
            _HEAD + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
            "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
        ),
        ("internal-port-conflict", "Traceback (most recent call last):\nzmq.error.ZMQError: Address already in use\n"),
        ("internal-port-conflict", "Traceback (most recent call last):\nValueError: Port is already in use. nccl_port=1\n"),
        ("nccl", _HEAD + "torch.distributed.DistBackendError: NCCL error in: x.cpp:77, unhandled cuda error\n"),
        ("nccl", _HEAD + "RuntimeError: NCCL error: unhandled system error\n"),
        ("model-import", "[10:00:00] Ignore import error when loading sglang.srt.models.kimi_k25: No module named 'x'\n"
         + _HEAD + "ValueError: Model architectures ['KimiK25ForConditionalGeneration'] are not supported for now.\n"),
        ("model-arch", "[10:00:00] Ignore import error when loading sglang.srt.models.grok: No module named 'x'\n"
         + _HEAD + "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.\n"),
        ("draft-arch", _DRAFT + _HEAD + "ValueError: Model architectures ['Foo'] are not supported for now.\n"),
        ("draft-arch", _DRAFT + _HEAD + "AttributeError: 'B' object has no attribute 'hot_token_id'\n"),
        ("eagle3-hook-missing", _HEAD + "AttributeError: 'A' object has no attribute 'get_embed_and_head'\n"),
        ("draft-vocab", _HEAD + '  File "/s/srt/layers/vocab_parallel_embedding.py", line 1, in weight_loader\n'
         "    assert loaded_weight.shape[0] == self.org_vocab_size\nAssertionError\n"),
        ("draft-layers", _HEAD + "ValueError: EAGLE3 currently only supports 1 layer\n"),
        ("draft-shape", _DRAFT + _HEAD + "RuntimeError: size mismatch for fc.weight: copying a param with shape\n"),
        ("draft-context", _DRAFT + _HEAD + "ValueError: Warning: Target model's context_length (262144) is greater than "
         "the derived context_length (2048).\n"),
        ("capture-layers", _HEAD + "AssertionError: captured 2 of 3 aux hidden states\n"),
        ("bad-argument", "launch_server.py: error: argument --speculative-algorithm: invalid choice: 'EAGLE9'\n"),
        ("bad-argument", "launch_server.py: error: unrecognized arguments: --speculative-numsteps 3\n"),
        ("bad-argument", "Traceback (most recent call last):\n"
         '  File "/s/sglang/srt/server_args.py", line 2420, in _handle_speculative_decoding\n'
         "    if self.speculative_eagle_topk > 1:\nTypeError: '>' not supported between 'NoneType' and 'int'\n"),
        ("bad-argument", "Traceback (most recent call last):\nValueError: Unknown speculative algorithm name: EAGLE9\n"),
        ("weights-missing", _HEAD + "RuntimeError: Cannot find any model weights with `/models/x`\n"),
        ("weights-missing", _HEAD + "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge\n"),
        ("weights-missing", _HEAD + "OSError: /m does not appear to have a file named config.json.\n"),
        ("weights-missing", _HEAD + "FileNotFoundError: [Errno 2] No such file or directory: '/m/a.safetensors'\n"),
        ("shm-full", _HEAD + "OSError: [Errno 28] No space left on device: '/dev/shm/nccl-x'\n"),
        ("shm-full", "[10:00:00] Rank 3 scheduler is dead. Please check if there are relevant logs.\n[10:00:01] Exit code: -7\n"),
        ("shm-full", "Fatal Python error: Bus error\n"),
        ("rank-died", "[10:00:00] Rank 3 scheduler is dead.\n[10:00:01] Exit code: -9\n"),
        ("rank-died", "Killed\n"),
        ("rank-died", "Segmentation fault (core dumped)\n"),
        ("watchdog", "[10:00:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"),
        ("warmup", "[10:00:00] Initialization failed. warmup error: Traceback (most recent call last):\n"
         "AssertionError: res=<Response [500]>\n"),
        ("weights-missing", _HEAD + "RuntimeError: Cannot find any model weights with `/dev/shm/kimi`\n"),
        ("weights-missing", _HEAD + "OSError: /dev/shm/kimi does not appear to have a file named config.json\n"),
        ("weights-missing", _DRAFT + _HEAD + "RuntimeError: Cannot find any model weights with `/m/lm_head-shape`\n"),
        ("unknown", _HEAD + "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: "
         "Too many open files (24)\n"),
        ("unknown", _HEAD + "PermissionError: [Errno 13] Permission denied: '/dev/shm/nccl-x'\n"),
        ("unknown", _HEAD + "OSError: [Errno 28] No space left on device: '/root/.cache/x'\n"),
        ("shm-full", _HEAD + "RuntimeError: unable to write to file </torch_1_2>: No space left on device (28)\n"),
        ("shm-full", _HEAD + "RuntimeError: unable to allocate shared memory(shm) for file </x>: No space left on device\n"),
        ("shm-full", _HEAD + "OSError: [Errno 28] No space left on device: '/psm_1a2b'\n"),
        ("shm-full", _HEAD + "RuntimeError: NCCL error: unhandled system error. Last error: Error while creating shared "
         "memory segment /dev/shm/nccl-x (size 33030528)\n"),
        ("unknown", _BELOW_ARGUMENTS + "PermissionError: [Errno 13] Permission denied: '/m/config.json'\n"),
        ("unknown", _BELOW_ARGUMENTS + "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"),
        ("unknown", _BELOW_ARGUMENTS + "ImportError: This modeling file requires the following packages: tiktoken.\n"),
        ("unknown", _BELOW_ARGUMENTS + "ValueError: The checkpoint you are trying to load has model type `kimi_k25` but "
         "Transformers does not recognize this architecture.\n"),
        ("draft-arch", _DRAFT + _HEAD + "ValueError: The checkpoint you are trying to load has model type `x` but "
         "Transformers does not recognize this architecture.\n"),
        ("weights-missing", _BELOW_ARGUMENTS + "OSError: /m does not appear to have a file named config.json.\n"),
        ("unknown", _HEAD + "KeyError: 'model.layers.3.mlp'\n"),
        ("unknown", _HEAD),
    ],
)  # fmt: skip
def test_each_code(code: str, text: str) -> None:
    assert _code(text) == code
    for by in data.RELAYS:
        assert _code(data.handed_on(text, by)) == code, by


def test_a_driver_of_the_whole_node_is_the_last_resort() -> None:
    assert _code("") is None
    assert _code("nothing of interest\nError: is a word here, not an exception\n") is None


def test_a_chained_exception_is_named_by_its_first_that_tells() -> None:
    text = (
        _HEAD + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        "Exception: Capture cuda graph failed: CUDA out of memory\nPossible solutions:\n1. set --mem-fraction-static\n"
    )
    failure = first_cause(text)
    assert failure is not None
    assert (failure.code, failure.line) == ("gpu-oom", 2)


def test_the_exit_of_a_rank_after_its_exception_is_no_cause() -> None:
    text = _HEAD + "ValueError: bad\n[10:00:01] Rank 0 scheduler is dead.\n[10:00:02] Exit code: 1\n"
    failure = first_cause(text)
    assert failure is not None
    assert failure.cause == "ValueError: bad"


def test_a_rank_that_is_killed_first_explains_the_others() -> None:
    text = (
        "[10:00:00] Subprocess scheduler_5 (pid=1) crashed with exit code -9. Triggering SIGQUIT for cleanup...\n"
        + _HEAD
        + "RuntimeError: NCCL error: remote process exited or there was a network error\n"
    )
    failure = first_cause(text)
    assert failure is not None
    assert (failure.code, failure.line) == ("rank-died", 1)


def test_an_exception_that_is_not_named_keeps_the_stage_of_its_head() -> None:
    failure = first_cause(_DRAFT + _HEAD + '  File "x.py", line 1, in y\n')
    assert failure is not None
    assert (failure.code, failure.stage) == ("unknown", "loading-draft")


def test_a_failing_request_of_a_serving_server_is_no_failure() -> None:
    text = (
        "[10:00:00] The server is fired up and ready to roll!\n"
        "[10:00:01] ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in y\nValueError: bad request\n'
    )
    assert first_cause(text) is None


def test_secrets_are_no_part_of_a_cause() -> None:
    text = "launch_server.py: error: unrecognized arguments: --api-keys x --api-key SECRETVALUE\n"
    failure = first_cause(text)
    assert failure is not None
    assert "SECRETVALUE" not in failure.cause


def test_failures_are_certain_while_the_log_grows() -> None:
    state = feed(State(), _HEAD)
    assert state.failure is None
    state = feed(state, "ValueError: bad draft config\n")
    assert state.suspect is not None
    state = feed(
        state, "[10:00:01] Received sigquit from a child process. It usually means the child failed.\n"
    )
    assert state.failure is not None
    assert state.failure.cause == "ValueError: bad draft config"
