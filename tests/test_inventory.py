"""The inventory: what a person may write, and what a mistake in it is answered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote import inventory
from remote.errors import ConnectError, ExitCode, InventoryError, UsageError
from remote.intent import expected_ranks, http_host, our_gpus, wanted_args
from remote.inventory import ServerEntry, arguments
from remote.secrets import expand, values

PROJECT = Path(__file__).resolve().parent.parent

GOOD = """\
defaults: {node: blackwell, fix: eagle3-embedding-capture}
nodes:
  blackwell:
    host: blackwell
    python: /opt/sglang/bin/python
    server: kimi
  second: {host: 10.0.0.2, python: python3, server: kimi, user: ops, port: 2222}
groups:
  fleet: [blackwell, second]
servers:
  kimi:
    model_path: /models/kimi
    draft_model_path: /models/draft
    port: 8000
    log: /logs/server.log
    args:
      host: 0.0.0.0
      tp-size: 8
"""


def write(folder: Path, text: str) -> str:
    file = folder / "inventory.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def problem(folder: Path, text: str) -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        inventory.load(write(folder, text))
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value


def test_a_node_is_resolved_with_its_server(tmp_path: Path) -> None:
    found = inventory.load(write(tmp_path, GOOD))
    (node,) = found.select(None)
    assert (node.name, node.host, node.user, node.port) == ("blackwell", "blackwell", None, None)
    assert node.server.port == 8000
    assert [each.name for each in found.select("fleet")] == ["blackwell", "second"]


def test_the_inventory_of_the_project_is_read_without_a_practice_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "none"))
    file = str(PROJECT / "inventory.yaml")
    (node,) = inventory.load(file, only="blackwell").select("blackwell")
    assert node.server.args["speculative-num-draft-tokens"] == 6
    with pytest.raises(ConnectError, match="practice node is not up") as caught:
        inventory.load(file)
    assert caught.value.hint == "inv practice.up"


@pytest.mark.parametrize(
    ("change", "to", "message"),
    [
        (
            "    host: blackwell",
            "    hots: blackwell",
            r":4: unknown key 'nodes.blackwell.hots' \(did you mean 'host'",
        ),
        ("port: 2222", "port: high", r":7: nodes.second.port is 'high'"),
        ("port: 2222", "port: 99999", r":7: nodes.second.port is 99999"),
        (
            "server: kimi\n  second",
            "server: kimmi\n  second",
            r":6: .* names the server 'kimmi'.*did you mean 'kimi'",
        ),
        ("[blackwell, second]", "[blackwell, secund]", r":9: .*secund.*did you mean 'second'"),
        ("node: blackwell, fix", "node: blakwell, fix", r":1: .*blakwell.*did you mean 'blackwell'"),
        ("    port: 8000\n", "", r":11: servers.kimi.port is missing"),
        ("    port: 8000\n", "    prot: 8000\n    port: 8000\n", r":14: unknown key 'servers.kimi.prot'"),
        ("    log: /logs", "    log: [/logs]\n    x: /logs", r"servers.kimi"),
        ("groups:\n", "groups: {a\n", r"not valid YAML"),
        ("    python: /opt/sglang/bin/python\n", "", r"lacks python"),
        ("  second: {", "  blackwell: {", r":7: 'blackwell' is given twice"),
        ("[blackwell, second]", "[]", r":9: groups.fleet is \[\]"),
        (
            "[blackwell, second]",
            "\n    - second\n    - blackwell\n    - second",
            r"inventory.yaml:12: groups.fleet names the node 'second' twice",
        ),
        ("fix: eagle3-embedding", "fix: eagle3-embeding", r":1: .*did you mean 'eagle3-embedding-capture'"),
        ("    port: 8000\n", "    port: 8000\n    fix: no\n", r":15: servers.kimi.fix is False"),
        (
            "    port: 8000\n",
            "    port: 8000\n    fix: none-such\n",
            r":15: servers.kimi.fix names the fix 'none-",
        ),
        ("port: 2222", "port: 2222, state_dir: var/x", r":7: nodes.second.state_dir is 'var/x': give an abs"),
        ("port: 2222", "port: 2222, state_dir: ''", r":7: nodes.second.state_dir is '': give an abs"),
        ("      tp-size: 8", "      port: 9999", r":18: servers.kimi.args.port is 9999, but .* 8000"),
        ("      tp-size: 8", "      port: null", r":18: servers.kimi.args.port is None, but .* 8000"),
        ("      tp-size: 8", "      model: /other", r":18: servers.kimi.args.model is '/other', but"),
        ("tp-size: 8", "tp-size: 8\x01", r":18: not valid YAML"),
        ("tp-size: 8", "tp-size: 2024-13-45", r":18: not valid YAML: month must be in 1..12"),
        ("tp-size: 8", "tp-size: !!bool 8", r":18: not valid YAML"),
        ("    args:\n", "    env: &e {a: *e}\n    args:\n", r":16: an anchor that holds itself"),
        ("    args:\n", "    args: &e\n      <<: *e\n", r":16: an anchor that holds itself"),
        ("    args:\n", "    env: {[a, b]: c}\n    args:\n", r":16: a key that is no word"),
        ("tp-size: 8", "tp-size: " + "[" * 2000 + "]" * 2000, r":1: nested too deeply"),
    ],
)
def test_a_mistake_is_answered_with_file_line_and_the_nearest_key(
    tmp_path: Path, change: str, to: str, message: str
) -> None:
    assert change in GOOD
    error = problem(tmp_path, GOOD.replace(change, to))
    assert str(tmp_path / "inventory.yaml") in error.message
    assert error.hint
    with pytest.raises(InventoryError, match=message):
        raise error


def test_an_unknown_node_is_a_usage_error_that_names_the_known_ones(tmp_path: Path) -> None:
    found = inventory.load(write(tmp_path, GOOD))
    with pytest.raises(UsageError, match=r"'blackwel' \(did you mean 'blackwell'") as caught:
        found.select("blackwel")
    assert caught.value.hint == "known: blackwell, fleet, second"


@pytest.mark.parametrize("state_dir", ["/var/lib/fixops", "~/fixops", "~ops/fixops"])
def test_a_state_directory_is_absolute_or_in_a_home(tmp_path: Path, state_dir: str) -> None:
    text = GOOD.replace("port: 2222", f"port: 2222, state_dir: {state_dir}")
    (node,) = inventory.load(write(tmp_path, text)).select("second")
    assert node.state_dir == state_dir


def test_arguments_may_repeat_what_the_server_says(tmp_path: Path) -> None:
    text = GOOD.replace("tp-size: 8", "port: '8000'\n      model_path: /models/kimi")
    (node,) = inventory.load(write(tmp_path, text)).select(None)
    assert arguments(node.server).count("8000") == 1


def test_an_empty_name_is_not_the_default(tmp_path: Path) -> None:
    """`--node "$NODE"` with the variable unset would else change whatever the default is."""
    file = write(tmp_path, GOOD)
    with pytest.raises(UsageError, match="--node is empty"):
        inventory.load(file, only="").select("")
    with pytest.raises(UsageError, match="--inventory is empty"):
        inventory.load("")


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="does not exist"):
        inventory.load(str(tmp_path / "no.yaml"))


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXOPS_INVENTORY", write(tmp_path, GOOD))
    assert inventory.load().default_node == "blackwell"


def server(**more: object) -> ServerEntry:
    entry = {"model_path": "/m", "port": 8000, "log": "/l", **more}
    return ServerEntry.model_validate(entry)


def test_arguments_are_a_list_and_no_shell_reads_them() -> None:
    entry = server(
        draft_model_path="/d $(rm -rf ~)",
        args={"trust-remote-code": True, "off": False, "unset": None, "cuda-graph-bs": [1, 2], "x": {"a": 1}},
    )
    assert arguments(entry) == [
        *("--model-path", "/m"),
        *("--speculative-draft-model-path", "/d $(rm -rf ~)"),
        *("--port", "8000"),
        "--trust-remote-code",
        *("--cuda-graph-bs", "1", "2"),
        *("--x", '{"a": 1}'),
    ]


@pytest.mark.parametrize(
    ("args", "ranks"),
    [
        ({}, 1),
        ({"tp-size": 8}, 8),
        ({"tp": 8}, 8),
        ({"tensor-parallel-size": "4", "pp-size": 2}, 8),
        ({"tp-size": 2, "dp-size": 4}, 8),
        ({"tp-size": 8, "dp-size": 4, "enable-dp-attention": True}, 8),
        ({"tp-size": 16, "nnodes": 2}, 8),
    ],
)
def test_the_ranks_of_a_node_follow_from_the_arguments(args: dict[str, object], ranks: int) -> None:
    assert expected_ranks(server(args=args)) == ranks


def test_a_wildcard_address_is_asked_on_loopback() -> None:
    assert http_host(server(args={"host": "0.0.0.0"})) == "127.0.0.1"
    assert http_host(server(args={"host": "::"})) == "::1"
    assert http_host(server(args={"host": "10.1.2.3"})) == "10.1.2.3"
    assert http_host(server()) == "127.0.0.1"


def test_our_gpus_come_from_the_environment_else_from_the_base_id(tmp_path: Path) -> None:
    def gpus(extra: str) -> frozenset[int] | None:
        (node,) = inventory.load(write(tmp_path, GOOD + extra)).select(None)
        return our_gpus(node)

    assert gpus("") is None
    assert gpus("      base-gpu-id: 4\n") == frozenset(range(4, 12))
    assert gpus("    env: {CUDA_VISIBLE_DEVICES: '0,3'}\n") == frozenset({0, 3})
    assert gpus("    env: {CUDA_VISIBLE_DEVICES: 'GPU-aaaa'}\n") is None


def test_arguments_are_known_by_sglangs_names() -> None:
    wanted = wanted_args(server(args={"tp": 8, "speculative-num-steps": 5, "ep": 2}))
    assert (wanted["tp_size"], wanted["speculative_num_steps"], wanted["ep_size"]) == (8, 5, 2)


def test_a_secret_is_filled_in_from_the_environment_and_known_as_one() -> None:
    entry = server(args={"api-key": "${SGL_KEY}"}, env={"HF_TOKEN": "${HF}"})
    environment = {"SGL_KEY": "sk-very-secret", "HF": "hf_other"}
    assert expand("Bearer ${SGL_KEY}", environment) == "Bearer sk-very-secret"
    assert values(entry, environment) == ["hf_other", "sk-very-secret"]
    with pytest.raises(InventoryError, match=r"\$\{SGL_KEY\}, which is not set"):
        expand("${SGL_KEY}", {})


@given(st.text(), st.text())
def test_expansion_touches_nothing_but_references(text: str, value: str) -> None:
    if "${" not in text:
        assert expand(text, {"A": value}) == text
    assert expand("${A}", {"A": value}) == value
    assert json.loads(expand('{"token": "x-${A}", "n": 8}', {"A": value})) == {"token": f"x-{value}", "n": 8}


PRACTICE = GOOD.replace("nodes:\n", "nodes:\n  lab: {practice: true}\n  desk: {practice: true}\n").replace(
    "groups:\n", "groups:\n  mixed: [lab, second]\n  toys: [desk, lab]\n"
)


@pytest.mark.parametrize(
    ("node", "name"), [(None, "lab"), ("lab", "lab"), ("desk", "desk"), ("toys", "desk")]
)
def test_the_practice_node_is_found_although_it_is_not_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str | None, name: str
) -> None:
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path / "none"))
    assert inventory.practice_name(write(tmp_path, PRACTICE), node) == name


def test_the_default_node_is_preferred_if_it_is_a_practice_node(tmp_path: Path) -> None:
    file = write(tmp_path, PRACTICE.replace("node: blackwell", "node: desk"))
    assert inventory.practice_name(file, None) == "desk"


@pytest.mark.parametrize(("node", "told"), [("blackwell", "'blackwell'"), ("mixed", "'second'")])
def test_a_real_node_is_no_practice_node(tmp_path: Path, node: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"{told} is no practice node") as caught:
        inventory.practice_name(write(tmp_path, PRACTICE), node)
    assert caught.value.hint.startswith("type --node lab")


def test_the_inventory_that_the_practice_node_wrote_is_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXOPS_PRACTICE_DIR", str(tmp_path))
    assert inventory.practice_name(write(tmp_path, GOOD), "second") == "second"
