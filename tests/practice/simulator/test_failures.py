"""How a start fails: the real text at the real place, and the first cause as the toolkit reads it."""

from __future__ import annotations

import signal

import pytest

from remote.sglang import failures
from tests.support import wait_until

from .kit import KIMI, READY, Node, apply_three_edits, edit, make_node, run, started, write_weights

KILLED = -signal.SIGKILL
DEEPSEEK_FILE = "sglang/srt/models/deepseek_v2.py"


def cause(log: str) -> str:
    found = failures.first_cause(log)
    assert found is not None, log[-2000:]
    return found.code


def test_a_syntax_error_loses_the_models_that_import_the_file(node: Node) -> None:
    """As captured with 0.5.9: the modules' lines, the fallback to Transformers, the missing hook."""
    path = node.tree / DEEPSEEK_FILE
    edit(path, "        aux_hidden_states = []\n", "        aux_hidden_states = [\n")
    code, log = run(node)
    assert code == KILLED
    ignored = [
        line
        for line in log.splitlines()
        if "TP0] Ignore import error" in line and "(deepseek_v2.py, line" in line
    ]
    names = {line.split("sglang.srt.models.")[1].split(":")[0] for line in ignored}
    assert {
        "deepseek_v2",
        "deepseek_nextn",
        "kimi_k25",
        "glm4_moe",
        "longcat_flash_nextn",
        "pixtral",
    } <= names
    assert "llama_eagle3" not in names
    assert "DeepseekV3ForCausalLM has no SGLang implementation, falling back to Transformers" in log
    assert "'TransformersForCausalLM' object has no attribute 'set_eagle3_layers_to_capture'" in log
    assert "Received sigquit from a child process. It usually means the child failed." in log
    assert cause(log) == "model-import"


def test_a_syntax_error_in_the_model_runner_ends_the_launcher(node: Node) -> None:
    edit(node.tree / "sglang/srt/model_executor/model_runner.py", "class ModelRunner", "clas ModelRunner")
    code, log = run(node)
    assert code == 1
    assert "server_args=" not in log
    assert "SyntaxError: invalid syntax" in log
    assert "model_runner.py" in log


def test_an_unfiltered_minus_one_crashes_at_the_warm_up(node: Node) -> None:
    """As captured: Uvicorn is up, model_info answers, then the TypeError."""
    node.layers([-1, 2, 30])
    code, log = run(node)
    assert code == KILLED
    assert log.index("Uvicorn running on") < log.index('"GET /model_info HTTP/1.1" 200 OK')
    assert log.index('"GET /model_info HTTP/1.1" 200 OK') < log.index(
        "TypeError: unsupported operand type(s) for +"
    )
    assert "SIGQUIT received." in log
    assert "ready to roll" not in log


def test_without_a_warm_up_it_crashes_at_the_first_request(node: Node) -> None:
    node.layers([-1, 2, 30])
    with started(node, "--skip-server-warmup") as server:
        wait_until(lambda: "Uvicorn running on" in server.log(), what="the listener")
        assert READY in server.log()
        with pytest.raises(OSError, match=r"closed|reset"):
            server.generate(3)
        assert server.wait_end() == KILLED
        assert "TypeError: unsupported operand type(s) for +" in server.log()


def test_text_in_place_of_a_list_fails_where_the_ids_are_set(node: Node) -> None:
    node.layers("[-1, 2, 30]")
    code, log = run(node)
    assert code == KILLED
    assert "Error: " in log.split("Scheduler hit an exception")[1]
    assert "Uvicorn running" not in log


def test_two_states_do_not_fit_the_drafts_fc(node: Node) -> None:
    node.layers([2, 30])
    code, log = run(node)
    assert code == KILLED
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in log
    assert "x14336 and 21504x7168)" in log
    assert cause(log) == "draft-shape"


def test_the_wrapper_of_0_5_9_lacks_the_hook(released_kimi: Node) -> None:
    code, log = run(released_kimi)
    assert code == KILLED
    assert f"AttributeError: '{KIMI}' object has no attribute 'set_eagle3_layers_to_capture'" in log
    assert "model_executor/cuda_graph_runner.py" in log
    assert cause(log) == "eagle3-hook-missing"
    code, log = run(released_kimi, "--disable-cuda-graph")
    assert code == KILLED
    assert "Capture cuda graph begin" not in log
    assert cause(log) == "eagle3-hook-missing"


def test_broken_models_and_weights(node: Node) -> None:
    draft = node.root / "draft"
    weights = next(draft.glob("*.safetensors"))
    node.draft(num_hidden_layers=2)
    assert cause(run(node)[1]) == "draft-layers"
    node.draft(num_hidden_layers=1)
    write_weights(weights, {"fc.weight": (7168, 14336)})
    sizes = "(torch.Size([7168, 14336])) into parameter (torch.Size([7168, 21504]))"
    assert f"AssertionError: Attempted to load weight {sizes}" in run(node)[1]
    write_weights(weights, {"fc.weight": (7168, 21504), "lm_head.weight": (163840, 7168)})
    assert cause(run(node)[1]) == "draft-vocab"
    weights.unlink()
    assert cause(run(node)[1]) == "weights-missing"
    weights.touch()
    (draft / "config.json").unlink()
    code, log = run(node)
    assert code == KILLED
    assert f"OSError: Can't load the configuration of '{draft}'" in log


def test_a_missing_target_ends_the_launcher(node: Node) -> None:
    (node.root / "target" / "config.json").unlink()
    code, log = run(node)
    assert code == 1
    assert "OSError: Can't load the configuration of" in log
    assert "server_args=" not in log


def test_the_target_given_as_the_draft_does_not_fit_twice(node: Node) -> None:
    code, log = run(node, "--speculative-draft-model-path", str(node.root / "target"))
    assert code == KILLED
    assert cause(log) == "gpu-oom"
    node.settings(memory_is_limited=False, weights_mib=1000)
    code, log = run(node, "--speculative-draft-model-path", str(node.root / "target"))
    assert code == KILLED
    assert "AttributeError: 'DeepseekV3ForCausalLM' object has no attribute 'set_embed'" in log


def test_the_algorithm_eagle_with_an_eagle3_draft_never_guesses_right(node: Node) -> None:
    with started(node, "--speculative-algorithm", "EAGLE") as server:
        server.wait_ready()
        assert server.generate(50)["meta_info"]["spec_accept_token_num"] == 0


@pytest.mark.parametrize(
    ("faults", "code"),
    [({"oom_at": "graph-capture"}, "gpu-oom"), ({"nccl": True}, "nccl"), ({"warmup_fails": True}, "warmup")],
)
def test_faults_on_demand(node: Node, faults: dict[str, object], code: str) -> None:
    ended, log = run(node, faults=faults)
    assert ended == KILLED
    assert cause(log) == code


def test_a_healthy_liar_and_a_server_that_generates_no_more(node: Node) -> None:
    node.settings(health_timeout_s=0.3)
    with started(node, faults={"health_lies": True, "generate_hangs": True}) as server:
        server.wait_ready()
        assert server.health() == 200
        assert server.request("GET", "/health_generate")[0] == 503


def test_usage_errors(node: Node) -> None:
    code, log = run(node, "--speculative-algorithm", "EAGLE9")
    assert code == 2
    assert "error: argument --speculative-algorithm: invalid choice: 'EAGLE9'" in log
    assert cause(log) == "bad-argument"
    code, log = run(node, "--no-such-flag")
    assert code == 2
    assert "unrecognized arguments: --no-such-flag" in log
    code, log = run(node, faults={"no_such_fault": True})
    assert code == 2
    assert "unknown key 'no_such_fault'" in log
    code, log = run(node, "--help")
    assert code == 0
    assert "SIMULATED" in log


def test_the_incidents_edits_alone_leave_decode_as_it_was(node: Node) -> None:
    """The root cause: prefill has the trained layers, the graphs that decode replays have the defaults."""
    apply_three_edits(node)
    node.layers([-1, 2, 30])
    with started(node) as server:
        server.wait_ready()
        lengths = [server.generate(300, text)["meta_info"]["spec_accept_length"] for text in "abcd"]
    assert 1.3 < sum(lengths) / 4 < 1.75
    with started(node, "--disable-cuda-graph") as server:
        server.wait_ready()
        lengths = [server.generate(300, text)["meta_info"]["spec_accept_length"] for text in "abcd"]
    assert 3.0 < sum(lengths) / 4 < 3.9


@pytest.fixture(scope="module")
def released_kimi(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return make_node(tmp_path_factory.mktemp("kimi"), "0.5.9", KIMI)
