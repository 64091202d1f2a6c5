"""ProxyCommand: a program whose standard input and output are the way to the SSH server.

Paramiko's own class waits for full buffers, and leaves a zombie and three pipes behind. Here the program
gets one end of a socket pair and the other end is a socket like any other. The command is split into words
but not given to a shell.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import tempfile
from typing import IO

END_S = 5


class ProxySocket(socket.socket):
    """Our end; closing it also ends and reaps the program."""

    _process: subprocess.Popen[bytes] | None = None
    _errors: IO[bytes]
    _said: str | None = None

    def begin(self, words: list[str], other_end: socket.socket) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the socket
        end = other_end.fileno()
        try:
            self._process = subprocess.Popen(words, stdin=end, stdout=end, stderr=self._errors)
        except BaseException:
            self._errors.close()
            raise

    def errors(self) -> str:
        """The last line that the program printed on standard error."""
        if self._said is not None:
            return self._said
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        super().close()
        if self._process is None:
            return
        if self._said is None:
            self._said = self.errors()
            self._errors.close()
        try:  # every time: Paramiko's thread may close first, and whoever closes waits for the end
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start(command: str) -> ProxySocket:
    """Start the program. Raises OSError if there is no such program, ValueError for unbalanced quotes."""
    words = shlex.split(command)
    if words and words[0] == "exec":  # customary, because ssh gives the command to a shell
        words = words[1:]
    if not words:
        raise ValueError("it is empty")
    ours, theirs = socket.socketpair()
    with theirs:
        proxy = ProxySocket(fileno=ours.detach())
        try:
            proxy.begin(words, theirs)
        except BaseException:
            proxy.close()
            raise
    return proxy
