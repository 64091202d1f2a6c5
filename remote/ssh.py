"""Opens a Fabric connection to a node, over jump hosts where ssh_config or the inventory says so.

Fabric accepts unknown host keys, and changed ones silently; Paramiko ignores HostKeyAlias,
UserKnownHostsFile and StrictHostKeyChecking. So the hops are worked out in sshconfig.py, every hop's key is
checked with hostkeys.py, and Fabric gets neither an ssh_config nor a known_hosts of its own to act on.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
from collections.abc import Iterator
from typing import Any

import fabric.config
import paramiko
from fabric.connection import Connection as FabricConnection

from . import hostkeys, proxycommand, ssh_errors
from .errors import ConnectError
from .hostkeys import Status
from .sshauth import KeyAuth, Transport
from .sshconfig import Hop, Target, resolve

__all__ = ["Connection", "Target", "connect"]

KEEPALIVE_S = 15
WINDOW = 1 << 28  # 2 MiB, Paramiko's default, caps a transfer at that much per round trip
TCP_USER_TIMEOUT_MS = 60_000
HANDSHAKE_TIMEOUTS = 3  # the identification may take one connect timeout, the key exchange the others

# Without a handler Python prints Paramiko's tracebacks on standard error.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Connection(FabricConnection):
    """A Fabric connection that closes its jump hosts with itself. Fabric has no types: hence the Any."""

    # A real attribute: Fabric would write it to the configuration, which all connections share, and merge
    # that anew (milliseconds, and for a moment other threads find it empty).
    inline_ssh_env = True
    client: Any
    transport: Any
    gateway: Any

    def close(self) -> None:
        super().close()  # type: ignore[no-untyped-call]
        self.client.close()
        if self.gateway:
            self.gateway.close()


class _CheckKey(paramiko.MissingHostKeyPolicy):
    """Called for every key, because Paramiko is given no known ones; ConnectError unless the key is known."""

    def __init__(self, hop: Hop, node: str) -> None:
        self._hop = hop
        self._node = node

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        del client, hostname
        hop = self._hop
        check = hostkeys.check(hop.lookup_name, key.asbytes(), hop.known_hosts, hop.revoked_host_keys)
        if check.status is not Status.KNOWN:
            raise ssh_errors.key_error(hop, check, self._node)


def connect(target: Target) -> Connection:
    """Open the connection; the caller closes it. Raises ConnectError: see ssh_errors.py for the reasons."""
    connection: Connection | None = None
    try:
        for hop in resolve(target):
            connection = open_hop(hop, connection, target)
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    assert connection is not None
    return connection


def open_socket(hop: Hop, before: Connection | None, target: Target) -> Any:
    """What the SSH protocol of a hop is spoken over: a socket, a channel through the hop before, or a
    ProxyCommand. The caller closes it."""
    if before is not None:
        via = str(before.original_host)
        try:
            return before.transport.open_channel(
                "direct-tcpip", (hop.host, hop.port), ("", 0), timeout=target.connect_timeout_s
            )
        except paramiko.ChannelException as error:
            raise ssh_errors.jump_error(target.node, via, hop, error) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            message = f"jump host {via}: {error}"
            raise ssh_errors.connect_error(target.node, hop, "jump-failed", message) from error
    if hop.proxy_command is not None:
        try:
            return proxycommand.start(hop.proxy_command)
        except (OSError, ValueError) as error:
            message = f"ProxyCommand {hop.proxy_command!r} does not start: {error}"
            raise ssh_errors.connect_error(target.node, hop, "jump-failed", message) from error
    try:
        plain = socket.create_connection((hop.host, hop.port), timeout=target.connect_timeout_s)
    except OSError as error:
        raise ssh_errors.socket_error(target.node, hop, error, target.connect_timeout_s) from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    return plain


def make_transport(hop: Hop, sock: Any, **options: Any) -> Transport:
    """A transport that asks first for host keys of the types that known_hosts holds for the hop, and for
    the ciphers that cost least here (AES-GCM needs no separate MAC)."""
    transport = Transport(sock, default_window_size=WINDOW, **options)
    offers = transport.get_security_options()
    types = hostkeys.known_types(hop.lookup_name, hop.known_hosts)
    offers.ciphers = sorted(offers.ciphers, key=lambda name: "gcm" not in name)
    offers.key_types = hostkeys.order_algorithms(tuple(offers.key_types), types)
    return transport


@contextlib.contextmanager
def explained(hop: Hop, target: Target, sock: Any) -> Iterator[None]:
    """Turns what Paramiko raises during a handshake over `sock` into a ConnectError."""
    try:
        yield
    except ConnectError:
        raise
    except (paramiko.SSHException, EOFError, OSError) as error:
        proxy = sock.errors() if isinstance(sock, proxycommand.ProxySocket) else None
        raise ssh_errors.handshake_error(target.node, hop, error, target.connect_timeout_s, proxy) from error


def open_hop(hop: Hop, before: Connection | None, target: Target) -> Connection:
    """One connection of the chain, its host key checked and logged in."""
    sock = open_socket(hop, before, target)
    make: Any = Connection
    connection: Connection = make(
        hop.host,
        user=hop.user,
        port=hop.port,
        config=_fabric_config(),
        gateway=False,
        connect_kwargs={
            "sock": sock,
            "timeout": HANDSHAKE_TIMEOUTS * target.connect_timeout_s,
            "banner_timeout": target.connect_timeout_s,
            "transport_factory": functools.partial(make_transport, hop),
            "auth_strategy": KeyAuth(hop, target.node),
        },
    )
    connection.gateway = before
    connection.original_host = hop.name
    connection.client.set_missing_host_key_policy(_CheckKey(hop, target.node))
    try:
        with explained(hop, target, sock):
            connection.open()  # type: ignore[no-untyped-call]
    except BaseException:
        connection.client.close()
        sock.close()
        raise
    connection.transport.set_keepalive(KEEPALIVE_S)
    return connection


@functools.cache
def _fabric_config() -> fabric.config.Config:
    """Fabric's defaults: no ssh_config (resolved before), no configuration files of Fabric or Invoke."""
    make: Any = fabric.config.Config
    config: fabric.config.Config = make(lazy=True, ssh_config=paramiko.SSHConfig())
    return config
