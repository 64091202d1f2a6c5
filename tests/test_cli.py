"""From a command's outcome to its exit code, its message and its one JSON document."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from remote import cli
from remote.checks import Check
from remote.cli import Options, Outcome
from remote.deploy import Deployed
from remote.errors import (
    ConnectError,
    ExitCode,
    FixopsError,
    LockedError,
    NodeError,
    RefusedError,
    UnhealthyError,
    UsageError,
    worst,
)
from remote.node_errors import translate
from remote.redact import KnownSecrets
from tests import pictures


@dataclass(frozen=True)
class Result:
    node: str
    exit_code: ExitCode = ExitCode.OK
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "text": self.text}


JSON = Options("verify", json=True)


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out = capsys.readouterr().out
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 7, 0], 7),
        ([8, 9], 8),
        ([9, 0], 9),
        ([4, 8], 4),
        ([5, 4], 5),
        ([7, 5], 7),
        ([6, 7], 6),
        ([1, 6], 1),
        ([3, 1], 3),
        ([], 0),
    ],
)
def test_a_groups_code_is_that_of_its_worst_node(codes: list[int], expected: int) -> None:
    assert worst([ExitCode(code) for code in codes]) == expected


@pytest.mark.parametrize(("code", "has_error"), [(0, False), (7, False), (8, False), (9, False)])
def test_a_verdict_is_no_error(code: int, has_error: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.finish(JSON, [Outcome("n", Result("n", ExitCode(code)), None)]) == code
    found = document(capsys)
    assert set(found) == {"schema", "command", "ok", "exit_code", "nodes", "error"}
    assert (found["schema"], found["command"]) == (1, "verify")
    assert (found["ok"], found["exit_code"]) == (code == 0, code)
    assert (found["error"] is not None) is has_error
    assert found["nodes"] == [{"node": "n", "text": ""}]


@pytest.mark.parametrize("kind", [UsageError, ConnectError, LockedError, RefusedError, UnhealthyError])
def test_an_error_is_one_short_message_and_one_document(
    kind: type[FixopsError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("n: it broke", hint="inv mend", node="n")
    assert cli.finish(JSON, [Outcome("n", None, error)]) == kind.exit_code
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["error"] == {"code": kind.code, "message": "n: it broke", "hint": "inv mend"}
    assert found["nodes"][0]["error"]["message"] == "n: it broke"
    assert "it broke" in captured.err
    assert "inv mend" in captured.err
    assert "Traceback" not in captured.err


def test_the_groups_error_is_the_worst_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [
        Outcome("a", None, RefusedError("a: refused", hint="x")),
        Outcome("b", None, ConnectError("b: unreachable", hint="y")),
        Outcome("c", Result("c"), None),
    ]
    assert cli.finish(JSON, outcomes) == ExitCode.CONNECT
    found = document(capsys)
    assert found["error"]["message"] == "b: unreachable"
    assert [node.get("error", {}).get("code") for node in found["nodes"]] == ["refused", "connect", None]


def leave(body: Any) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.guarded(Options("verify"), body)
    return int(str(caught.value.code))


def test_sigterm_is_told_as_ctrl_c_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A runner that gave up on a deploy got no word of what was done, and no JSON."""

    def terminated() -> ExitCode:
        os.kill(os.getpid(), signal.SIGTERM)
        return ExitCode.OK

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert leave(terminated) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "interrupted" in capsys.readouterr().err


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> ExitCode:
        raise KeyboardInterrupt

    assert leave(interrupted) == 130
    assert "inv verify again is safe" in capsys.readouterr().err


def test_ctrl_c_on_a_group_tells_of_the_nodes_that_were_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(node: Any, *_: Any) -> Outcome:
        if node.name == "b":
            raise KeyboardInterrupt
        return Outcome(node.name, Result(node.name), None)

    monkeypatch.setattr(cli, "_one", one)
    options = Options("stop", "fleet", json=True)
    nodes: Any = [SimpleNamespace(name=name) for name in "abc"]
    assert cli.on_nodes(options, nodes, one, print, parallel=False) == 130  # type: ignore[arg-type]
    found = document(capsys)
    codes = [(entry["node"], (entry.get("error") or {}).get("code")) for entry in found["nodes"]]
    assert codes == [("a", None), ("b", "interrupted"), ("c", "not-begun")]
    assert found["error"]["message"] == "b: interrupted"
    assert found["error"]["hint"].startswith("inv stop")


@pytest.mark.usefixtures("no_sessions")
@pytest.mark.parametrize("as_json", [True, False])
def test_ctrl_c_on_a_group_that_is_read_keeps_what_was_answered(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that have not answered are named, and nobody waits for them."""
    # What a thread begins after another thing, it has done that.
    monkeypatch.setattr(cli, "MAX_PARALLEL", 2)
    over = threading.Event()

    def each(node: Any, _: Any) -> Result:
        if node.name == "b":
            os.kill(os.getpid(), signal.SIGINT)
        if node.name != "a":
            over.wait(60)
        return Result(node.name)

    options, shown = Options("verify", "fleet", json=as_json), list[str]()
    code = cli.on_nodes(
        options, nodes("c", "a", "b", "d"), each, lambda found: shown.append(found.node), parallel=True
    )
    over.set()
    assert code == 130
    told = capsys.readouterr()
    if as_json:
        found = json.loads(told.out)
        codes = [(entry["node"], (entry.get("error") or {}).get("code")) for entry in found["nodes"]]
        assert codes == [("c", "interrupted"), ("a", None), ("b", "interrupted"), ("d", "interrupted")]
        assert (found["exit_code"], found["error"]["message"]) == (130, "c: interrupted")
    else:
        assert shown == ["a"]
    assert told.err.count("error: ") == 1
    assert "4 nodes: 1 done; 3 interrupted: c, b, d" in told.err


@pytest.mark.usefixtures("no_sessions")
@pytest.mark.parametrize("parallel", [True, False])
def test_a_bug_in_showing_one_node_does_not_hide_the_others(
    parallel: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []

    def show(found: Result) -> None:
        if found.node == "b":
            raise KeyError("oops")
        shown.append(found.node)

    def each(node: Any, _: Any) -> Result:
        return Result(node.name)

    options = Options("verify")
    code = cli.on_nodes(options, nodes("a", "b", "c"), each, show, parallel=parallel, go_on=True)
    assert (code, shown) == (ExitCode.BUG, ["a", "c"])
    told = capsys.readouterr().err
    assert told.count("Traceback") == told.count("KeyError: 'oops'") == 1
    assert "error: b: a bug in fixops" in told


def test_a_bug_in_one_nodes_json_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    class Raises(Result):
        def to_json(self) -> dict[str, Any]:
            raise KeyError("oops")

    class IsNoJson(Result):
        def to_json(self) -> dict[str, Any]:
            return {"node": self.node, "when": object()}

    for broken, said in ((Raises("b"), "oops"), (IsNoJson("b"), "not JSON serializable")):
        outcomes = [Outcome(each.node, each, None) for each in (Result("a"), broken, Result("c"))]
        assert cli.finish(JSON, outcomes) == ExitCode.BUG
        told = capsys.readouterr()
        found = json.loads(told.out)
        assert [entry["node"] for entry in found["nodes"]] == ["a", "b", "c"]
        assert found["nodes"][2]["text"] == ""
        assert found["error"] == found["nodes"][1]["error"]
        assert found["error"]["code"] == "internal"
        assert told.err.count("Traceback") == 1
        assert said in told.err


@pytest.mark.parametrize("replaces", [True, False])
def test_a_server_that_came_up_and_does_not_generate_is_an_error(
    capsys: pytest.CaptureFixture[str], replaces: bool
) -> None:
    """The deploy's 6 comes from a check of its result."""
    silent = Check("health.generate", "fail", "tokens", "no answer within 30 s", remedy="inv restart")
    picture = pictures.picture(pictures.healthy())
    pushed = {"id": "push-code", "changed": replaces, "detail": ""}
    done = Deployed("blackwell", "d1", (pushed,), (silent,), picture, dry_run=False)
    assert cli.finish(JSON, [Outcome("blackwell", done, None)]) == ExitCode.UNHEALTHY
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["error"]["code"] == "unhealthy"
    assert "blackwell" in found["error"]["message"]
    # Where it replaced nothing, a rollback would undo an earlier deploy.
    assert ("inv rollback --node blackwell" in found["error"]["hint"]) is replaces
    assert found["nodes"][0]["checks"][0]["id"] == "health.generate"
    assert "no answer within 30 s" in captured.err


def test_a_bug_is_1_and_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    def bug() -> ExitCode:
        raise KeyError("oops")

    assert leave(bug) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "oops" in err


def nodes(*names: str) -> list[Any]:
    return [SimpleNamespace(name=name) for name in names]


@pytest.fixture
def no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of a node is the node itself."""
    monkeypatch.setattr(cli, "open_session", lambda node, _: contextlib.nullcontext(node))


@pytest.mark.usefixtures("no_sessions")
def test_a_bug_on_one_node_does_not_throw_away_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    def each(node: Any, _: Any) -> Result:
        if node.name == "b":
            raise KeyError("oops")
        return Result(node.name)

    assert cli.on_nodes(JSON, nodes("a", "b", "c"), each, print, parallel=True) == ExitCode.BUG
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert [entry["node"] for entry in found["nodes"]] == ["a", "b", "c"]
    assert found["error"] == found["nodes"][1]["error"]
    assert (found["error"]["code"], found["error"]["message"][:3]) == ("internal", "b: ")
    assert "Traceback" in told.err
    assert "oops" in told.err
    outcome = cli.without_session(nodes("a")[0], lambda _: each(nodes("b")[0], None))
    assert outcome.exit_code == ExitCode.BUG


@pytest.mark.usefixtures("no_sessions")
def test_the_nodes_that_a_change_did_not_come_to_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def each(node: Any, _: Any) -> Result:
        if node.name == "b":
            raise RefusedError("no", hint="mend")
        return Result(node.name)

    code = cli.on_nodes(JSON, nodes("a", "b", "c", "d"), each, print, parallel=False)
    assert code == ExitCode.REFUSED
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert [entry["node"] for entry in found["nodes"]] == ["a", "b", "c", "d"]
    codes = [entry.get("error", {}).get("code") for entry in found["nodes"]]
    assert codes == [None, "refused", "not-begun", "not-begun"]
    assert found["error"]["message"] == "b: no"
    assert told.err.count("error: ") == 1
    assert "not begun: c, d" in told.err


@pytest.mark.usefixtures("no_sessions")
def test_a_message_always_names_its_node_by_the_inventorys_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Also when the name stands somewhere in it, as in a key file's path."""

    def each(node: Any, _: Any) -> Result:
        if node.name == "a":
            raise RefusedError("the key file /keys/a is not there")
        raise RefusedError("b is locked by ann", node="b")

    cli.on_nodes(JSON, nodes("a", "b"), each, print, parallel=True)
    first, second = document(capsys)["nodes"]
    assert first["error"]["message"] == "a: the key file /keys/a is not there"
    assert second["error"]["message"] == "b is locked by ann"


def test_a_group_is_told_in_one_line_the_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    checked = Result("b", ExitCode.CHECK_FAILED)
    outcomes = [
        Outcome("a", Result("a"), None),
        Outcome("b", checked, None),
        Outcome("c", None, ConnectError("c: no", node="c")),
        Outcome("d", None, ConnectError("d: no", node="d")),
    ]
    assert cli.finish(Options("verify"), outcomes) == ExitCode.CONNECT
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "4 nodes: 1 done; 2 not reached: c, d; 1 failed a check: b"
    cli.finish(Options("verify"), outcomes[:1])
    assert capsys.readouterr().err == ""


def test_secrets_are_in_no_document_and_no_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_known", KnownSecrets({"sk-hunter2"}))
    error = RefusedError(
        "n: --api-key sk-hunter2 is wrong", hint="not sk-hunter2", data={"diff": "+ sk-hunter2"}
    )
    outcomes = [
        Outcome("n", Result("n", text="api_key='whatever-it-is' and sk-hunter2"), None),
        Outcome("m", None, error),
    ]
    cli.finish(JSON, outcomes)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "sk-hunter2" not in text
        assert "whatever-it-is" not in text


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(UsageError, match="no terminal"):
        cli.must_confirm(Options("deploy-fix"), yes=False, dry_run=False)
    cli.must_confirm(Options("deploy-fix"), yes=True, dry_run=False)
    cli.must_confirm(Options("deploy-fix"), yes=False, dry_run=True)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("locked", ExitCode.LOCKED),
        ("no-space", ExitCode.REFUSED),
        ("read-only", ExitCode.REFUSED),
        ("permission", ExitCode.REFUSED),
        ("precondition", ExitCode.REFUSED),
        ("compile", ExitCode.REFUSED),
        ("missing", ExitCode.REFUSED),
        ("internal", ExitCode.BUG),
        ("not-locked", ExitCode.LOCKED),
    ],
)
def test_what_fails_on_the_node_has_the_contracts_code(kind: str, code: ExitCode) -> None:
    holder = {"who": "ops@desk", "command": "deploy-fix x", "since": 1795979007.0}
    error = translate(NodeError(kind, "/x: no", {"holder": holder}), "blackwell", "write_files")
    assert error.exit_code == code
    assert "blackwell" in error.message
    assert error.hint
    if kind == "locked":
        assert "ops@desk" in error.message


def test_a_path_that_is_missing_is_not_always_one_of_the_inventory() -> None:
    """Of a lost original: "check the paths in the inventory"."""
    error = translate(NodeError("missing", "/state/blobs/ab: No such file"), "blackwell", "restore")
    assert "on the node" in error.hint


def test_a_strangers_title_does_not_steer_the_terminal() -> None:
    from remote.redact import printable

    assert (
        printable("python \x1b]0;owned\x07\x9b31m train.py")
        == "python \ufffd]0;owned\ufffd\ufffd31m train.py"
    )
    assert printable("a\tb\nc é 中") == "a\tb\nc é 中"
