"""Is this the host's key? Answers from known_hosts files as OpenSSH reads them (sshd(8), SSH_KNOWN_HOSTS).

Only an entry for exactly the name that is looked up, with exactly this key, makes a host known.
StrictHostKeyChecking is not followed where it is laxer than that, and @cert-authority lines make nothing
known here, because certificates are not checked.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# Signature algorithms of Paramiko by the key type that known_hosts names.
ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class Status(Enum):
    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file. `marker` is "", "@revoked" or "@cert-authority"."""

    marker: str
    hosts: str
    key_type: str
    blob: bytes
    path: Path
    line: int


@dataclass(frozen=True)
class KeyCheck:
    """What the files say about a key. `entries` are the host's own keys there (or the revoked line)."""

    status: Status
    lookup_name: str
    key_type: str
    fingerprint: str
    searched: tuple[Path, ...]
    entries: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()


def fingerprint(blob: bytes) -> str:
    """SHA-256 of a public key in OpenSSH's notation."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_entries(paths: Iterable[Path], notes: list[str] | None = None) -> Iterator[Entry]:
    """The entries of all files that are there, in order. Lines that are none are passed over, as ssh does."""
    for path in paths:
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            if notes is not None:
                notes.append(f"{path} cannot be read: {error.strerror}")
            continue
        for number, line in enumerate(lines, 1):
            entry = parse_line(line, path, number)
            if entry is not None:
                yield entry


def parse_line(line: bytes, path: Path, number: int) -> Entry | None:
    """`[marker] hosts type base64 [comment]`; None for anything else."""
    words = line.decode("utf-8", "replace").split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    # The type stands in the key too; a line that contradicts itself is not believed.
    if blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace") != words[1]:
        return None
    return Entry(marker, words[0], words[1], blob, path, number)


def matches(hosts: str, name: str) -> bool:
    """Does the hosts field of an entry cover `name`: hashed, or patterns with * ? and ! for all but."""
    if hosts.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part, validate=True) for part in hosts[3:].split("|"))
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
    found = False
    for pattern in hosts.lower().split(","):
        # [ and ] stand for themselves here; fnmatch would take them as a set.
        literal = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, literal):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def known_types(name: str, paths: Iterable[Path]) -> tuple[str, ...]:
    """Key types under which the host is known, in the files' order."""
    found = (
        entry.key_type for entry in read_entries(paths) if not entry.marker and matches(entry.hosts, name)
    )
    return tuple(dict.fromkeys(found))


def order_algorithms(offered: Sequence[str], types: Iterable[str]) -> tuple[str, ...]:
    """Host key algorithms, those first whose keys are known: a server that has several keys is then asked
    for one that can be checked (order_hostkeyalgs in OpenSSH's sshconnect2.c)."""
    first = [
        algorithm
        for key_type in types
        for algorithm in ALGORITHMS.get(key_type, (key_type,))
        if algorithm in offered
    ]
    return tuple(dict.fromkeys([*first, *offered]))


def check(name: str, blob: bytes, paths: Sequence[Path], revoked_keys: Path | None = None) -> KeyCheck:
    """Look a host's key up under `name` in `paths`; `revoked_keys` is a RevokedHostKeys file."""
    key_type = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")
    notes: list[str] = []
    entries = [entry for entry in read_entries(paths, notes) if matches(entry.hosts, name)]

    def outcome(status: Status, found: Sequence[Entry] = ()) -> KeyCheck:
        return KeyCheck(status, name, key_type, fingerprint(blob), tuple(paths), tuple(found), tuple(notes))

    revoked = [entry for entry in entries if entry.marker == "@revoked" and entry.blob == blob]
    if revoked or (revoked_keys is not None and _in_revoked_file(blob, revoked_keys, notes)):
        return outcome(Status.REVOKED, revoked)
    own = [entry for entry in entries if not entry.marker]
    same = [entry for entry in own if entry.blob == blob]
    if same:
        return outcome(Status.KNOWN, same)
    if own:
        return outcome(Status.CHANGED, own)
    if any(entry.marker == "@cert-authority" for entry in entries):
        notes.append("there is a @cert-authority line for it, but certificates of hosts are not checked here")
    return outcome(Status.UNKNOWN)


def _in_revoked_file(blob: bytes, path: Path, notes: list[str]) -> bool:
    """Is the key listed in a RevokedHostKeys file? A file that cannot be understood revokes everything, as
    ssh does with one that cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        notes.append(f"RevokedHostKeys {path} cannot be read: {error.strerror}")
        return True
    if content.startswith(b"SSHKRL\n\0"):
        notes.append(f"RevokedHostKeys {path} is a binary revocation list, which is not understood here")
        return True
    return base64.b64encode(blob) in content.split()


def hashed(name: str, salt: bytes) -> str:
    """The hosts field of a hashed entry; `salt` is 20 random bytes."""
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
