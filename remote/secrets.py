"""`${VAR}` in `args` and `env`: taken from the engineer's environment when a server is started.

The value travels to the node inside the SSH connection and is stored on neither machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import InventoryError
from .inventory import Node, ServerEntry, arguments

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`text` with each `${VAR}` replaced. InventoryError when a variable is not set."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise InventoryError(
                f"the inventory wants ${{{name}}}, which is not set in your environment",
                hint=f"export {name}=... and run the command again",
            )
        return environment[name]

    return _REFERENCE.sub(value, text)


def require(server: ServerEntry, environment: Mapping[str, str]) -> None:
    """InventoryError when a variable that a start needs is not set: said before anything is touched."""
    for text in [*arguments(server), *server.env.values(), *(server.command or [])]:
        expand(text, environment)


def headers(server: ServerEntry, environment: Mapping[str, str]) -> dict[str, str]:
    """What a request to the server must carry: with --api-key it answers only to its bearer.

    (entrypoints/http_server.py, add_api_key_middleware.) Empty without a key, or while its variable is
    not set here: then the server says 401, and what is asked from it stays unknown.
    """
    key = _api_key(server)
    if key is None:
        return {}
    try:
        return {"Authorization": f"Bearer {expand(key, environment)}"}
    except InventoryError:
        return {}


def _api_key(server: ServerEntry) -> str | None:
    """As it stands in the inventory."""
    key = next((value for name, value in server.args.items() if name.replace("_", "-") == "api-key"), None)
    return key if isinstance(key, str) else None


@dataclass(frozen=True)
class Unauthorized:
    """A server that answers, but not to us: what is asked of it stays unknown."""

    why: str
    remedy: str


def unauthorized(node: Node, reply: Mapping[str, Any], environment: Mapping[str, str]) -> Unauthorized | None:
    """Why the server's reply is 401, and what to do about it; None for any other reply."""
    if reply.get("status") != 401:
        return None
    key, again = _api_key(node.server), f"inv verify --node {node.name}"
    if key is None:
        return Unauthorized(
            f"the server wants an API key, and server '{node.server_name}' names none in the inventory",
            f"name it in args of server '{node.server_name}' as ${{VARIABLE}}, export that, then: {again}",
        )
    missing = [name for name in _REFERENCE.findall(key) if name not in environment]
    if missing:
        return Unauthorized(
            f"the server wants its API key, and {missing[0]} is not set in your environment",
            f"export {missing[0]}, then: {again}",
        )
    return Unauthorized(
        f"the server does not accept the API key of server '{node.server_name}' in the inventory",
        f"look with which key it was started: inv logs --args --node {node.name}",
    )


def values(server: ServerEntry, environment: Mapping[str, str]) -> list[str]:
    """The secrets' values that are set: what must never be shown."""
    texts = [*arguments(server), *server.env.values(), *(server.command or [])]
    names = {name for text in texts for name in _REFERENCE.findall(text)}
    return [environment[name] for name in sorted(names) if environment.get(name)]
