"""SGLang 0.5.23 captures the embedding by itself: the contract needs a configuration, and no code.

In order: each test leaves the node as the next one says that it finds it.
"""

from __future__ import annotations

import json
from typing import Any

from tests.real.kit import Real, ask, generate

CONTRACT = ["embed", "in:2", "in:4"]
SKIPPED = {"wiring.graph", "wiring.overlap", "gpu.holders"}


def accept_length(node: Real) -> float:
    """Of one answer, from its own figures. The names have changed since 0.5.9."""
    meta = generate(node.server_port, 48)["meta_info"]
    assert meta["completion_tokens"] == 48
    assert "spec_num_correct_drafts" in meta
    assert "spec_accept_token_num" not in meta
    return float(meta["completion_tokens"]) / int(meta["spec_verify_ct"])


def layer_ids(node: Real) -> Any:
    return json.loads(node.draft.read_text())["eagle_config"]["eagle_aux_hidden_state_layer_ids"]


def test_the_configuration_alone_is_wrong(node: Real) -> None:
    before = node.inv("verify", "--json").is_(7)
    failed = {id for id, verdict in before.verdicts.items() if verdict == "fail"}
    assert failed == {"config.values", "wiring.eager"}
    assert "unknown" not in before.verdicts.values()
    assert before.checks["source.state"]["observed"] == "native"
    assert before.entry["wiring"]["eager"] == ["in:2", "in:4", "in:5"]
    assert accept_length(node) < 2


def test_arguments_are_read_from_the_dict_form(node: Real) -> None:
    """0.5.9 printed ServerArgs(...), this one a dict, and asks for `sglang serve`."""
    assert "server_args={'model_path'" in node.log.read_text(errors="replace")
    boot = node.boots()[-1]
    assert (boot["args_record"], boot["state"]) == ("complete", "ready")
    assert boot["args"]["speculative_num_steps"] == 5
    assert boot["args"]["device"] == "cpu"


def test_the_configuration_is_set_and_no_code_is_touched(node: Real) -> None:
    deployed = node.deploy()
    assert "unknown" not in deployed.verdicts.values()
    assert {id for id, verdict in deployed.verdicts.items() if verdict == "skip"} >= SKIPPED
    assert not deployed.actions["push-code"]["changed"]
    assert deployed.actions["push-config"]["changed"]
    assert layer_ids(node) == [0, 2, 4]
    assert deployed.entry["wiring"]["eager"] == CONTRACT
    assert deployed.checks["source.state"]["observed"] == "native"
    assert accept_length(node) >= 3


def test_bench_reads_the_renamed_figures(node: Real) -> None:
    measured = node.bench().document["nodes"][0]
    assert measured["summary"]["accept_len"]["median"] >= 3
    assert measured["summary"]["sglang_version"] == "0.5.23"


def test_old_endpoints_still_answer_and_say_that_they_are_old(node: Real) -> None:
    old, new = (ask(node.server_port, "GET", path) for path in ("/get_server_info", "/server_info"))
    assert (old[0], new[0]) == (200, 200)
    assert old[1]["version"] == new[1]["version"] == "0.5.23"
    assert "Endpoint '/get_server_info' is deprecated" in node.log.read_text(errors="replace")
    assert node.inv("verify", "--json").is_(0).verdicts["args.effective"] == "pass"


def test_rollback_restores_the_configuration(node: Real) -> None:
    node.inv("rollback", "--yes", "--json").is_(0)
    assert layer_ids(node) == [1, 3, 4]
    assert accept_length(node) < 2
