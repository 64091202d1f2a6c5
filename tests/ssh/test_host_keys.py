"""Host keys of real SSH servers: which are accepted, where they are looked for, and how they are recorded."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from remote import hostkeys, trust
from remote.errors import RefusedError, UsageError
from remote.hostkeys import Status
from remote.practice.ssh_server import SshServer
from tests.ssh.kit import Place, other_key, refused, works


def blob_of(key: str) -> bytes:
    return base64.b64decode(key.split()[1])


def test_an_unknown_host_is_refused_and_told_where_was_looked(place: Place) -> None:
    place.known.write_text("")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert error.data["lookup_name"] == place.name
    assert place.name in error.message
    assert str(place.known) in error.message
    assert hostkeys.fingerprint(blob_of(place.key)) in error.message
    assert "inv trust --node blackwell" in error.hint
    assert place.known.read_text() == ""


def test_a_changed_host_key_is_refused_with_both_fingerprints(place: Place) -> None:
    false = other_key()
    place.known.write_text(f"{place.name} {false}\n")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-changed"
    for key in (false, place.key):
        assert hostkeys.fingerprint(blob_of(key)) in error.message
    assert f"{place.known}:1" in error.message
    assert "fingerprint" in error.hint


def test_an_entry_without_the_port_is_another_host(place: Place) -> None:
    """Field case 091, the other way round."""
    place.known.write_text(f"127.0.0.1 {place.key}\n")
    assert refused(place.target()).data["reason"] == "host-key-unknown"


def test_hashed_entries_are_found(place: Place) -> None:
    place.known.write_text(f"{hostkeys.hashed(place.name, b's' * 20)} {place.key}\n")
    assert works(place.target())


def test_the_wrong_file_is_named(place: Place) -> None:
    """Field case 091: the program loaded the ssh_config as known_hosts."""
    place.write(known=f"UserKnownHostsFile {place.config}\n  GlobalKnownHostsFile none")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert str(place.config) in error.message
    assert str(place.known) not in error.message


def test_hostkeyalias_is_what_is_looked_up(place: Place) -> None:
    place.write("HostKeyAlias the-node")
    assert refused(place.target()).data["lookup_name"] == "the-node"
    place.known.write_text(f"the-node {place.key}\n")
    assert works(place.target())
    place.known.write_text(f"the-node {other_key()}\n{place.name} {place.key}\n")
    assert refused(place.target()).data["reason"] == "host-key-changed"


def test_every_user_and_global_file_is_read(place: Place, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    place.write(known=f"UserKnownHostsFile {empty} {place.known}\n  GlobalKnownHostsFile none")
    assert works(place.target())
    place.write(known=f"UserKnownHostsFile none\n  GlobalKnownHostsFile {empty} {place.known}")
    assert works(place.target())
    place.write(known="UserKnownHostsFile none\n  GlobalKnownHostsFile none")
    assert refused(place.target()).data["searched"] == []


def test_the_usual_file_is_read_when_ssh_config_names_none(place: Place, home: Path) -> None:
    place.write(known="GlobalKnownHostsFile none")
    assert refused(place.target()).data["searched"][0] == str(home / ".ssh/known_hosts")
    (home / ".ssh").mkdir()
    (home / ".ssh/known_hosts").write_text(f"{place.name} {place.key}\n")
    assert works(place.target())


def test_the_inventorys_file_replaces_the_users(place: Place, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("")
    assert refused(place.target(known_hosts=str(mine))).data["searched"] == [str(mine)]


@pytest.mark.parametrize("laxness", ["no", "off", "accept-new"])
def test_strict_host_key_checking_is_not_given_up(place: Place, laxness: str) -> None:
    place.write(f"StrictHostKeyChecking {laxness}")
    place.known.write_text("")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert f"StrictHostKeyChecking {laxness} is not followed" in error.message
    place.known.write_text(f"{place.name} {other_key()}\n")
    assert refused(place.target()).data["reason"] == "host-key-changed"
    assert place.key not in place.known.read_text()


def test_revoked_and_authority_lines_do_not_let_a_key_pass(place: Place) -> None:
    place.known.write_text(f"{place.name} {place.key}\n@revoked * {place.key}\n")
    assert refused(place.target()).data["reason"] == "host-key-revoked"
    place.known.write_text(f"@cert-authority {place.name} {place.key}\n")
    error = refused(place.target())
    assert error.data["reason"] == "host-key-unknown"
    assert "@cert-authority" in error.message


@pytest.fixture(scope="module")
def many_keys(server: SshServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of an sshd with three host keys, to be run for one connection by ProxyCommand."""
    directory = tmp_path_factory.mktemp("sshd")
    lines = ["UsePAM no", "StrictModes no", f"AuthorizedKeysFile {server.identity_file}.pub"]
    for kind in ("rsa", "ecdsa", "ed25519"):
        key = directory / kind
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key], check=True, timeout=60)
        lines.append(f"HostKey {key}")
    (directory / "config").write_text("\n".join(lines) + "\n")
    return directory


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_server_is_asked_for_the_type_of_key_that_is_known(
    place: Place, many_keys: Path, kind: str
) -> None:
    """Whichever key the server would offer first; otherwise a known host would look changed."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    place.write(f"ProxyCommand {sshd} -i -f {many_keys}/config")
    key = (many_keys / f"{kind}.pub").read_text()
    place.known.write_text(f"{place.name} {key}")
    assert works(place.target())
    place.known.write_text("")
    assert "ssh-ed25519" in refused(place.target()).message


# Recording keys


def test_a_key_is_fetched_without_logging_in_and_recorded_once(place: Place) -> None:
    place.known.write_text("other.example " + other_key())  # without a line end
    place.write("HashKnownHosts no")
    (key,) = trust.fetch_host_key(place.target())
    assert key.check.status is Status.UNKNOWN
    assert key.public_key == place.key
    assert key.file == place.known
    recorded = trust.record(place.target(), key)
    assert recorded.written
    assert place.known.read_text().splitlines()[1] == f"{place.name} {place.key}"
    assert works(place.target())
    (again,) = trust.fetch_host_key(place.target())
    assert again.check.status is Status.KNOWN
    assert not trust.record(place.target(), again).written
    assert len(place.known.read_text().splitlines()) == 2


def test_a_key_is_recorded_hashed_where_ssh_config_says_so(place: Place, home: Path) -> None:
    place.write("HashKnownHosts yes", known="GlobalKnownHostsFile none")
    (key,) = trust.fetch_host_key(place.target())
    recorded = trust.record(place.target(), key)
    assert recorded.file == home / ".ssh/known_hosts"
    assert recorded.file.read_text().startswith("|1|")
    assert recorded.file.stat().st_mode & 0o777 == 0o600
    assert recorded.file.parent.stat().st_mode & 0o777 == 0o700
    assert works(place.target())


def test_a_changed_key_is_only_recorded_when_asked_to_replace(place: Place, tmp_path: Path) -> None:
    before = f"{place.name} {other_key()}\nother.example {other_key()}\n"
    real = tmp_path / "elsewhere"
    real.write_text(before)
    place.known.unlink()
    place.known.symlink_to(real)
    (key,) = trust.fetch_host_key(place.target())
    assert key.check.status is Status.CHANGED
    with pytest.raises(RefusedError) as caught:
        trust.record(place.target(), key)
    assert caught.value.exit_code == 5
    assert real.read_text() == before
    recorded = trust.record(place.target(), key, replace=True)
    assert recorded.removed_lines == (1,)
    assert real.read_text() == before.splitlines(keepends=True)[1] + f"{place.name} {place.key}\n"
    assert place.known.is_symlink()
    assert works(place.target())


def test_a_revoked_key_is_never_recorded(place: Place) -> None:
    place.known.write_text(f"@revoked * {place.key}\n")
    (key,) = trust.fetch_host_key(place.target())
    with pytest.raises(RefusedError):
        trust.record(place.target(), key, replace=True)


def test_without_a_file_to_write_to_that_is_said(place: Place) -> None:
    place.write(known="UserKnownHostsFile none\n  GlobalKnownHostsFile none")
    (key,) = trust.fetch_host_key(place.target())
    with pytest.raises(UsageError, match="names no file"):
        trust.record(place.target(), key)


def test_the_keys_of_the_hops_are_fetched_up_to_the_first_unknown_one(behind: Place) -> None:
    whole = behind.known.read_text()
    behind.known.write_text("")
    assert [key.hop.name for key in trust.fetch_host_key(behind.target())] == ["gate"]
    behind.known.write_text(whole.replace(behind.key, other_key()))
    keys = trust.fetch_host_key(behind.target())
    assert [(key.hop.name, key.check.status) for key in keys] == [
        ("gate", Status.KNOWN),
        ("node-a", Status.CHANGED),
    ]
