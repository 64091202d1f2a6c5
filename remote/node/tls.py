"""TLS to the server on this machine. A module of its own: importing ssl costs the node milliseconds."""

from __future__ import annotations

import functools
import selectors
import ssl

from .stream import Stream


@functools.lru_cache(maxsize=1)
def client_context() -> ssl.SSLContext:
    """The server is on this machine, and its certificate is made out for the name that clients use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class TlsStream(Stream):
    """A Stream over TLS. Nothing waits: the handshake is made with the first bytes that are sent."""

    _shakes = False

    @property
    def awaits(self) -> int:
        return selectors.EVENT_READ if self._shakes else super().awaits

    def _connected(self) -> None:
        super()._connected()
        self.sock = client_context().wrap_socket(
            self.sock, do_handshake_on_connect=False, server_hostname=self.host
        )

    def _put(self) -> int:
        self._shakes = False
        try:
            return self.sock.send(self._out)
        except ssl.SSLWantReadError:
            self._shakes = True
        except ssl.SSLWantWriteError:
            pass
        return 0

    def _get(self) -> bytes | None:
        """All that has come: what the TLS layer keeps back makes no socket readable."""
        data = b""
        try:
            while piece := self.sock.recv(1 << 18):
                data += piece
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return data or None
        return data
