"""Shows a node's host keys and records them in known_hosts: what `inv trust` does.

The key is fetched over the network it is meant to protect against, so a person has to compare the
fingerprint; that is why fetching and recording are two functions. A jump host's key has to be known before
anything behind it can be reached.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import hostkeys
from .errors import RefusedError, UsageError
from .hostkeys import KeyCheck, Status
from .ssh import HANDSHAKE_TIMEOUTS, Connection, explained, make_transport, open_hop, open_socket
from .ssh_errors import REVOKED_HINT
from .sshconfig import Hop, Target, resolve


@dataclass(frozen=True)
class HopKey:
    """The key that a hop showed, and what the known_hosts files say about it. `file` is where it would be
    recorded: the first UserKnownHostsFile, None if ssh_config names none."""

    hop: Hop
    blob: bytes
    check: KeyCheck
    file: Path | None

    @property
    def public_key(self) -> str:
        return f"{self.check.key_type} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True)
class Recorded:
    """What `record` did: the line's file, whether it was written, and what a replaced host had there."""

    file: Path
    lookup_name: str
    written: bool
    removed_lines: tuple[int, ...] = ()


def fetch_host_key(target: Target) -> list[HopKey]:
    """The keys of the hops on the way, up to the node or to the first hop whose key is not known.

    Nothing is sent to a hop whose key is not known. Raises ConnectError as ssh.connect does.
    """
    found: list[HopKey] = []
    before: Connection | None = None
    hops = resolve(target)
    try:
        for hop in hops:
            key = _show(hop, before, target)
            found.append(key)
            if key.check.status is not Status.KNOWN or hop is hops[-1]:
                return found
            before = open_hop(hop, before, target)
    finally:
        if before is not None:
            before.close()
    return found


def record(
    target: Target, key: HopKey, *, replace: bool = False, random: Callable[[int], bytes] = os.urandom
) -> Recorded:
    """Write the key to its file; nothing if it is known already. Reads it back.

    A key that contradicts a known one is only written with `replace`, which removes the host's other
    lines from that file first. Raises RefusedError for it otherwise and for a revoked key, and UsageError if
    there is no file to write to.
    """
    file, name = may_record(target, key, replace=replace), key.check.lookup_name
    if key.check.status is Status.KNOWN:
        return Recorded(file, name, written=False)
    hosts = hostkeys.hashed(name, random(20)) if key.hop.hash_known_hosts else name
    removed = _rewrite(file, name, f"{hosts} {key.public_key}\n")
    after = hostkeys.check(name, key.blob, key.hop.known_hosts, key.hop.revoked_host_keys)
    if after.status is not Status.KNOWN:
        others = ", ".join(f"{entry.path}:{entry.line}" for entry in after.entries)
        raise RefusedError(
            f"{target.node}: recorded in {file}, but the host key of {key.hop.name} is still "
            f"{after.status.value} ({others})",
            hint="look at these lines; a file that is not yours has to be corrected by its owner",
            node=target.node,
        )
    return Recorded(file, name, written=True, removed_lines=removed)


def may_record(target: Target, key: HopKey, *, replace: bool) -> Path:
    """The file that `record` would write the key to. Raises what `record` raises before it writes."""
    status = key.check.status
    if key.file is None:
        raise UsageError(
            f"{target.node}: UserKnownHostsFile of {key.hop.name} names no file to record a key in",
            hint="set UserKnownHostsFile in ssh_config, or known_hosts of the node in inventory.yaml",
            node=target.node,
        )
    if status is Status.REVOKED or (status is Status.CHANGED and not replace):
        known = ", ".join(f"{entry.path}:{entry.line}" for entry in key.check.entries)
        raise RefusedError(
            f"{target.node}: the host key of {key.hop.name} is {status.value}: not recorded (see {known})",
            hint=what_next(target.node, status),
            node=target.node,
        )
    return key.file


def what_next(node: str, status: Status) -> str:
    """What to do about a key that is not the known one, by somebody who sees its fingerprint."""
    if status is Status.REVOKED:
        return REVOKED_HINT
    compare = "compare the fingerprint with what the node's console or its owner says"
    if status is Status.CHANGED:
        return f"{compare}; only if it is the new one: inv trust --yes --replace --node {node}"
    return f"{compare}, then: inv trust --yes --node {node}"


def _show(hop: Hop, before: Connection | None, target: Target) -> HopKey:
    """Shake hands with a hop, no further, and look its key up."""
    sock = open_socket(hop, before, target)
    transport = make_transport(hop, sock)
    transport.banner_timeout = target.connect_timeout_s
    try:
        with explained(hop, target, sock):
            transport.start_client(timeout=HANDSHAKE_TIMEOUTS * target.connect_timeout_s)
            blob = transport.get_remote_server_key().asbytes()
    finally:
        transport.close()
        sock.close()
    check = hostkeys.check(hop.lookup_name, blob, hop.known_hosts, hop.revoked_host_keys)
    return HopKey(hop, blob, check, hop.user_known_hosts[0] if hop.user_known_hosts else None)


def _rewrite(path: Path, name: str, line: str) -> tuple[int, ...]:
    """Append a line, without the lines that were only about this host; numbers of the removed lines.

    Written beside and renamed, so that nobody ever reads half a file. A line that names other hosts too
    is kept, and found by the read-back.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = path.resolve()
    try:
        content, mode = real.read_bytes(), real.stat().st_mode & 0o777
    except FileNotFoundError:
        content, mode = b"", 0o600
    kept: list[bytes] = []
    removed: list[int] = []
    for number, old in enumerate(content.splitlines(keepends=True), 1):
        entry = hostkeys.parse_line(old, path, number)
        if entry is not None and not entry.marker and _only_about(entry.hosts, name):
            removed.append(number)
        else:
            kept.append(old if old.endswith(b"\n") else old + b"\n")
    beside = real.with_name(f"{real.name}.{os.getpid()}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"".join(kept) + line.encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(real)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
    return tuple(removed)


def _only_about(hosts: str, name: str) -> bool:
    return hostkeys.matches(hosts, name) and (hosts.startswith("|1|") or hosts.lower() == name)
