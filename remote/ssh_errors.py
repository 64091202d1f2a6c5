"""What can go wrong on the way to a node: one message each, and what to type next.

`data["reason"]` of every error is one of: dns, refused, unreachable, timeout, not-ssh, handshake,
jump-failed, jump-forbidden, host-key-unknown, host-key-changed, host-key-revoked (and ssh-config and
authentication, which sshconfig.py and sshauth.py raise).
"""

from __future__ import annotations

import socket

import paramiko

from . import hostkeys
from .errors import ConnectError
from .hostkeys import KeyCheck, Status
from .sshconfig import Hop

REVOKED_HINT = "do not connect; the node needs a new host key"


def key_error(hop: Hop, check: KeyCheck, node: str) -> ConnectError:
    """The message for a host key that is not the known one."""
    files = ", ".join(map(str, check.searched)) or "no file at all"
    key = f"{check.key_type} {check.fingerprint}"
    notes = "".join(f"; {note}" for note in (*check.notes, *hop.notes))
    if hop.strict_host_key_checking and hop.strict_host_key_checking.lower() in ("no", "off", "accept-new"):
        notes += f"; StrictHostKeyChecking {hop.strict_host_key_checking} is not followed here"
    if check.status is Status.CHANGED:
        known = ", ".join(
            f"{entry.key_type} {hostkeys.fingerprint(entry.blob)} ({entry.path}:{entry.line})"
            for entry in check.entries
        )
        message = (
            f"{node}: the host key of {hop.name} has CHANGED: it shows {key}, "
            f"known for {check.lookup_name} is {known}{notes}"
        )
        hint = (
            "somebody may be in between. Ask whoever runs the node for the fingerprint (on its console: "
            "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub); only if it is the new one: "
            f"inv trust --node {node}"
        )
    elif check.status is Status.REVOKED:
        message = f"{node}: the host key of {hop.name} ({key}) is revoked{notes}"
        hint = REVOKED_HINT
    else:
        message = (
            f"{node}: the host key of {hop.name} is not known: {key}; "
            f"looked for {check.lookup_name} in {files}{notes}"
        )
        hint = f"compare the fingerprint with the node's, then: inv trust --node {node}"
    data = {
        "reason": f"host-key-{check.status.value}",
        "hop": hop.name,
        "lookup_name": check.lookup_name,
        "fingerprint": check.fingerprint,
        "searched": [str(path) for path in check.searched],
    }
    return ConnectError(message, hint=hint, node=node, data=data)


def connect_error(node: str, hop: Hop, reason: str, message: str, hint: str = "") -> ConnectError:
    notes = "".join(f"; {note}" for note in hop.notes)
    default = f"does `{hop.by_hand}` work?"
    data = {"reason": reason, "hop": hop.name}
    return ConnectError(
        f"cannot connect to {node}: {message}{notes}", hint=hint or default, node=node, data=data
    )


def socket_error(node: str, hop: Hop, error: OSError, timeout_s: float) -> ConnectError:
    if isinstance(error, socket.gaierror):
        message = f"there is no address for the name {hop.host!r} ({error.strerror})"
        return connect_error(
            node, hop, "dns", message, "check host in inventory.yaml, and HostName in ssh_config"
        )
    if isinstance(error, TimeoutError):
        message = f"no answer from {hop.address} within {timeout_s:g} s"
        return connect_error(
            node, hop, "timeout", message, "is the node up, and the network (VPN) that leads to it?"
        )
    if isinstance(error, ConnectionRefusedError):
        message = f"{hop.address} refuses the connection: nothing listens there"
        return connect_error(
            node, hop, "refused", message, "is it the right port, and is sshd running on the node?"
        )
    return connect_error(
        node, hop, "unreachable", f"{hop.address} cannot be reached: {error.strerror or error}"
    )


def handshake_error(
    node: str, hop: Hop, error: BaseException, timeout_s: float, proxy: str | None
) -> ConnectError:
    """`proxy` is what a ProxyCommand said on standard error, None without one."""
    text = str(error) or type(error).__name__
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return connect_error(
            node, hop, "handshake", f"{hop.address} has no algorithm in common with us: {text}"
        )
    if proxy is not None:
        message = f"no SSH server behind ProxyCommand {hop.proxy_command!r}: {proxy or text}"
        return connect_error(
            node, hop, "jump-failed", message, "it is run here without a shell; try it by hand"
        )
    if "protocol banner" in text or "Indecipherable" in text or "Invalid SSH banner" in text:
        message = f"{hop.address} accepts connections but does not speak SSH within {timeout_s:g} s ({text})"
        return connect_error(
            node,
            hop,
            "not-ssh",
            message,
            "is it the right port? An overloaded sshd (MaxStartups) does the same",
        )
    return connect_error(node, hop, "handshake", f"{hop.address} ended the handshake: {text}")


def jump_error(node: str, via: str, hop: Hop, error: paramiko.ChannelException) -> ConnectError:
    """RFC 4254, 5.1: code 1 is "administratively prohibited", 2 "connect failed"."""
    if error.code == 1:
        return connect_error(
            node,
            hop,
            "jump-forbidden",
            f"jump host {via} does not allow connections to be passed on (AllowTcpForwarding, PermitOpen)",
            "use another way: gateway in inventory.yaml, or a ProxyCommand in ssh_config",
        )
    return connect_error(
        node, hop, "jump-failed", f"jump host {via} cannot reach {hop.address}: {error.text}"
    )
