"""known_hosts is read as OpenSSH reads it: ssh-keygen is the judge."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote import hostkeys
from remote.hostkeys import Status


def key(kind: str, seed: int) -> bytes:
    """A well-formed public key blob of a type (the number in it is no real key)."""
    name = kind.encode()
    body = bytes([seed]) * 32
    return len(name).to_bytes(4, "big") + name + len(body).to_bytes(4, "big") + body


def line(hosts: str, blob: bytes, marker: str = "") -> str:
    kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode()
    return f"{marker} {hosts} {kind} {base64.b64encode(blob).decode()} somebody@somewhere\n".lstrip()


ED = key("ssh-ed25519", 1)
ED_OTHER = key("ssh-ed25519", 2)
RSA = key("ssh-rsa", 3)


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


def test_only_the_same_key_under_the_same_name_is_known(known: Path) -> None:
    known.write_text(line("node-a,192.0.2.10", ED) + line("[192.0.2.10]:22121", RSA))
    assert hostkeys.check("node-a", ED, [known]).status is Status.KNOWN
    assert hostkeys.check("192.0.2.10", ED, [known]).status is Status.KNOWN
    assert hostkeys.check("[192.0.2.10]:22121", RSA, [known]).status is Status.KNOWN
    assert hostkeys.check("node-a", ED_OTHER, [known]).status is Status.CHANGED
    assert hostkeys.check("node-b", ED, [known]).status is Status.UNKNOWN
    assert hostkeys.check("[node-a]:2222", ED, [known]).status is Status.UNKNOWN
    assert hostkeys.check("node", ED, [known]).status is Status.UNKNOWN


def test_a_port_entry_counts_for_this_port_only(known: Path) -> None:
    """Field case 091: the entry is there, but under the form with the port."""
    known.write_text(line("[192.0.2.10]:22121", ED))
    check = hostkeys.check("192.0.2.10", ED, [known])
    assert check.status is Status.UNKNOWN
    assert check.lookup_name == "192.0.2.10"
    assert check.searched == (known,)
    assert hostkeys.check("[192.0.2.10]:22122", ED, [known]).status is Status.UNKNOWN
    assert hostkeys.check("[192.0.2.10]:22121", ED, [known]).status is Status.KNOWN


def test_a_key_of_a_type_that_is_not_recorded_is_a_changed_key(known: Path) -> None:
    known.write_text(line("node-a", RSA))
    check = hostkeys.check("node-a", ED, [known])
    assert check.status is Status.CHANGED
    assert [(entry.key_type, entry.line) for entry in check.entries] == [("ssh-rsa", 1)]


def test_several_files_and_a_missing_one_are_searched(known: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.write_text("# the team's\n\n" + line("node-a", ED))
    files = [tmp_path / "missing", known, second]
    known.write_text(line("node-b", ED))
    check = hostkeys.check("node-a", ED, files)
    assert check.status is Status.KNOWN
    assert [(entry.path, entry.line) for entry in check.entries] == [(second, 3)]


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    check = hostkeys.check("node-a", ED, [tmp_path])  # a directory: reading fails for root too
    assert check.status is Status.UNKNOWN
    assert str(tmp_path) in check.notes[0]


def test_revoked_wins_over_known(known: Path) -> None:
    known.write_text(line("node-a", ED) + line("*", ED, "@revoked"))
    assert hostkeys.check("node-a", ED, [known]).status is Status.REVOKED
    known.write_text(line("node-a", ED) + line("other", ED, "@revoked"))
    assert hostkeys.check("node-a", ED, [known]).status is Status.KNOWN


def test_a_revoked_line_is_not_a_known_key(known: Path) -> None:
    known.write_text(line("node-a", ED_OTHER, "@revoked"))
    assert hostkeys.check("node-a", ED, [known]).status is Status.UNKNOWN
    assert hostkeys.known_types("node-a", [known]) == ()


def test_an_authority_line_makes_nothing_known(known: Path) -> None:
    known.write_text(line("node-a", ED, "@cert-authority"))
    check = hostkeys.check("node-a", ED, [known])
    assert check.status is Status.UNKNOWN
    assert "@cert-authority" in check.notes[0]


def test_a_list_of_revoked_keys_is_followed(known: Path, tmp_path: Path) -> None:
    known.write_text(line("node-a", ED))
    revoked = tmp_path / "revoked"
    revoked.write_text(f"ssh-ed25519 {base64.b64encode(ED).decode()}\n")
    assert hostkeys.check("node-a", ED, [known], revoked).status is Status.REVOKED
    revoked.write_text(f"ssh-ed25519 {base64.b64encode(ED_OTHER).decode()}\n")
    assert hostkeys.check("node-a", ED, [known], revoked).status is Status.KNOWN


@pytest.mark.parametrize("content", [None, b"SSHKRL\n\0binary"])
def test_a_list_of_revoked_keys_that_cannot_be_understood_stops_everything(
    known: Path, tmp_path: Path, content: bytes | None
) -> None:
    known.write_text(line("node-a", ED))
    revoked = tmp_path / "revoked"
    if content is not None:
        revoked.write_bytes(content)
    check = hostkeys.check("node-a", ED, [known], revoked)
    assert check.status is Status.REVOKED
    assert str(revoked) in check.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node-a",
        "node-a ssh-ed25519",
        "node-a ssh-ed25519 not*base64",
        f"node-a ssh-rsa {base64.b64encode(ED).decode()}",  # contradicts itself
        f"# node-a ssh-ed25519 {base64.b64encode(ED).decode()}",
        f"|1|broken ssh-ed25519 {base64.b64encode(ED).decode()}",
        f"@revoked node-a {base64.b64encode(ED).decode()}",
    ],
)
def test_damaged_lines_make_nothing_known(known: Path, text: str) -> None:
    known.write_text(text + "\n")
    assert hostkeys.check("node-a", ED, [known]).status is Status.UNKNOWN


def test_bytes_that_are_no_text_do_not_hide_the_lines_after_them(known: Path) -> None:
    known.write_bytes(b"\xff\xfe\x00 \x80\n" + line("node-a", ED).encode())
    assert hostkeys.check("node-a", ED, [known]).status is Status.KNOWN


def test_algorithms_of_known_types_are_asked_for_first(known: Path) -> None:
    offered = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
    known.write_text(line("node-a", RSA) + line("node-b", ED))
    types = hostkeys.known_types("node-a", [known])
    assert types == ("ssh-rsa",)
    assert hostkeys.order_algorithms(offered, types) == (
        "rsa-sha2-512",
        "rsa-sha2-256",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
    )
    assert hostkeys.order_algorithms(offered, ()) == offered
    assert hostkeys.order_algorithms(offered, ("ssh-dss",)) == offered


# Against ssh-keygen, OpenSSH's own reader of these files.

ED_LINE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJv3NIrHFYIf0lIEKBzCSBHQiJBpVKRwqX6X6Tz7Yp1z"
names = st.from_regex(r"(node|n|gpu)-?[ab0-9]{0,2}(\.(lab|x))?", fullmatch=True)
patterns = st.from_regex(r"!?(\*|\?|node|n|gpu|-|a|b|[0-9]|\.lab|\.x){1,4}", fullmatch=True)
ports = st.sampled_from([None, 22121, 8])


def port_form(name: str, port: int | None) -> str:
    return name if port is None else f"[{name}]:{port}"


def openssh_finds(name: str, file: Path) -> bool:
    answer = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True, check=False, timeout=30
    )
    return answer.returncode == 0


@given(name=names, port=ports, hosts=st.lists(st.tuples(patterns, ports), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_patterns_match_as_they_do_for_openssh(
    tmp_path_factory: pytest.TempPathFactory, name: str, port: int | None, hosts: list[tuple[str, int | None]]
) -> None:
    field = ",".join(
        ("!" if pattern.startswith("!") else "") + port_form(pattern.removeprefix("!"), own)
        for pattern, own in hosts
    )
    file = tmp_path_factory.mktemp("known", numbered=True) / "known_hosts"
    file.write_text(f"{field} {ED_LINE_KEY}\n")
    lookup = port_form(name, port)
    assert hostkeys.matches(field, lookup) == openssh_finds(lookup, file), (field, lookup)


@given(name=names, port=ports, salt=st.binary(min_size=20, max_size=20))
@settings(max_examples=20, deadline=None)
def test_hashed_entries_are_read_and_written_as_openssh_does(
    tmp_path_factory: pytest.TempPathFactory, name: str, port: int | None, salt: bytes
) -> None:
    file = tmp_path_factory.mktemp("known", numbered=True) / "known_hosts"
    lookup = port_form(name, port)
    file.write_text(f"{hostkeys.hashed(lookup, salt)} {ED_LINE_KEY}\n")
    assert openssh_finds(lookup, file)
    assert not openssh_finds(lookup + "x", file)
    file.write_text(f"{lookup} {ED_LINE_KEY}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", str(file)], capture_output=True, check=True, timeout=30)
    field = file.read_text().split()[0]
    assert field.startswith("|1|")
    assert hostkeys.matches(field, lookup)
    assert not hostkeys.matches(field, lookup + "x")


def test_fingerprints_are_openssh_s(tmp_path: Path) -> None:
    file = tmp_path / "key.pub"
    file.write_text(ED_LINE_KEY + "\n")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(file)], capture_output=True, check=True, text=True, timeout=30
    ).stdout
    assert hostkeys.fingerprint(base64.b64decode(ED_LINE_KEY.split()[1])) == shown.split()[1]
