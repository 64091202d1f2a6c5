"""From an inventory entry and ssh_config to the hops that a connection goes over.

Paramiko's SSHConfig finds the values for a host; what it leaves out is done here: Include, comments at
the end of a line, Match criteria that it would take as fulfilled, ProxyJump chains as OpenSSH builds
them, and the options about host keys. Source: ssh_config(5) of OpenSSH 9.2 and ssh.c.
"""

from __future__ import annotations

import fnmatch
import functools
import getpass
import os
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConnectError

if TYPE_CHECKING:
    from paramiko import SSHConfig
    from paramiko.config import SSHConfigDict

SSH_PORT = 22
MAX_HOPS = 8
MAX_INCLUDES = 16
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
DEFAULT_KEYS = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")
DEFAULT_USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
DEFAULT_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
MATCH_CRITERIA = {"all", "canonical", "final", "host", "originalhost", "user", "localuser", "exec"}
# The rest of these lines belongs to a shell: a # there is no comment.
COMMAND_KEYWORDS = {"match", "proxycommand", "localcommand", "remotecommand", "knownhostscommand"}


@dataclass(frozen=True)
class Target:
    """What the inventory says about a node; None is left to ssh_config.

    `host` may be an alias of ssh_config. `gateway` is written like ProxyJump ("none" for no jump).
    `known_hosts` replaces UserKnownHostsFile on every hop. `ssh_config` None means ~/.ssh/config and then
    /etc/ssh/ssh_config, a path means that file alone, as with ssh -F.
    """

    node: str
    host: str
    user: str | None = None
    port: int | None = None
    gateway: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    ssh_config: str | None = None
    connect_timeout_s: float = 15


@dataclass(frozen=True)
class Hop:
    """One SSH connection of the chain. `name` is as given, `host` where to connect, `lookup_name` what
    known_hosts is asked for: HostKeyAlias, else the host, as `[host]:port` if the port is not 22."""

    name: str
    host: str
    port: int
    user: str
    lookup_name: str
    user_known_hosts: tuple[Path, ...]
    global_known_hosts: tuple[Path, ...]
    revoked_host_keys: Path | None
    strict_host_key_checking: str | None
    hash_known_hosts: bool
    identity_files: tuple[Path, ...]
    required_identity: Path | None  # named by the inventory: it has to be there
    identities_only: bool
    agent_socket: str | None
    proxy_command: str | None
    by_hand: str  # the command that a person would log in with
    notes: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}" if ":" not in self.host else f"[{self.host}]:{self.port}"

    @property
    def known_hosts(self) -> tuple[Path, ...]:
        return self.user_known_hosts + self.global_known_hosts


def resolve(target: Target) -> tuple[Hop, ...]:
    """The hops from here to the node, the node last. Raises ConnectError if ssh_config is no good."""
    return tuple(_chain(target, target.host, target.user, target.port, target.gateway))


def _chain(
    target: Target,
    name: str,
    user: str | None,
    port: int | None,
    jump: str | None,
    *,
    behind: tuple[Hop, ...] = (),
) -> list[Hop]:
    """The hops up to `name`, which leads to the hops `behind` it. `jump` None: as ssh_config says."""
    if len(behind) >= MAX_HOPS:
        raise _problem(target, f"more than {MAX_HOPS} jump hosts, or they jump through each other")
    options, notes = _lookup(target, name, user, port)
    hop, jump = _hop(target, name, options, notes, jump, last=not behind)
    if behind and (hop.host, hop.port, hop.user) == (behind[0].host, behind[0].port, behind[0].user):
        return []  # `Host *` with a ProxyJump applies to the jump host too: it does not jump through itself
    if jump is None:
        return [hop]
    first, _, nearest = jump.rpartition(",")
    jump_user, jump_host, jump_port = parse_jump(target, nearest)
    before = _chain(target, jump_host, jump_user, jump_port, first or None, behind=(hop, *behind))
    return [*before, hop]


def parse_jump(target: Target, text: str) -> tuple[str | None, str, int | None]:
    """(user, host, port) of one `[user@]host[:port]` or `ssh://[user@]host[:port]`."""
    match = re.fullmatch(
        r"(?:ssh://)?(?:(?P<user>[^@\s]+(?:@[^@\s]+)*)@)?"
        r"(?:\[(?P<bracketed>[^\]]+)\]|(?P<host>[^:/@\s\[\]]+))(?::(?P<port>\d+))?/?",
        text.strip(),
    )
    if match is None:
        raise _problem(target, f"{text.strip()!r} is not a jump host ([user@]host[:port])")
    return match["user"], match["bracketed"] or match["host"], int(match["port"]) if match["port"] else None


def _hop(
    target: Target, name: str, options: SSHConfigDict, notes: tuple[str, ...], jump: str | None, *, last: bool
) -> tuple[Hop, str | None]:
    """The hop, and the ProxyJump that leads to it (None without one)."""
    given_jump = jump
    host = options["hostname"]
    try:
        port = int(options.get("port", SSH_PORT))
    except ValueError:
        raise _problem(target, f"the port of {name} is not a number: {options['port']!r}") from None
    user = options.get("user") or getpass.getuser()
    alias = options.get("hostkeyalias")
    plain = (alias or host).lower()
    given = list(options.get("identityfile", []))
    required = target.identity_file if last else None
    if required is not None:
        given.insert(0, required)
    tokens = {
        "%%": "%",
        "%d": str(Path.home()),
        "%h": host,
        "%k": alias or host,
        "%L": socket.gethostname().split(".")[0],
        "%n": name,
        "%p": str(port),
        "%r": user,
        "%u": getpass.getuser(),
        "%i": str(os.getuid()),
    }

    def paths(text: str) -> tuple[Path, ...]:
        return tuple(_path(word, tokens) for word in shlex.split(text) if word.lower() != "none")

    # Whichever of the two comes first counts (ssh_config(5), ProxyJump); a dict keeps the order of finding.
    first = next((key for key in options if key in ("proxyjump", "proxycommand")), None)
    proxy_command = None
    if jump is None and first == "proxyjump":
        jump = options["proxyjump"]
    elif jump is None and first == "proxycommand":
        proxy_command = options["proxycommand"]
    identity = None if required is None else _path(required, tokens)
    revoked = paths(options.get("revokedhostkeys", "none"))
    hop = Hop(
        name=name,
        host=host,
        port=port,
        user=user,
        lookup_name=plain if alias or port == SSH_PORT else f"[{plain}]:{port}",
        user_known_hosts=(
            (Path(target.known_hosts).expanduser(),)
            if target.known_hosts is not None
            else paths(options.get("userknownhostsfile", DEFAULT_USER_KNOWN_HOSTS))
        ),
        global_known_hosts=paths(options.get("globalknownhostsfile", DEFAULT_GLOBAL_KNOWN_HOSTS)),
        revoked_host_keys=revoked[0] if revoked else None,
        strict_host_key_checking=options.get("stricthostkeychecking"),
        hash_known_hosts=options.get("hashknownhosts", "no").lower() == "yes",
        identity_files=tuple(
            _path(word, tokens) for word in (given or DEFAULT_KEYS) if word.lower() != "none"
        ),
        required_identity=identity,
        identities_only=options.get("identitiesonly", "no").lower() == "yes",
        agent_socket=_agent_socket(options.get("identityagent"), tokens),
        proxy_command=proxy_command,
        by_hand=_by_hand(target, f"{user}@{name}", options.get("port"), identity, given_jump),
        notes=notes,
    )
    return hop, None if jump is None or jump.strip().lower() == "none" else jump


def _by_hand(target: Target, login: str, port: str | None, identity: Path | None, jump: str | None) -> str:
    """ssh to this hop with everything that the inventory says: a plain `ssh HOST` may be another machine."""
    config = None if target.ssh_config is None else Path(target.ssh_config).expanduser()
    options = {"-F": config, "-p": port, "-i": identity, "-J": jump}
    words = [word for flag, value in options.items() if value is not None for word in (flag, str(value))]
    if target.known_hosts is not None:
        words += ["-o", f"UserKnownHostsFile={Path(target.known_hosts).expanduser()}"]
    return shlex.join(["ssh", *words, login])


def _path(text: str, tokens: dict[str, str]) -> Path:
    text = re.sub(r"%.", lambda match: tokens.get(match[0], match[0]), text)
    text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), text)
    return Path(text).expanduser()


def _agent_socket(option: str | None, tokens: dict[str, str]) -> str | None:
    """Where the agent listens: IdentityAgent, else $SSH_AUTH_SOCK; None without one."""
    if option is None or option == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if option.lower() == "none":
        return None
    if option.startswith("$") and not option.startswith("${"):
        return os.environ.get(option[1:]) or None
    return str(_path(option, tokens))


def _lookup(
    target: Target, name: str, user: str | None, port: int | None
) -> tuple[SSHConfigDict, tuple[str, ...]]:
    """ssh_config's values for one host. What is given explicitly comes first, like ssh's own -l and -p."""
    import paramiko

    for word in (name, user or ""):
        if not word.isprintable() or word.startswith("-") or re.search(r"\s", word):
            raise _problem(target, f"{word!r} is not a host or user name")
    lines = [f"Port {port}"] if port is not None else []
    lines += [f"User {user}"] if user is not None else []
    files = [Path(target.ssh_config).expanduser()] if target.ssh_config is not None else []
    if target.ssh_config is not None and (not files[0].exists() or files[0].is_dir()):
        raise _problem(target, f"there is no ssh_config {files[0]}")
    notes: list[str] = []
    for path in files or [Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG]:
        lines += ["Host *", *_lines(_Reading(target, name, path.parent, notes), path)]
    try:
        return _parsed(tuple(lines)).lookup(name), tuple(notes)
    except (paramiko.SSHException, ValueError, KeyError) as error:
        raise _problem(target, f"ssh_config cannot be used for {name}: {error}") from error


@functools.lru_cache(maxsize=32)
def _parsed(lines: tuple[str, ...]) -> SSHConfig:
    """Nodes of a group mostly get the same lines."""
    import paramiko

    return paramiko.SSHConfig.from_text("\n".join(lines))


@dataclass(frozen=True)
class _Reading:
    """What reading a file needs to know; `notes` collects what is passed over."""

    target: Target
    name: str
    base: Path  # relative Include paths begin here
    notes: list[str]


def _lines(reading: _Reading, path: Path, depth: int = 0) -> Iterator[str]:
    """The lines of a configuration file as Paramiko understands them, with included files in their place."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # as ssh does for the usual files and for what Include names
    header = "Host *"
    applies: bool | None = True  # does the block apply to the host? None: only Paramiko's Match can tell
    for line in text.splitlines():
        match = re.match(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)", line)
        if match is None:
            continue
        keyword = match[1].lower()
        value = match[2] if keyword in COMMAND_KEYWORDS else _without_comment(match[2])
        if keyword == "host":
            header, applies = f"Host {value}", _host_applies(_words(reading, path, value), reading.name)
            yield header
        elif keyword == "match":
            header, applies = _match_line(reading, path, value), None
            yield header
        elif keyword != "include":
            yield f"{keyword} {value}"
        elif applies is not False:
            for file in _included(reading, path, value, depth):
                lines = list(_lines(reading, file, depth + 1))
                if applies is None and any(re.match(r"(Host|Match) ", line) for line in lines):
                    reading.notes.append(f"{file} has blocks of its own inside a Match of {path}: not read")
                else:
                    yield from [*lines, header]


def _included(reading: _Reading, path: Path, value: str, depth: int) -> Iterator[Path]:
    """The files that an Include line names."""
    if depth >= MAX_INCLUDES:
        raise _problem(reading.target, f"{path} includes itself")
    for pattern in _words(reading, path, value):
        anchor = reading.base / Path(pattern).expanduser()
        yield from sorted(Path(anchor.anchor).glob(str(anchor.relative_to(anchor.anchor))))


def _match_line(reading: _Reading, path: Path, value: str) -> str:
    """The Match line, or one that never applies if Paramiko would take an unknown criterion as fulfilled."""
    words = _words(reading, path, value)
    index = 0
    while index < len(words):
        criterion = words[index].lower().lstrip("!")
        if criterion not in MATCH_CRITERIA:
            reading.notes.append(f"`Match {value}` in {path} is not understood here and does not apply")
            return "Host !*"
        words[index] = words[index].lower()
        index += 1 if criterion in ("all", "canonical", "final") else 2
    return "Match " + shlex.join(words)


def _words(reading: _Reading, path: Path, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise _problem(reading.target, f"{path}: {value!r}: {error}") from error


def _host_applies(patterns: Sequence[str], name: str) -> bool:
    if any(pattern.startswith("!") and fnmatch.fnmatchcase(name, pattern[1:]) for pattern in patterns):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns if not pattern.startswith("!"))


def _without_comment(value: str) -> str:
    """The value without a comment at its end; a # inside quotes or a word is none."""
    return re.sub(r"""^((?:"[^"]*"|'[^']*'|[^"'])*?)\s+#.*$""", r"\1", value)


def _problem(target: Target, message: str) -> ConnectError:
    return ConnectError(
        f"cannot tell how to reach {target.node}: {message}",
        hint="check ssh_config, or set host, user, port and gateway of the node in inventory.yaml",
        node=target.node,
        data={"reason": "ssh-config"},
    )
