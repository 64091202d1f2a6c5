"""The practice node's SSH server where OpenSSH's is not to be had.

`python -m remote.practice.asyncssh_server FILE`: FILE is the JSON that ssh_server.py writes. Commands run as
under sshd: the account's login shell with -c in the home directory and in a session of its own, streams
passed on as bytes with half close, and the channel stays open until everybody who holds the command's
output has closed it. A lost connection closes the command's streams and sends it no signal.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import signal
import sys
from pathlib import Path
from typing import Any

import asyncssh

PIECE = 1 << 16


class Gate(asyncssh.SSHServer):
    """Who may log in (this account, by key), and whether connections may be passed on."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        if username == self._settings["user"]:
            self._connection.set_authorized_keys(self._settings["authorized_keys"])
        return True

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        del dest_host, dest_port, orig_host, orig_port
        if not self._settings["forwarding"]:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "forwarding is not allowed here"
            )
        return True


async def run_command(process: asyncssh.SSHServerProcess[bytes], env: dict[str, str]) -> None:
    """One exec request, from its start to its exit status."""
    account = pwd.getpwuid(os.getuid())
    shell = account.pw_shell or "/bin/sh"
    command = [shell, "-c", process.command] if process.command else [shell]
    home = account.pw_dir if Path(account.pw_dir).is_dir() else "/"
    base = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": shell}
    peer, own = (process.get_extra_info(name) or ("127.0.0.1", 0) for name in ("peername", "sockname"))
    # bash reads ~/.bashrc for a command when it sees these, so they decide what login files print.
    base["SSH_CLIENT"] = f"{peer[0]} {peer[1]} {own[1]}"
    base["SSH_CONNECTION"] = f"{peer[0]} {peer[1]} {own[0]} {own[1]}"
    inner_in, outer_in = os.pipe()
    outer_out, inner_out = os.pipe()
    outer_err, inner_err = os.pipe()
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=inner_in,
        stdout=inner_out,
        stderr=inner_err,
        env={**base, **env},
        cwd=home,
        start_new_session=True,
    )
    for descriptor in (inner_in, inner_out, inner_err):
        os.close(descriptor)
    feeding = asyncio.ensure_future(_feed(process, outer_in, child.pid))
    await asyncio.gather(_drain(outer_out, process.stdout), _drain(outer_err, process.stderr))
    status = await child.wait()
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    if status < 0:
        process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        process.exit(status)


async def _feed(process: asyncssh.SSHServerProcess[bytes], descriptor: int, pid: int) -> None:
    """Pass the client's input on, and its end; a signal request goes to the command's group."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        while True:
            try:
                piece = await process.stdin.read(PIECE)
            except asyncssh.SignalReceived as request:
                os.killpg(pid, signal.Signals[f"SIG{request.signal}"])
                continue
            if not piece:
                return
            writer.write(piece)
            await writer.drain()
    except (OSError, KeyError, asyncssh.Error):
        return  # the command no longer reads, or the connection has gone: both end the input
    finally:
        transport.close()


async def _drain(descriptor: int, sink: asyncssh.SSHWriter[bytes]) -> None:
    """Pass the command's output on until everybody has closed it, or the client has gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        while piece := await reader.read(PIECE):
            sink.write(piece)
            await sink.drain()
    except (OSError, asyncssh.Error):
        return
    finally:
        transport.close()


async def serve(settings: dict[str, Any]) -> None:
    """Listen on a port that the system picks, write it to the ready file, serve for ever."""

    async def command(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await run_command(process, settings["env"])

    listener = await asyncssh.create_server(
        lambda: Gate(settings),
        settings["host"],
        0,
        server_host_keys=[settings["host_key"]],
        process_factory=command,
        encoding=None,
        allow_pty=False,
        line_editor=False,
        password_auth=False,
        kbdint_auth=False,
        sftp_factory=True,
        agent_forwarding=False,
    )
    ready = Path(settings["ready"])
    beside = ready.with_name(ready.name + ".new")
    beside.write_text(json.dumps({"port": listener.get_port(), "pid": os.getpid()}))
    beside.replace(ready)
    await listener.wait_closed()


def main(arguments: list[str]) -> int:
    """Run until SIGTERM, which ends the connections and leaves detached processes alone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = json.loads(Path(arguments[0]).read_text())
    asyncio.run(serve(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
