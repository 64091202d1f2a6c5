"""Logs in with the keys that OpenSSH would use: those of the agent and of IdentityFile, in its order.

Source: pubkey_prepare in OpenSSH 9.2's sshconnect2.c. Passwords are not asked for: a command that runs on
several nodes, or from cron, has nobody to ask.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentSSH
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import cMSG_SERVICE_REQUEST, cMSG_USERAUTH_REQUEST
from paramiko.transport import ServiceRequestingTransport

from .errors import ConnectError
from .hostkeys import fingerprint
from .sshconfig import Hop

AGENT_TIMEOUT_S = 30.0  # some agents ask their user to confirm


class _AuthHandler(AuthOnlyHandler):
    """Paramiko's handler, but it is ready for the answer before it sends the request.

    The original makes its event afterwards; an answer that was faster is missed and the login times out.
    """

    def send_auth_request(
        self, username: str, method: str, finish_message: Callable[[paramiko.Message], None] | None = None
    ) -> list[str]:
        self.auth_method = method
        self.username = username
        message = paramiko.Message()
        message.add_byte(cMSG_USERAUTH_REQUEST)
        for text in (username, "ssh-connection", method):
            message.add_string(text)
        if finish_message is not None:
            finish_message(message)
        self.auth_event = threading.Event()
        transport: Any = self.transport
        with transport.lock:
            transport._send_message(message)
        allowed: list[str] = self.wait_for_response(self.auth_event)
        return allowed


class Transport(ServiceRequestingTransport):
    """A transport that does not wait where the protocol does not ask for it: two round trips less.

    The key exchange begins right behind our own identification (RFC 4253, 4.2 and 7.1), and the login request
    goes right behind the request for the login service. Paramiko's wait for the latter is also a loop
    that never ends if the connection does.
    """

    _service_userauth_accepted: bool
    active: bool
    initial_kex_done: bool
    local_kex_init: bytes | None
    _send_message: Callable[[paramiko.Message], None]

    def _check_banner(self) -> None:
        try:
            self._send_kex_init()
            super()._check_banner()  # type: ignore[misc]  # missing in the stubs
        except (OSError, EOFError) as error:
            raise paramiko.SSHException(f"Error reading SSH protocol banner: {error}") from error

    def _send_kex_init(self) -> None:
        if self.local_kex_init is None:  # unset again when the exchange is done, so a later one is sent
            super()._send_kex_init()  # type: ignore[misc]

    def ensure_session(self) -> None:
        if not self.active or not self.initial_kex_done:
            raise paramiko.SSHException("No existing session")
        if self._service_userauth_accepted:
            return
        message = paramiko.Message()
        message.add_byte(cMSG_SERVICE_REQUEST)
        message.add_string("ssh-userauth")
        self._send_message(message)
        self._service_userauth_accepted = True
        self.auth_handler = _AuthHandler(self)


class KeyAuth:
    """An authentication strategy for SSHClient.connect; remembers what it tried for the error message."""

    def __init__(self, hop: Hop, node: str) -> None:
        self._hop = hop
        self._node = node
        self._tried: list[str] = []
        self._unusable: list[str] = []

    def authenticate(self, transport: Transport) -> None:
        """Log in, or raise ConnectError that names every key that was tried and every one that was not."""
        hop = self._hop
        required = hop.required_identity
        if required is not None and not required.exists() and not _public_blob(required):
            raise self._failure(
                f"the key file {required} is not there", "check identity_file in inventory.yaml"
            )
        allowed: list[str] = []
        with contextlib.ExitStack() as stack:
            for label, key in self._candidates(stack):
                self._tried.append(label)
                try:
                    further = transport.auth_publickey(hop.user, key)
                except paramiko.BadAuthenticationType as error:
                    allowed = list(error.allowed_types)
                    break
                except (paramiko.SSHException, EOFError, OSError) as error:
                    if transport.is_active():
                        continue
                    self._unusable.append(f"then the server closed the connection ({error})")
                    break
                if not further:
                    return
                allowed = list(further)
                break
        raise self._failure(*self._reason(allowed))

    def _reason(self, allowed: list[str]) -> tuple[str, str]:
        tried = f"tried {', '.join(self._tried)}" if self._tried else "there is no key to try"
        unusable = f"; {'; '.join(self._unusable)}" if self._unusable else ""
        wanted = f"; the server asks for {', '.join(allowed)}" if allowed else ""
        hint = f"does `{self._hop.by_hand}` work? Then name its key: identity_file in inventory.yaml"
        if any("passphrase" in reason for reason in self._unusable):
            hint = "load the key into the agent: ssh-add PATH"
        elif len(self._tried) > 5:
            hint = "the server may refuse after so many keys: set identity_file and IdentitiesOnly yes"
        return f"{tried}{unusable}{wanted}", hint

    def _failure(self, reason: str, hint: str) -> ConnectError:
        hop = self._hop
        return ConnectError(
            f"{self._node}: {hop.user}@{hop.name} ({hop.address}) does not let us in: {reason}",
            hint=hint,
            node=self._node,
            data={"reason": "authentication", "tried": self._tried, "unusable": self._unusable},
        )

    def _candidates(self, stack: contextlib.ExitStack) -> Iterator[tuple[str, paramiko.PKey]]:
        """Agent keys that a file names, other agent keys, then files; a key that the inventory names
        goes before keys that nobody named. No key twice."""
        hop = self._hop
        in_agent = self._agent_keys(stack)
        named = {blob for path in hop.identity_files if (blob := _public_blob(path)) is not None}
        offered: set[bytes] = set()

        def fresh(candidates: Iterator[tuple[str, paramiko.PKey]]) -> Iterator[tuple[str, paramiko.PKey]]:
            for label, key in candidates:
                identity = key.public_blob.key_blob if key.public_blob else key.asbytes()
                if identity not in offered:
                    offered.add(identity)
                    yield label, key

        yield from fresh((label, key) for label, key in in_agent if key.asbytes() in named)
        if hop.required_identity is not None:
            yield from fresh(self._file_keys(hop.required_identity, offered))
        if not hop.identities_only:
            yield from fresh(iter(in_agent))
        for path in hop.identity_files:
            if path != hop.required_identity:
                yield from fresh(self._file_keys(path, offered))

    def _agent_keys(self, stack: contextlib.ExitStack) -> list[tuple[str, paramiko.PKey]]:
        path = self._hop.agent_socket
        if path is None:
            return []
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stack.callback(connection.close)
        connection.settimeout(AGENT_TIMEOUT_S)
        agent: Any = AgentSSH()
        try:
            connection.connect(path)
            agent._connect(connection)
        except (OSError, paramiko.SSHException, ValueError) as error:
            self._unusable.append(f"the agent at {path} does not answer ({error})")
            return []
        return [
            (f"agent key {key.get_name()} {fingerprint(key.asbytes())} {key.comment}".strip(), key)
            for key in agent.get_keys()
        ]

    def _file_keys(self, path: Path, offered: set[bytes]) -> Iterator[tuple[str, paramiko.PKey]]:
        """The key of a file, as certificate first if it has one beside it."""
        if not path.exists() or (_public_blob(path) in offered and not _certificate(path).exists()):
            return
        try:
            stat = path.stat()
            keys = _load(path, stat.st_mtime_ns, stat.st_size)
        except PermissionError:
            self._unusable.append(f"{path} cannot be read")
        except (TypeError, paramiko.PasswordRequiredException):
            self._unusable.append(f"{path} needs a passphrase")
        except Exception as error:  # a file that is no key can fail in any way
            self._unusable.append(f"{path} is no usable private key ({type(error).__name__})")
        else:
            for key in keys:
                yield (f"{path} (certificate)" if key.public_blob else str(path)), key


@functools.lru_cache(maxsize=64)
def _load(path: Path, mtime_ns: int, size: int) -> tuple[paramiko.PKey, ...]:
    """Reading a key costs milliseconds, and the nodes of a group mostly take the same one."""
    del mtime_ns, size
    key: paramiko.PKey = paramiko.PKey.from_path(path)
    if not key.public_blob:
        return (key,)
    return (key, type(key).from_private_key_file(str(path)))


def _certificate(path: Path) -> Path:
    return path.with_name(path.name + "-cert.pub")


def _public_blob(path: Path) -> bytes | None:
    """The public key that lies beside an identity file (or in it, when the private one is in the agent)."""
    for candidate in (path.with_name(path.name + ".pub"), path):
        try:
            words = candidate.read_bytes().split()
            if len(words) >= 2 and not words[0].startswith(b"-"):
                return base64.b64decode(words[1], validate=True)
        except (OSError, binascii.Error, ValueError):
            continue
    return None
