"""The inventory: which nodes there are, how to reach them, and what each is meant to serve.

Wrong keys, wrong types and dangling names are errors that give the file, the line and the nearest
valid key. Values are data: they reach the node as arguments, never through a shell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from . import bundles
from .errors import ConnectError, InventoryError, UsageError
from .practice.layout import here as practice_node
from .sglang.adjustments import canonical
from .yamlfile import Document, load_document

DEFAULT_PATH = "inventory.yaml"
ArgValue = str | int | float | bool | list[str | int | float] | dict[str, Any] | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Defaults(_Strict):
    node: str | None = None
    fix: str | None = None


class NodeEntry(_Strict):
    """How to reach one node. What is unset comes from ssh_config."""

    practice: bool = False
    host: str | None = None
    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    gateway: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    ssh_config: str | None = None
    python: str | None = None
    server: str | None = None
    sudo: bool = False
    state_dir: str | None = None

    @field_validator("state_dir")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        """As node/state.py takes it: said here with the line, before the node is connected to."""
        if path is not None and (not path.startswith(("/", "~")) or "\0" in path):
            raise ValueError("Give an absolute path, or one that begins with ~")
        return path


class Expect(_Strict):
    accept_len: float | None = Field(default=None, gt=0)
    output_tok_s: float | None = Field(default=None, gt=0)


class ServerEntry(_Strict):
    """What one SGLang server is meant to be."""

    model_path: str
    draft_model_path: str | None = None
    port: int = Field(ge=1, le=65535)
    log: str
    args: dict[str, ArgValue] = {}
    env: dict[str, str] = {}
    command: list[str] | None = Field(default=None, min_length=1)
    cwd: str | None = None
    # Which bundle this server needs, where it is not `defaults.fix`: a contract belongs to a model.
    fix: str | None = None
    ready_timeout_s: float = Field(default=1800, gt=0)
    expect: Expect = Expect()


class InventoryFile(_Strict):
    defaults: Defaults = Defaults()
    nodes: dict[str, NodeEntry]
    groups: dict[str, Annotated[list[str], Field(min_length=1)]] = {}
    servers: dict[str, ServerEntry] = {}


@dataclass(frozen=True)
class Node:
    """One node, resolved: where it is and what it is meant to serve."""

    name: str
    host: str
    user: str | None
    port: int | None
    gateway: str | None
    identity_file: str | None
    known_hosts: str | None
    ssh_config: str | None
    python: str
    sudo: bool
    state_dir: str | None
    server_name: str
    server: ServerEntry


@dataclass(frozen=True)
class Inventory:
    path: Path
    default_node: str | None
    default_fix: str | None
    nodes: dict[str, Node]
    groups: dict[str, list[str]]

    def select(self, name: str | None) -> list[Node]:
        """The node called `name`, or the nodes of the group called so (default: `defaults.node`)."""
        wanted = self.default_node if name is None else name
        if wanted is None:
            raise UsageError(
                f"no node named, and {self.path} has no defaults.node",
                hint="give --node NAME, one of: " + ", ".join(sorted([*self.nodes, *self.groups])),
            )
        return [self.nodes[each] for each in _members(self.path, wanted, self.nodes, self.groups)]


def load(path: str | None = None, only: str | None = None) -> Inventory:
    """Read the inventory from `path`, else $FIXOPS_INVENTORY, else inventory.yaml.

    `only` names the node or group that the command is about: a practice node that is not up is an
    error only for a command that wants it.
    """
    file = _file(path)
    parsed, document = _read(file)
    wanted = only or parsed.defaults.node
    wanted_nodes = set(parsed.groups.get(wanted, [wanted])) if wanted else set()
    nodes = {}
    for name, entry in parsed.nodes.items():
        if entry.practice:
            practice = _practice_node(name, required=name in wanted_nodes)
            if practice:
                nodes[name] = practice
        else:
            nodes[name] = _node(name, entry, parsed, document)
    return Inventory(file, parsed.defaults.node, parsed.defaults.fix, nodes, parsed.groups)


def practice_name(path: str | None, node: str | None) -> str:
    """What the inventory calls the practice node, whether that is up or not: `node` itself, or the first node
    of that group. Without it the default node, or else the first that is a practice node.

    Raises UsageError for a node that is none: what is meant for a practice node must not go to a real one.
    """
    file = _file(path)
    parsed, _ = _read(file)
    # The inventory that `inv practice.up` wrote describes the practice node as an ordinary one.
    own = file.resolve() == practice_node().inventory
    practice = [name for name, entry in parsed.nodes.items() if entry.practice or own]
    hint = "or leave --node and --inventory out: the practice node is one of this machine"
    if not practice:
        raise UsageError(
            f"{file} has no practice node" + (f", and '{node}' is none" if node else ""),
            hint=f"give it one (practice: {{practice: true}}), {hint}",
        )
    if node is None:
        return parsed.defaults.node if parsed.defaults.node in practice else practice[0]
    names = _members(file, node, parsed.nodes, parsed.groups)
    for each in names:
        if each not in practice:
            raise UsageError(
                f"'{each}' is no practice node: {file} does not say practice: true of it",
                hint=f"type --node {practice[0]}, {hint}",
            )
    return names[0]


def _file(path: str | None) -> Path:
    if path == "":
        raise UsageError("--inventory is empty: that names no file", hint="is the shell variable set?")
    return Path(path or os.environ.get("FIXOPS_INVENTORY") or DEFAULT_PATH)


def _members(file: Path, name: str, nodes: Collection[str], groups: Mapping[str, list[str]]) -> list[str]:
    """The node called `name`, or the nodes of the group called so."""
    if name == "":
        raise UsageError(
            "--node is empty: that names no node",
            hint="is the shell variable set? Without --node it is defaults.node",
        )
    names = groups.get(name, [name])
    for each in names:
        if each not in nodes:
            known = sorted([*nodes, *groups])
            raise UsageError(
                f"{file} has no node or group '{each}'{Document.nearest(each, known)}",
                hint="known: " + ", ".join(known),
            )
    return names


def _read(file: Path) -> tuple[InventoryFile, Document]:
    """One inventory file in which everything fits together."""
    document = load_document(file, InventoryError)
    try:
        parsed = InventoryFile.model_validate(document.data)
    except ValidationError as error:
        raise InventoryError(
            document.describe(error, InventoryFile),
            hint="the keys are described in README.md, section Inventory",
        ) from None
    _check_names(parsed, document)
    _check_arguments(parsed, document)
    return parsed, document


def _check_names(parsed: InventoryFile, document: Document) -> None:
    def dangling(where: list[str | int], value: str, known: list[str], kind: str) -> InventoryError:
        place = ".".join(str(part) for part in where)
        return InventoryError(
            f"{document.place(where)}: {place} names {kind} '{value}', which is not there"
            f"{Document.nearest(value, known)}",
            hint=f"known: {', '.join(known) or 'none'}",
        )

    nodes, groups, servers = sorted(parsed.nodes), sorted(parsed.groups), sorted(parsed.servers)
    if parsed.defaults.node is not None and parsed.defaults.node not in [*nodes, *groups]:
        raise dangling(["defaults", "node"], parsed.defaults.node, [*nodes, *groups], "the node or group")
    for group, members in parsed.groups.items():
        if group in parsed.nodes:
            raise InventoryError(
                f"{document.place(['groups', group])}: '{group}' is a node and a group", hint="rename one"
            )
        for index, member in enumerate(members):
            if member not in parsed.nodes:
                raise dangling(["groups", group, index], member, nodes, "the node")
            if member in members[:index]:
                # It would be worked on twice, and read twice at the same time.
                place = document.place(["groups", group, index])
                raise InventoryError(
                    f"{place}: groups.{group} names the node '{member}' twice", hint="remove one"
                )
    for name, entry in parsed.nodes.items():
        if entry.server is not None and entry.server not in parsed.servers:
            raise dangling(["nodes", name, "server"], entry.server, servers, "the server")
    fixes = bundles.names()
    named: list[tuple[list[str | int], str | None]] = [(["defaults", "fix"], parsed.defaults.fix)]
    named += [(["servers", name, "fix"], server.fix) for name, server in parsed.servers.items()]
    for where, fix in named:
        if fix is not None and fix not in fixes:
            raise dangling(where, fix, fixes, "the fix")


def _check_arguments(parsed: InventoryFile, document: Document) -> None:
    """`args` must not say otherwise than the server's own keys: everything here goes by those, the server by
    `args`, and a start would wait on one port for a server that listens on another."""
    for name, server in parsed.servers.items():
        for key, own in _own_arguments(server).items():
            for given, value in server.args.items():
                if canonical(given) == canonical(key) and str(value) != str(own):
                    raise InventoryError(
                        f"{document.place(['servers', name, 'args', given])}: servers.{name}.args.{given} is "
                        f"{value!r}, but the server's own key says {own!r}",
                        hint=f"leave '{given}' out of args: it is given from the server's own key",
                    )


def _node(name: str, entry: NodeEntry, parsed: InventoryFile, document: Document) -> Node:
    missing = [key for key in ("host", "python", "server") if getattr(entry, key) is None]
    if missing:
        raise InventoryError(
            f"{document.place(['nodes', name])}: node '{name}' lacks {', '.join(missing)}",
            hint="a node needs host, python and server (or practice: true)",
        )
    assert entry.host is not None
    assert entry.python is not None
    assert entry.server is not None
    return Node(
        name=name,
        host=entry.host,
        user=entry.user,
        port=entry.port,
        gateway=entry.gateway,
        identity_file=entry.identity_file,
        known_hosts=entry.known_hosts,
        ssh_config=entry.ssh_config,
        python=entry.python,
        sudo=entry.sudo,
        state_dir=entry.state_dir,
        server_name=entry.server,
        server=parsed.servers[entry.server],
    )


def _practice_node(name: str, *, required: bool) -> Node | None:
    """`inv practice.up` writes an ordinary inventory file: the practice node is read from there."""
    file = practice_node().inventory
    if not file.exists():
        if required:
            raise ConnectError("the practice node is not up", hint="inv practice.up", node=name)
        return None
    parsed, document = _read(file)
    (entry,) = parsed.nodes.values()
    return _node(name, entry, parsed, document)


def _own_arguments(server: ServerEntry) -> dict[str, ArgValue]:
    """The arguments that have a key of their own in the inventory."""
    own: dict[str, ArgValue] = {"model-path": server.model_path}
    if server.draft_model_path is not None:
        own["speculative-draft-model-path"] = server.draft_model_path
    own["port"] = server.port
    return own


def arguments(server: ServerEntry) -> list[str]:
    """The server's arguments as a list. `true` is a bare flag; false and null leave the flag out.

    Lists become several values, mappings one JSON value. `${VAR}` is not expanded here.
    """
    merged = _own_arguments(server)
    merged.update({key.replace("_", "-"): value for key, value in server.args.items()})
    argv: list[str] = []
    for key, value in merged.items():
        if value is None or value is False:
            continue
        argv.append(f"--{key}")
        if isinstance(value, list):
            argv.extend(str(item) for item in value)
        elif isinstance(value, dict):
            argv.append(json.dumps(value))
        elif value is not True:
            argv.append(str(value))
    return argv


def command(node: Node) -> list[str]:
    """The whole command line of the node's server, secrets still written as `${VAR}`."""
    head = node.server.command or [node.python, "-m", "sglang.launch_server"]
    return [*head, *arguments(node.server)]
