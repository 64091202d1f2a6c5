"""What is to be typed next, typed as it stands, means the same node, fix and inventory."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tasks
from remote import cli, hints
from remote.checks import Check
from remote.cli import Options, Outcome
from remote.errors import ExitCode, RefusedError, UsageError
from remote.hints import Given, complete
from remote.render.checks import print_checks
from remote.render.console import aim, console

FLEET = Given("fleet", "mine", "other.yaml")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("inv restart --yes", "inv restart --yes --node left --inventory other.yaml --fix mine"),
        (
            "inv logs --node left; the server still runs: inv stop --node left",
            "inv logs --node left --inventory other.yaml; the server still runs:"
            " inv stop --node left --inventory other.yaml --fix mine",
        ),
        (
            "inv rollback --force --node left puts them back",
            "inv rollback --force --node left --inventory other.yaml --fix mine puts them back",
        ),
        (
            "(inv push-fix, then `inv history`)",
            "(inv push-fix --node left --inventory other.yaml --fix mine,"
            " then `inv history --node left --inventory other.yaml`)",
        ),
        (
            "inv deploy-fix --from-pristine again",
            "inv deploy-fix --from-pristine --node left --inventory other.yaml --fix mine again",
        ),
        ("inv fixes --inventory=a.yaml --node=b", "inv fixes --inventory=a.yaml --node=b"),
        ("inv deploy-fix --fix x", "inv deploy-fix --fix x --node left --inventory other.yaml"),
        ("inv runbook locked, inv practice.up, inv --dry", "inv runbook locked, inv practice.up, inv --dry"),
        ("check host in inventory.yaml", "check host in other.yaml"),
    ],
)
def test_commands_in_a_text_get_what_was_given(text: str, meant: str) -> None:
    assert complete(text, FLEET, "left") == meant
    assert complete(meant, FLEET, "left") == meant


def test_what_was_not_given_is_not_added() -> None:
    text = "inv deploy-fix --from-pristine, inventory.yaml"
    assert complete(text, Given(), "left") == text
    assert complete("inv stop", Given("fleet")) == "inv stop --node fleet"
    assert complete("inv stop", Given(several=True), "left") == "inv stop --node left"
    assert complete("inv stop", Given(inventory="a b")) == "inv stop --inventory 'a b'"


def test_the_tables_are_those_of_the_commands() -> None:
    with_fix, without, switches = set(), set(), set()
    for task in tasks.namespace.tasks.values():
        given = {argument.name: argument for argument in task.get_arguments()}
        (with_fix if "fix" in given else without).add(task.name.replace("_", "-"))
        switches |= {name.replace("_", "-") for name, each in given.items() if each.kind is bool}
    assert with_fix == hints.WITH_FIX
    assert without - {"runbook"} == hints.WITHOUT_FIX
    assert switches == hints.SWITCHES


def ended(options: Options, body: Any) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.guarded(options, body)
    return int(str(caught.value.code))


def test_an_errors_hint_is_for_the_node_that_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    options = Options("deploy-fix", "fleet", "other.yaml", json=True, fix="mine")
    error = RefusedError("left: does not fit", hint="inv deploy-fix --from-pristine", node="left")
    code = ended(options, lambda: cli.finish(options, [Outcome("left", None, error)]))
    said = capsys.readouterr()
    found, meant = (
        json.loads(said.out),
        "inv deploy-fix --from-pristine --node left --inventory other.yaml --fix mine",
    )
    assert code == 5
    assert found["error"]["hint"] == found["nodes"][0]["error"]["hint"] == meant
    assert f"next:  {meant}\n" in said.err


@pytest.mark.parametrize(
    ("command", "own", "meant"),
    [
        ("restart", (), "inv restart --yes --node fleet,"),
        ("rollback", ("--to", "20260101T000000Z-ab"), "--to 20260101T000000Z-ab --yes --node fleet"),
    ],
)
def test_without_a_terminal_the_same_command_is_named(
    command: str, own: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(command, "fleet", own=own)

    def body() -> ExitCode:
        cli.must_confirm(options, yes=False, dry_run=False)
        return ExitCode.OK

    assert ended(options, body) == 2
    said = capsys.readouterr().err
    assert "changes fleet" in said
    assert meant in said


class Checked:
    node = "left"
    exit_code = ExitCode.CHECK_FAILED
    check = Check("config.values", "fail", "a", "b", remedy="inv deploy-fix --node left")

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "checks": [self.check.to_json()]}


def test_a_remedy_names_the_fix_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    options = Options("verify", json=True, fix="practice-real-capture")
    ended(options, lambda: cli.finish(options, [Outcome("left", Checked(), None)]))
    (entry,) = json.loads(capsys.readouterr().out)["nodes"]
    meant = "inv deploy-fix --node left --fix practice-real-capture"
    assert entry["checks"][0]["remedy"] == meant
    aim(options.given())
    print_checks(console(), "left", [Checked.check])
    aim(Given())
    assert meant in capsys.readouterr().out


def test_the_file_that_the_environment_names_is_the_one_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """`set python in inventory.yaml` was said of another file; the commands read it without being told."""
    monkeypatch.setenv("FIXOPS_INVENTORY", "/etc/fleet.yaml")
    given = Options("status").given()
    assert complete("set it in inventory.yaml, then: inv status", given) == (
        "set it in /etc/fleet.yaml, then: inv status"
    )


@pytest.mark.parametrize(("command", "flag"), [("status", "--watch"), ("logs", "--follow")])
def test_what_shows_one_node_refuses_several(command: str, flag: str) -> None:
    from types import SimpleNamespace

    nodes: Any = [SimpleNamespace(name="left"), SimpleNamespace(name="right")]
    with pytest.raises(UsageError, match="left, right") as caught:
        cli.only(Options(command, "twins"), nodes, flag)
    assert caught.value.hint == f"inv {command} {flag} --node left"
    assert cli.only(Options(command, "left"), nodes[:1], flag) is nodes[0]
