"""One connection and one helper on one node, for the length of a command."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .errors import NodeError
from .helper import Helper, open_helper
from .inventory import Node
from .node_errors import translate
from .pending import Pending
from .redact import KnownSecrets
from .ssh import Target, connect

# Longer than any operation that has no limit of its own: an answer that takes longer is lost.
REQUEST_TIMEOUT_S = 120.0

Event = Callable[[dict[str, Any]], None]


@dataclass
class Session:
    """A held resource: the helper running on `node`. Requests raise FixopsError, never NodeError.

    `secrets`: what is read on the node and must not be shown is told to it.
    """

    node: Node
    helper: Helper
    who: str = field(default_factory=lambda: f"{getpass.getuser()}@{socket.gethostname()}")
    secrets: KnownSecrets = field(default_factory=KnownSecrets)

    def request(
        self,
        op: str,
        params: dict[str, Any],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        on_event: Event | None = None,
        journal: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        try:
            return self.helper.request(op, params, timeout_s=timeout_s, on_event=on_event, journal=journal)
        except NodeError as error:
            raise translate(error, self.node.name, op) from None

    def submit(self, op: str, params: dict[str, Any], *, timeout_s: float = REQUEST_TIMEOUT_S) -> Pending:
        """Ask without waiting: several requests travel in one round trip."""
        return self.helper.submit(op, params, timeout_s=timeout_s)

    def result(self, pending: Pending) -> dict[str, Any]:
        try:
            return pending.result()
        except NodeError as error:
            raise translate(error, self.node.name, pending.op) from None


def target_of(node: Node) -> Target:
    return Target(
        node=node.name,
        host=node.host,
        user=node.user,
        port=node.port,
        gateway=node.gateway,
        identity_file=node.identity_file,
        known_hosts=node.known_hosts,
        ssh_config=node.ssh_config,
    )


@contextmanager
def open_session(node: Node, secrets: KnownSecrets | None = None) -> Iterator[Session]:
    """Connect to `node` and start the helper. ConnectError when either does not work."""
    connection = connect(target_of(node))
    try:
        with open_helper(
            connection, node.python, sudo=node.sudo, state_dir=node.state_dir, node=node.name
        ) as helper:
            yield Session(node, helper, secrets=secrets or KnownSecrets())
    finally:
        connection.close()
