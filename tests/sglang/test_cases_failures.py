"""Public reports about failed starts, each with its right answer. The numbers are theirs.

Those of which only the situation was reported, not the lines, have inputs of our own here.
"""

# Lines of logs are as long as they are.

from __future__ import annotations

from dataclasses import replace

import pytest

from remote.sglang import decode, draft, progress, speculation
from remote.sglang.failures import first_cause, state_of
from remote.sglang.lines import numbered
from tests.sglang import data
from tests.sglang.data import read_log


@pytest.mark.parametrize(
    ("number", "code", "line", "stage"),
    [
        ("026", "gpu-oom", 5, "graph-capture"),
        ("027", "port-in-use", 4, "warmup"),
        ("029", "nccl", 2, "starting"),
        ("031", "eagle3-hook-missing", 3, "starting"),
        ("032", "draft-is-target", 4, "loading-draft"),
        ("034", "draft-vocab", 2, "starting"),
        ("041", "unknown", 2, "starting"),
        ("042", "rank-died", 5, "loading-target"),
        ("044", "watchdog", 4, "starting"),
        ("047", "warmup", 5, "warmup"),
        ("051", "memory-unbalanced", 4, "loading-draft"),
    ],
)
def test_the_first_cause(number: str, code: str, line: int, stage: str) -> None:
    (boot,) = read_log(data.case(number))
    assert boot.failure is not None
    assert (boot.failure.code, boot.failure.line, boot.stage) == (code, line, stage)
    assert boot.state == "failed"
    assert boot.ready_at is None
    written = data.case(number).split("\n")[line - 1]
    assert boot.failure.cause in written
    assert boot.failure == first_cause(data.case(number))


def test_026_names_the_gpu() -> None:
    failure = first_cause(data.case("026"))
    assert failure is not None
    assert "GPU 7" in failure.cause
    assert failure.ranks == ("TP7",)


def test_029_one_finding_for_all_ranks() -> None:
    failure = first_cause(data.case("029"))
    assert failure is not None
    assert failure.ranks == ("TP0", "TP1")


def test_031_names_class_and_attribute() -> None:
    failure = first_cause(data.case("031"))
    assert failure is not None
    assert "Qwen3VLMoeForConditionalGeneration" in failure.cause
    assert "set_eagle3_layers_to_capture" in failure.cause


def test_031_on_the_class_of_the_draft() -> None:
    text = (
        "[10:00:00] server_args=ServerArgs(model_path='/t', speculative_draft_model_path='/d')\n"
        "[10:00:01 TP0] Load weight begin. avail mem=78.50 GB\n"
        "[10:00:02 TP0] Load weight end. elapsed=1 s, type=MiMoForCausalLM, avail mem=70 GB\n"
        "[10:00:03 TP0] Load weight begin. avail mem=70 GB\n"
        "[10:00:04 TP0] Load weight end. elapsed=1 s, type=MiMoMTP, avail mem=69 GB\n"
        "[10:00:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "AttributeError: 'MiMoMTP' object has no attribute 'get_embed_and_head'\n"
    )
    failure = first_cause(text)
    assert failure is not None
    assert failure.code == "draft-arch"


def test_032_is_refused_before_the_start_too() -> None:
    values = data.boot("032").args
    (refused,) = speculation.normalise("0.5.20", {**values, "speculative_eagle_topk": 1})
    assert refused.fatal
    assert refused.name == "speculative_draft_model_path"
    assert data.follow(data.case("032")).draft_like_target


def test_034_the_flavour_of_sglang_alone() -> None:
    text = data.case("034").split("mistake\n")[1]
    failure = first_cause(text)
    assert failure is not None
    assert (failure.code, failure.cause) == ("draft-vocab", "AssertionError")


def test_034_the_header_tells_before() -> None:
    config = {"vocab_size": 128256, "draft_vocab_size": 128256, "num_hidden_layers": 1}
    header = {"lm_head.weight": [32000, 4096], "d2t": [32000]}
    found = draft.problems(config, header=header)
    assert [problem.code for problem in found] == ["draft-vocab", "draft-vocab"]
    assert draft.problems({**config, "draft_vocab_size": 32000}, header=header) == []


def test_036_everything_green_and_nothing_accepted() -> None:
    line = "[2026-03-24 07:20:3{} TP0] Decode batch, #token: 300, accept len: 1.00, accept rate: 0.00\n"
    samples = data.samples("".join(line.format(second) for second in range(3)))
    few, some = samples[:2], [*samples, replace(samples[0], accept_len=2.5)]
    found = [decode.summarise(each) for each in (samples, few, some)]
    assert [each and each.accepts_nothing for each in found] == [True, False, False]
    asked = {
        "speculative-algorithm": "EAGLE",
        "speculative-draft-model-path": "/d",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": 4,
    }
    (refused,) = speculation.normalise("0.5.9", asked, draft_architectures=["LlamaForCausalLMEagle3"])
    assert refused.fatal
    assert speculation.normalise("0.5.9", asked, draft_architectures=["DeepseekV3ForCausalLMNextN"]) == []
    config = {"architectures": ["LlamaForCausalLMEagle3"]}
    assert [problem.code for problem in draft.problems(config, algorithm="EAGLE")] == ["draft-arch"]


@pytest.mark.parametrize(
    ("architectures", "wrong"),
    [
        (["LlamaForCausalLMEagle3"], False),
        (["Eagle3DeepseekV2ForCausalLM"], False),
        (["MistralLarge3ForCausalLMEagle"], False),
        (["LlamaForCausalLM"], True),
        (["DeepseekV3ForCausalLM"], True),
        ([], True),
        (None, True),
    ],
)
def test_a_class_that_is_no_eagle3_draft(architectures: list[str] | None, wrong: bool) -> None:
    config = {"architectures": architectures}
    found = [problem.code for problem in draft.problems(config, algorithm="EAGLE3")]
    assert found == (["draft-arch"] if wrong else [])
    # MTP heads are drafts for EAGLE, and have any name.
    assert draft.problems({"architectures": ["DeepseekV3ForCausalLMNextN"]}, algorithm="EAGLE") == []


def test_037_a_head_that_is_not_in_the_weights() -> None:
    config = {"vocab_size": 163840, "draft_vocab_size": 163840, "tie_word_embeddings": False}
    names = ["fc.weight", "midlayer.input_layernorm.weight", "norm.weight"]
    (problem,) = draft.problems(config, header={name: [64] for name in names})
    assert problem.code == "draft-head"
    # The configuration alone cannot decide.
    assert draft.problems(config) == []
    assert (
        draft.problems(config, header={name: [64] for name in names} | {"lm_head.weight": [163840, 64]}) == []
    )
    assert draft.problems({**config, "tie_word_embeddings": True}, header={"fc.weight": [64]}) == []


def test_039_the_layers_of_the_target() -> None:
    failure = first_cause(
        "[08:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "ValueError: EAGLE3 currently only supports 1 layer\n"
    )
    assert failure is not None
    assert (failure.code, failure.line) == ("draft-layers", 2)
    config = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 48}
    assert [problem.code for problem in draft.problems(config)] == ["draft-layers"]
    two = {"midlayer.0.w": [1], "layers.0.w": [1], "layers.1.w": [1]}
    assert draft.problems({"num_hidden_layers": 2}, header=two) == []


@pytest.mark.parametrize(
    "spelling",
    [
        "Received sigquit from a child process. It usually means the child failed.",
        "Received sigquit from a child proces. It usually means the child failed.",
        "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    ],
)
def test_041_any_spelling_is_the_end_and_none_is_the_cause(spelling: str) -> None:
    end = f"[2025-04-21 04:13:43] {spelling}\n"
    state = data.follow(end)
    assert state.failure is not None
    assert state.failure.code == "unknown"
    failure = first_cause(
        end + "[04:13:44 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "ValueError: bad draft config\n" + end
    )
    assert failure is not None
    assert failure.cause == "ValueError: bad draft config"


def test_041_the_gloo_error_of_another_rank_is_a_consequence() -> None:
    lines = data.case("041").splitlines(keepends=True)
    failure = first_cause("".join([lines[3], *lines[:3]]))
    assert failure is not None
    assert (failure.cause, failure.line) == ("ValueError: bad draft config", 3)


def test_042_signals_behind_exit_codes() -> None:
    failure = first_cause(data.case("042"))
    assert failure is not None
    assert failure.note is not None
    assert "SIGKILL" in failure.note
    bus = first_cause(data.case("042").replace("-9", "-7"))
    assert bus is not None
    assert bus.code == "shm-full"
    # Without these lines the log just stops: that is silence, no cause.
    silent = "".join(data.case("042").splitlines(keepends=True)[:3])
    assert first_cause(silent) is None


def test_044_three_fatal_watchdogs_among_harmless_lines() -> None:
    assert state_of(numbered(data.case("044"))).watchdogs == 3
    harmless = "".join(
        line
        for number, line in enumerate(data.case("044").splitlines(keepends=True), 1)
        if number not in (4, 5, 6)
    )
    assert first_cause(harmless) is None


def test_046_a_busy_server_is_not_a_dead_one() -> None:
    boot = data.boot("046")
    assert (boot.failure, boot.state, boot.stage) == (None, "unknown", "serving")


def test_047_uvicorn_and_an_early_200_are_not_ready() -> None:
    state = data.follow("".join(data.case("047").splitlines(keepends=True)[:3]))
    assert (state.ready, state.stage, state.failure) == (False, "warmup", None)


def test_049_weights_that_are_not_there() -> None:
    failure = first_cause(
        "[07:09:52] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Cannot find any model weights with `/models/draft`\n"
    )
    assert failure is not None
    assert failure.code == "weights-missing"
    assert "/models/draft" in failure.cause
    pointer = draft.problems({}, files={"config.json": 812, "model.safetensors": 134})
    assert [problem.code for problem in pointer] == ["weights-missing"]
    assert [problem.code for problem in draft.problems({}, files={"config.json": 812})] == ["weights-missing"]
    shards = draft.problems({}, files={"a.safetensors": 5_000}, shards=["a.safetensors", "b.safetensors"])
    assert [problem.code for problem in shards] == ["weights-missing"]
    assert draft.problems({}, files={"a.safetensors": 5_000}, shards=["a.safetensors"]) == []


def test_051_the_other_process_is_our_own_target() -> None:
    failure = first_cause(data.case("051"))
    assert failure is not None
    assert failure.note is not None
    assert "kill nothing" in failure.note
    first_start = "".join(data.case("051").splitlines(keepends=True)[2:])
    early = first_cause(first_start)
    assert early is not None
    assert early.note is not None
    assert "holders" in early.note


def test_096_bars_that_were_cut_within_a_character() -> None:
    lines = data.case("096").splitlines(keepends=True)
    state = progress.feed(progress.State(), lines[0])
    assert (state.stage, state.percent, state.detail) == ("graph-capture", 100.0, "capturing graphs 4/4")
    state = progress.feed(progress.State(), lines[1])
    assert (state.percent, state.detail) == (100.0, "4/4")
    assert first_cause(data.case("096")) is None
