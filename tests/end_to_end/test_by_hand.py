"""A node written into an inventory by hand: nothing of it says that it is a practice node."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.end_to_end import shapes
from tests.end_to_end.kit import Practice, Ran, alive, environment, run, standing


@dataclass(frozen=True)
class Engineer:
    """Somebody with an account and an inventory of their own, who has never met the node."""

    home: Path
    node: Practice

    @property
    def inventory(self) -> Path:
        return self.home / "mine.yaml"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def write(self, **changes: object) -> None:
        """The keys that the README names, copied from what the node's owner told."""
        told = self.node.record
        entry = {key: told[key] for key in ("host", "port", "user", "identity_file", "python", "state_dir")}
        server = {key: value for key, value in told["server"].items() if key != "name"}
        content = {
            "defaults": {"node": "gpu7", "fix": "eagle3-embedding-capture"},
            "nodes": {"gpu7": {**entry, "server": "kimi", **changes}},
            "servers": {"kimi": server},
        }
        self.inventory.write_text(yaml.safe_dump(content))

    def inv(self, *words: str, **env: str) -> Ran:
        nowhere = {"HOME": str(self.home), "FIXOPS_PRACTICE_DIR": str(self.home / "no-practice")}
        given: Mapping[str, str] = {**environment(**nowhere), "FIXOPS_INVENTORY": str(self.inventory), **env}
        return run(*words, env={key: value for key, value in given.items() if key != "SSH_AUTH_SOCK"})


@pytest.fixture(scope="module", params=["openssh", "asyncssh"])
def engineer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engineer]:
    root = tmp_path_factory.mktemp("node").resolve()
    home = root / "home"
    home.mkdir()
    for node in standing(root / "p", "--ssh", request.param):
        yield Engineer(home, node)


def keygen(*words: str | Path) -> str:
    return subprocess.run(["ssh-keygen", *words], capture_output=True, text=True, check=True).stdout


def fingerprint(key: Path) -> str:
    return keygen("-lf", key).split()[1]


def test_it_is_deployed_to(engineer: Engineer) -> None:
    engineer.write()
    shown = fingerprint(next((engineer.node.root / "ssh").glob("host_key.pub")))
    engineer.inv("verify", "--json").refuses(3, shown, "inv trust --node gpu7")
    only_shown = engineer.inv("trust", "--json").is_(3)
    assert shown in only_shown.out
    assert not engineer.known_hosts.exists()
    engineer.inv("trust", "--yes").is_(0)
    looked_up: list[str | Path] = [
        "ssh-keygen",
        "-F",
        f"[127.0.0.1]:{engineer.node.ssh_port}",
        "-f",
        engineer.known_hosts,
    ]
    assert subprocess.run(looked_up, capture_output=True, check=False).returncode == 0
    assert engineer.inv("trust", "--json").is_(0).entry["keys"][-1]["status"] == "known"

    found = engineer.inv("verify", "--json").is_(7)
    assert shapes.hold(found, "verify") == ["gpu7"]
    assert found.verdicts["source.state"] == found.verdicts["process.single"] == "fail"
    done = engineer.inv("deploy-fix", "--yes", "--json").is_(0)
    assert shapes.hold(done, "deploy-fix") == ["gpu7"]
    pid = engineer.node.server_pid()
    again = engineer.inv("deploy-fix", "--yes", "--json").is_(0)
    assert not [action for action in again.entry["actions"] if action["changed"]]
    assert engineer.node.server_pid() == pid


@pytest.mark.parametrize("engineer", ["openssh"], indirect=True)
def test_all_else_works_the_same(engineer: Engineer) -> None:
    engineer.write()
    engineer.inv("trust", "--yes").is_(0)
    engineer.inv("deploy-fix", "--yes", "--json").is_(0)
    pid = engineer.node.server_pid()
    told = engineer.inv("status", "--json").is_(0)
    shapes.hold(told, "status")
    assert (told.entry["server"]["state"], told.entry["server"]["pid"]) == ("up", pid)
    assert told.entry["fix"]["state"] == "ours"
    assert [gpu["holders"][0]["ours"] for gpu in told.entry["gpus"]] == [True, True]
    boots = engineer.inv("logs", "--json").is_(0)
    shapes.hold(boots, "logs")
    assert boots.entry["boots"][-1]["state"] == "ready"
    assert boots.entry["boots"][-1]["args"]["speculative_num_steps"] == 5
    shapes.hold(engineer.inv("history", "--json").is_(0), "history")
    shapes.hold(engineer.inv("rollback", "--yes", "--json").is_(0), "rollback")
    assert not alive(pid)


@pytest.mark.parametrize("engineer", ["openssh"], indirect=True)
def test_a_host_key_that_changed_is_never_accepted(engineer: Engineer) -> None:
    engineer.write()
    other = engineer.home / "other_key"
    if not other.exists():
        keygen("-q", "-t", "ed25519", "-N", "", "-f", other)
    known = engineer.home / "wrong_known_hosts"
    public = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    known.write_text(f"[127.0.0.1]:{engineer.node.ssh_port} {public}\n")
    engineer.write(known_hosts=str(known))
    shown = fingerprint(engineer.node.root / "ssh" / "host_key.pub")
    before = known.read_text()
    for command in (["verify"], ["deploy-fix", "--yes"], ["rollback", "--yes"], ["logs"]):
        engineer.inv(*command).refuses(3, "changed", shown, fingerprint(other.with_suffix(".pub")))
    engineer.inv("trust", "--yes").refuses(5, "changed")
    assert known.read_text() == before


OLD_PYTHONS = sorted(
    path
    for version in ("2.7", "3.6", "3.7")
    for path in Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
)
# An interpreter that says it is an old one, for machines that have none.
PRETENDER = """#!/bin/sh
shift; shift; shift; code=$1; shift
exec {python} -B -u -c "import sys; sys.version_info = (3, 6, 15); exec(sys.argv.pop(1))" "$code" "$@"
"""


@pytest.mark.parametrize("engineer", ["openssh"], indirect=True)
class TestUnusable:
    """What stands between an engineer and a node: one message that names it, and nothing happens."""

    def refused(self, engineer: Engineer, *words: str, **changes: object) -> None:
        known = engineer.node.record["known_hosts"]
        engineer.write(**{"known_hosts": known, **changes})
        before = engineer.node.everything()
        engineer.inv("deploy-fix", "--yes", "--json").refuses(3, "gpu7", *words)
        assert engineer.node.everything() == before

    def test_key_file_missing(self, engineer: Engineer) -> None:
        path = engineer.home / "no_such_key"
        self.refused(engineer, str(path), identity_file=str(path))

    def test_key_not_accepted(self, engineer: Engineer) -> None:
        path = engineer.home / "unknown_key"
        keygen("-q", "-t", "ed25519", "-N", "", "-f", path)
        self.refused(engineer, str(path), engineer.node.record["user"], identity_file=str(path))

    def test_nobody_listens(self, engineer: Engineer) -> None:
        self.refused(engineer, "refuses", "127.0.0.1:1 ", port=1)

    def test_the_name_has_no_address(self, engineer: Engineer) -> None:
        self.refused(engineer, "no-such-host.invalid", host="no-such-host.invalid")

    def test_what_answers_is_no_ssh_server(self, engineer: Engineer) -> None:
        self.refused(engineer, "ssh", port=engineer.node.server_port)

    @pytest.mark.parametrize("python", ["/opt/nowhere/bin/python", "no-such-python"])
    def test_there_is_no_python(self, engineer: Engineer, python: str) -> None:
        self.refused(engineer, python, "python:", python=python)

    @pytest.mark.parametrize("python", ["/bin/true", "/etc/passwd", "/"])
    def test_what_is_there_is_no_python(self, engineer: Engineer, python: str) -> None:
        self.refused(engineer, python, python=python)

    @pytest.mark.parametrize(
        "python", [None, *OLD_PYTHONS], ids=lambda path: (path and path.parts[-3]) or "-"
    )
    def test_python_is_too_old(self, engineer: Engineer, python: Path | None) -> None:
        if python is None:
            python = engineer.home / "python3.6"
            python.write_text(PRETENDER.format(python=engineer.node.record["python"]))
            python.chmod(0o755)
        version = re.search(r"(\d\.\d)(?:\.\d+/bin/python)?$", str(python))
        assert version
        self.refused(engineer, f"Python {version[1]}", "3.8", python=str(python))
