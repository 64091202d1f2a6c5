"""A real SSH server on 127.0.0.1 for the practice node: no root needed, nothing of the machine's own touched.

OpenSSH's sshd where it is installed and lets this account in, else the asyncssh server of
asyncssh_server.py. Everything that belongs to the server (its host key, the one user key that it
accepts, configuration, log) lies in one directory. The server is a process of its own that outlives
whoever started it; it is named by pid and start time and stopped by them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from remote.errors import RefusedError

Kind = Literal["openssh", "asyncssh"]
HOST = "127.0.0.1"
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
PORT_ATTEMPTS = 5


class SshServerError(RefusedError):
    """The practice SSH server could not be started or stopped."""

    code = "practice-ssh"


@dataclass(frozen=True)
class SshServer:
    """A running server. `why` says why it is not OpenSSH although nobody asked for another kind."""

    kind: Kind
    host: str
    port: int
    user: str
    pid: int
    starttime_ticks: int
    identity_file: Path
    known_hosts: Path
    log: Path
    why: str | None = None


@dataclass(frozen=True)
class _Settings:
    """What both kinds of server are started with."""

    directory: Path
    user: str
    host_key: Path
    authorized_keys: Path
    log: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    forwarding: bool = True


def start(
    directory: Path,
    *,
    kind: Kind | None = None,
    path_prefix: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    forwarding: bool = True,
) -> SshServer:
    """Start a server that keeps its files in `directory` and return it once a connection ran `true`.

    `path_prefix` comes first on the PATH of commands, `env` is added to their environment. Keys that
    are already in the directory are kept. `forwarding=False` refuses jump connections. Raises
    SshServerError with the end of the server's log.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    public_host_key = _ensure_key(directory / "host_key")
    public_user_key = _ensure_key(directory / "user_key")
    _write(directory / "authorized_keys", public_user_key + "\n")
    base_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    settings = _Settings(
        directory=directory,
        user=pwd.getpwuid(os.getuid()).pw_name,
        host_key=directory / "host_key",
        authorized_keys=directory / "authorized_keys",
        log=directory / "sshd.log",
        variables={"PATH": ":".join([*map(str, path_prefix), base_path]), **(env or {})},
        forwarding=forwarding,
    )
    why = None
    if kind != "asyncssh":
        try:
            return _started("openssh", _start_openssh, settings, public_host_key)
        except SshServerError as error:
            if kind == "openssh":
                raise
            why = error.message
    return _started("asyncssh", _start_asyncssh, settings, public_host_key, why=why)


def is_running(server: SshServer) -> bool:
    """Is this very process (pid and start time) still there and not a zombie?"""
    return starttime_ticks(server.pid) == server.starttime_ticks


def stop(server: SshServer) -> bool:
    """End the server and its connections; false if it was not running. Detached processes live on.

    Read back: raises SshServerError when the process is still there after SIGKILL.
    """
    if not is_running(server):
        return False
    connections = _children(server.pid) if server.kind == "openssh" else []
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid, ticks in [(server.pid, server.starttime_ticks), *connections]:
            if starttime_ticks(pid) == ticks:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal_number)
        if _poll(lambda: not is_running(server), STOP_TIMEOUT_S):
            _reap(server.pid)
            return True
    raise SshServerError(f"the SSH server with pid {server.pid} does not end, not even after SIGKILL")


def starttime_ticks(pid: int) -> int | None:
    """Start time of a live process in clock ticks since boot (proc(5), stat field 22), None for a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[0] == "Z" else int(stat[19])


def _started(
    kind: Kind,
    launch: Callable[[_Settings], tuple[int, int]],
    settings: _Settings,
    public_host_key: str,
    *,
    why: str | None = None,
) -> SshServer:
    offset = settings.log.stat().st_size if settings.log.exists() else 0
    pid, port = launch(settings)
    ticks = starttime_ticks(pid)
    known_hosts = settings.directory / "known_hosts"
    _write(known_hosts, f"[{HOST}]:{port} {public_host_key}\n")
    server = SshServer(
        kind=kind,
        host=HOST,
        port=port,
        user=settings.user,
        pid=pid,
        starttime_ticks=ticks or 0,
        identity_file=settings.directory / "user_key",
        known_hosts=known_hosts,
        log=settings.log,
        why=why,
    )
    problem = "it ended at once" if ticks is None else _try_true(server)
    if problem is not None:
        stop(server)
        raise SshServerError(
            f"{kind} on {HOST}:{port} does not let {settings.user} run a command: {problem}"
            f"{_log_tail(settings.log, offset)}",
            hint=f"see {settings.log}",
        )
    return server


def openssh() -> Path:
    """Where OpenSSH's sshd is; SshServerError if it is not installed."""
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if sshd is None:
        raise SshServerError("OpenSSH's sshd is not installed", hint="Debian: apt-get install openssh-server")
    return Path(sshd).absolute()


def _start_openssh(settings: _Settings) -> tuple[int, int]:
    """Start sshd; (pid, port). Another process can take a free port first, hence the attempts."""
    sshd = openssh()
    if os.geteuid() == 0:
        # Privilege separation of a server that runs as root needs this directory, and only a service
        # manager would otherwise make it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for _ in range(PORT_ATTEMPTS):
        port = _free_port()
        configuration = settings.directory / "sshd_config"
        _write(configuration, _sshd_config(settings, port))
        # sshd starts itself again for every connection, so it has to be called by its absolute path.
        pid = _spawn([str(sshd), "-D", "-f", str(configuration), "-E", str(settings.log)], {})
        if _poll(lambda pid=pid, port=port: starttime_ticks(pid) is None or _answers(port), START_TIMEOUT_S):  # type: ignore[misc]
            if starttime_ticks(pid) is not None:
                return pid, port
            _reap(pid)
    raise SshServerError("sshd ended while starting" + _log_tail(settings.log, 0), hint=f"see {settings.log}")


def _start_asyncssh(settings: _Settings) -> tuple[int, int]:
    """Start asyncssh_server.py; (pid, port). It picks the port itself and tells it in a file."""
    ready = settings.directory / "asyncssh.ready.json"
    ready.unlink(missing_ok=True)
    configuration = settings.directory / "asyncssh.json"
    _write(
        configuration,
        json.dumps(
            {
                "host": HOST,
                "user": settings.user,
                "host_key": str(settings.host_key),
                "authorized_keys": str(settings.authorized_keys),
                "ready": str(ready),
                "env": dict(settings.variables),
                "forwarding": settings.forwarding,
            }
        ),
    )
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-B", "-m", "remote.practice.asyncssh_server", str(configuration)]
    pid = _spawn(command, {"PYTHONPATH": root}, settings.log)
    if (
        not _poll(lambda: starttime_ticks(pid) is None or ready.exists(), START_TIMEOUT_S)
        or not ready.exists()
    ):
        raise SshServerError("the asyncssh server did not start" + _log_tail(settings.log, 0))
    return pid, int(json.loads(ready.read_text())["port"])


def _sshd_config(settings: _Settings, port: int) -> str:
    variables = " ".join(
        '"' + f"{name}={value}".replace('"', '\\"') + '"' for name, value in settings.variables.items()
    )
    lines = {
        "Port": str(port),
        "ListenAddress": HOST,
        "HostKey": f'"{settings.host_key}"',
        "AuthorizedKeysFile": f'"{settings.authorized_keys}"',
        "PidFile": "none",
        "AllowUsers": settings.user,
        "PermitRootLogin": "prohibit-password",
        "PubkeyAuthentication": "yes",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "StrictModes": "no",
        "UseDNS": "no",
        "PrintMotd": "no",
        "PrintLastLog": "no",
        "LogLevel": "VERBOSE",
        "MaxStartups": "200",
        "Subsystem": "sftp internal-sftp",
        "AllowTcpForwarding": "yes" if settings.forwarding else "no",
        "SetEnv": variables,
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def _try_true(server: SshServer) -> str | None:
    """Connect with the written key and known_hosts and run `true`; the problem, or None."""
    import paramiko

    with contextlib.closing(paramiko.SSHClient()) as client:
        client.load_host_keys(str(server.known_hosts))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.connect(
                server.host,
                server.port,
                server.user,
                key_filename=str(server.identity_file),
                allow_agent=False,
                look_for_keys=False,
                timeout=START_TIMEOUT_S,
            )
            _, stdout, _ = client.exec_command("true", timeout=START_TIMEOUT_S)
            status = stdout.channel.recv_exit_status()
        except (OSError, EOFError, paramiko.SSHException) as error:
            return str(error) or type(error).__name__
    return None if status == 0 else f"`true` ended with status {status}"


def _ensure_key(path: Path) -> str:
    """The public half of the Ed25519 key at `path`, made if it is not there, in OpenSSH's format."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = path.with_name(path.name + ".pub")
    if not (path.exists() and public.exists()):
        key = Ed25519PrivateKey.generate()
        encoded = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        _write(path, private.decode())
        _write(public, f"{encoded.decode()} practice\n")
    return " ".join(public.read_text().split()[:2])


def _write(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    beside.replace(path)


def _spawn(command: Sequence[str], extra_env: Mapping[str, str], output: Path | None = None) -> int:
    """Start a process in a session of its own, with none of our streams; its pid."""
    target = str(output or os.devnull)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, target, flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(
        command[0], list(command), {**os.environ, **extra_env}, file_actions=actions, setsid=True
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _poll(predicate: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on (the name before it may hold anything)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _children(parent: int) -> list[tuple[int, int]]:
    """(pid, start time) of the live direct children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if (
            entry.name.isdigit()
            and (stat := _stat(int(entry.name)))
            and int(stat[1]) == parent
            and stat[0] != "Z"
        ):
            found.append((int(entry.name), int(stat[19])))
    return found


def _reap(pid: int) -> None:
    """If the process was a child of this one, its entry goes; otherwise there is nothing to do."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _log_tail(log: Path, offset: int) -> str:
    try:
        text = log.read_bytes()[offset:].decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip()][-5:]
    return "; its log ends: " + shlex.join(lines) if lines else ""
