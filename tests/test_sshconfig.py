"""ssh_config means what it means to OpenSSH: `ssh -G` is the judge."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

import pytest

from remote.errors import ConnectError
from remote.sshconfig import Hop, Target, resolve


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of our own. (ssh takes its home from the password file: the tests name paths in full.)"""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def config(directory: Path, text: str) -> str:
    path = directory / "ssh_config"
    path.write_text(text)
    return str(path)


def resolved(file: str, host: str, **overrides: object) -> tuple[Hop, ...]:
    return resolve(Target("node", host, ssh_config=file, **overrides))  # type: ignore[arg-type]


def test_the_command_by_hand_leads_to_the_same_place(tmp_path: Path) -> None:
    """Without the inventory's port it led to another server."""
    plain = resolve(Target("node", "gpu7", user="root"))
    assert plain[-1].by_hand == "ssh root@gpu7"
    file = config(tmp_path, "Host gate\n  Port 2200\n")
    hops = resolved(
        file,
        "127.0.0.1",
        user="root",
        port=2222,
        gateway="ops@gate",
        identity_file="~/a key",
        known_hosts="/k",
    )
    key = f"-i '{tmp_path}/a key'"
    assert [hop.by_hand for hop in hops] == [
        f"ssh -F {file} -p 2200 -o UserKnownHostsFile=/k ops@gate",
        f"ssh -F {file} -p 2222 {key} -J ops@gate -o UserKnownHostsFile=/k root@127.0.0.1",
    ]


def openssh(file: str, host: str, *options: str) -> dict[str, list[str]]:
    """What ssh itself makes of the file: {lower-case keyword: values}."""
    shown = subprocess.run(
        ["ssh", "-G", "-F", file, *options, host], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    values: dict[str, list[str]] = {}
    for line in shown.splitlines():
        keyword, _, value = line.partition(" ")
        values.setdefault(keyword, []).append(value)
    return values


CONFIGS = {
    "plain": "Host node-a\n  HostName 10.0.0.5\n  User ops\n  Port 2222\n",
    "first value wins": "Host node-a\n  Port 1\nHost node-*\n  Port 2\n  User wide\nHost *\n  User all\n",
    "negated pattern": "Host * !node-a\n  User wrong\nHost node-a\n  User right\n",
    "comments and quotes": 'Host node-a # the big one\n  Port = 2222 # why not\n  User "ops"\n',
    "capitals": "HOST node-a\n  PORT 2222\n  hostname 10.0.0.5\n",
    "match host": "Match host node-a\n  Port 2222\nMatch originalhost other\n  User wrong\n",
    "match capitals": "Match Host node-b\n  Port 1\nMatch User nobody Host node-a\n  Port 3\n",
    "match user": "Host node-a\n  User ops\nMatch user ops\n  Port 2222\n",
    "match final": "Match final host 10.0.0.5\n  Port 2222\nHost node-a\n  HostName 10.0.0.5\n",
    "token in host name": "Host node-?\n  HostName %h.example.com\n",
    "key alias": "Host node-a\n  HostKeyAlias the-node\n  Port 2222\n",
    "known hosts files": "Host node-a\n  UserKnownHostsFile /x/a /x/%k.b\n  GlobalKnownHostsFile /x/g\n",
    "no known hosts": "Host node-a\n  UserKnownHostsFile none\n  GlobalKnownHostsFile none\n",
    "identity files": "Host node-a\n  IdentityFile /x/one\n  IdentityFile /x/two\n  IdentitiesOnly yes\n",
    "strict": "Host node-a\n  StrictHostKeyChecking no\n  HashKnownHosts yes\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_values_are_those_of_openssh(tmp_path: Path, name: str) -> None:
    file = config(tmp_path, CONFIGS[name])
    (hop,) = resolved(file, "node-a")
    theirs = openssh(file, "node-a")
    assert [hop.host] == theirs["hostname"]
    assert [str(hop.port)] == theirs["port"]
    assert [hop.user] == theirs["user"]
    assert hop.hash_known_hosts == (theirs["hashknownhosts"] == ["yes"])
    assert hop.identities_only == (theirs["identitiesonly"] == ["yes"])
    alias = theirs.get("hostkeyalias", [None])[0]
    if alias:
        assert hop.lookup_name == alias
    files = {"user": hop.user_known_hosts, "global": hop.global_known_hosts}
    for kind, ours in files.items():
        named = theirs[f"{kind}knownhostsfile"]
        if f"{kind}knownhostsfile" in CONFIGS[name].lower() and named != ["none"]:
            assert [" ".join(map(str, ours))] == named
    if "identityfile" in CONFIGS[name].lower():
        assert [str(path) for path in hop.identity_files] == theirs["identityfile"]
    if named == ["none"]:
        assert hop.known_hosts == ()


def test_included_files_stand_in_their_place(tmp_path: Path) -> None:
    folder = tmp_path / "config.d"
    folder.mkdir()
    (folder / "a.conf").write_text("Host node-a\n  Port 2222\nHost node-b\n  Port 3333\n")
    (folder / "b.conf").write_text("User included\n")
    file = config(
        tmp_path,
        f"Include {folder}/a*.conf {folder}/missing\n"
        f"Host node-b\n  Include {folder}/b.conf\n  HostName 10.0.0.6\n"
        f"Host node-c\n  Include {folder}/a.conf\n"
        "Host *\n  User outside\n  Port 4444\n",
    )
    for name in ("node-a", "node-b", "node-c", "node-d"):
        (hop,) = resolved(file, name)
        theirs = openssh(file, name)
        assert [hop.host, str(hop.port), hop.user] == [theirs[k][0] for k in ("hostname", "port", "user")], (
            name
        )


def test_the_users_file_comes_before_the_systems_and_relative_includes_lie_beside_it(home: Path) -> None:
    folder = home / ".ssh"
    folder.mkdir()
    (folder / "config").write_text("Include more\nHost node-a\n  User ops\n")
    (folder / "more").write_text("Host node-a\n  Port 2222\n")
    (hop,) = resolve(Target("node", "node-a"))
    assert (hop.user, hop.port) == ("ops", 2222)
    assert hop.user_known_hosts[0] == folder / "known_hosts"


def test_a_file_that_includes_itself_is_told(tmp_path: Path) -> None:
    file = config(tmp_path, f"Include {tmp_path}/ssh_config\n")
    with pytest.raises(ConnectError, match="includes itself"):
        resolved(file, "node-a")


def test_a_criterion_that_is_not_understood_never_applies_and_is_noted(tmp_path: Path) -> None:
    file = config(tmp_path, "Match localnetwork 10.0.0.0/8\n  User wrong\nHost *\n  User right\n")
    (hop,) = resolved(file, "node-a")
    assert hop.user == "right"
    assert "localnetwork" in hop.notes[0]


def test_the_inventory_comes_before_ssh_config(tmp_path: Path) -> None:
    text = "Host node-a\n  User ops\n  Port 2222\n  IdentityFile /x/one\n  ProxyCommand connect %h %p %r\n"
    file = config(tmp_path, text)
    (hop,) = resolved(
        file,
        "node-a",
        user="root",
        port=22,
        identity_file="~/key",
        known_hosts="~/hosts",
        connect_timeout_s=3,
    )
    assert (hop.user, hop.port) == ("root", 22)
    assert hop.lookup_name == "node-a"
    assert hop.identity_files == (tmp_path / "key", Path("/x/one"))
    assert hop.required_identity == tmp_path / "key"
    assert hop.user_known_hosts == (tmp_path / "hosts",)
    assert hop.proxy_command == "connect node-a 22 root"


@pytest.mark.parametrize(
    ("host", "port", "alias", "expected"),
    [
        ("192.0.2.10", 22, None, "192.0.2.10"),
        ("192.0.2.10", 22121, None, "[192.0.2.10]:22121"),
        ("Node-A", 2222, None, "[node-a]:2222"),
        ("192.0.2.10", 22121, "the-node", "the-node"),
        ("fe80::1", 22, None, "fe80::1"),
        ("fe80::1", 2222, None, "[fe80::1]:2222"),
    ],
)
def test_the_name_that_is_looked_up(
    tmp_path: Path, host: str, port: int, alias: str | None, expected: str
) -> None:
    """Field case 091: '[192.0.2.10]:22121' is looked up for that host and port."""
    file = config(tmp_path, f"HostKeyAlias {alias}\n" if alias else "")
    assert resolved(file, host, port=port)[0].lookup_name == expected


# Jump hosts

FIELD_CASE_092 = """Host node-a
    HostName 10.0.0.5
    ProxyJump none
Host 10.0.*
    User userC
    ProxyJump userA@hop1,userB@hop2
"""


def chain(hops: tuple[Hop, ...]) -> list[str]:
    return [f"{hop.user}@{hop.host}:{hop.port}" for hop in hops]


def test_proxyjump_none_and_chains_with_users(tmp_path: Path) -> None:
    """Field case 092, first and second line."""
    file = config(tmp_path, FIELD_CASE_092)
    assert [hop.host for hop in resolved(file, "node-a")] == ["10.0.0.5"]
    assert chain(resolved(file, "10.0.0.7")) == ["userA@hop1:22", "userB@hop2:22", "userC@10.0.0.7:22"]


def test_the_gateway_of_the_inventory_comes_before_ssh_config(tmp_path: Path) -> None:
    file = config(tmp_path, FIELD_CASE_092)
    assert chain(resolved(file, "10.0.0.7", gateway="none")) == ["userC@10.0.0.7:22"]
    assert chain(resolved(file, "10.0.0.7", gateway="ops@gate:2200")) == [
        "ops@gate:2200",
        "userC@10.0.0.7:22",
    ]


def test_jump_hosts_have_their_own_ssh_config(tmp_path: Path) -> None:
    file = config(
        tmp_path,
        "Host inner\n  ProxyJump gate\nHost gate\n  HostName gate.example\n  User porter\n  Port 2200\n"
        "  ProxyJump outer\nHost outer\n  User outsider\nHost *\n  User me\n",
    )
    assert chain(resolved(file, "inner")) == [
        "outsider@outer:22",
        "porter@gate.example:2200",
        "me@inner:22",
    ]


def test_a_chain_replaces_the_jump_of_its_later_hosts(tmp_path: Path) -> None:
    """As ssh -J a,b does: b is reached through a, whatever ssh_config says of b."""
    file = config(
        tmp_path, "Host b\n  ProxyJump elsewhere\nHost target\n  ProxyJump a,b\nHost *\n  User me\n"
    )
    assert chain(resolved(file, "target")) == ["me@a:22", "me@b:22", "me@target:22"]


def test_a_jump_host_does_not_jump_through_itself(tmp_path: Path) -> None:
    file = config(tmp_path, "Host *\n  User me\n  ProxyJump gate\n")
    assert chain(resolved(file, "node-a")) == ["me@gate:22", "me@node-a:22"]
    assert chain(resolved(file, "gate")) == ["me@gate:22"]


def test_jump_hosts_in_a_circle_are_told(tmp_path: Path) -> None:
    file = config(tmp_path, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(ConnectError, match="jump through each other"):
        resolved(file, "a")


def test_whichever_of_proxyjump_and_proxycommand_comes_first_counts(tmp_path: Path) -> None:
    file = config(
        tmp_path, "Host a\n  ProxyCommand nc %h %p\nHost b\n  ProxyJump gate\nHost *\n  ProxyJump gate\n"
    )
    (hop,) = resolved(file, "a")
    assert hop.proxy_command == "nc a 22"
    assert [hop.name for hop in resolved(file, "b")] == ["gate", "b"]
    assert all(hop.proxy_command is None for hop in resolved(file, "b"))


@pytest.mark.parametrize("gateway", ["", "a b", "user@", "gate:ssh", "gate,,other", "-oProxyCommand=x"])
def test_a_gateway_that_is_none_is_told(tmp_path: Path, gateway: str) -> None:
    with pytest.raises(ConnectError) as caught:
        resolved(config(tmp_path, ""), "node-a", gateway=gateway)
    assert caught.value.exit_code == 3


def test_a_port_that_is_no_number_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="port of node-a is not a number: 'ssh'"):
        resolved(config(tmp_path, "Port ssh\n"), "node-a")


def test_a_missing_ssh_config_is_told_only_if_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="there is no ssh_config"):
        resolved(str(tmp_path / "missing"), "node-a")
    (hop,) = resolve(Target("node", "node-a"))
    assert hop.user == getpass.getuser()


def test_the_agent_is_where_ssh_config_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    expected = {
        "": "/run/agent",
        "IdentityAgent none": None,
        "IdentityAgent SSH_AUTH_SOCK": "/run/agent",
        "IdentityAgent $OTHER_AGENT": "/run/other",
        "IdentityAgent ~/agent": str(tmp_path / "agent"),
    }
    for text, socket in expected.items():
        assert resolved(config(tmp_path, text + "\n"), "node-a")[0].agent_socket == socket, text
