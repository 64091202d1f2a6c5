"""`${VAR}` in `args` and `env`: taken from the engineer's environment when a server is started.

The value travels to the node inside the SSH connection and is stored on neither machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import InventoryError
from .inventory import ServerEntry, arguments

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
    key = next((value for name, value in server.args.items() if name.replace("_", "-") == "api-key"), None)
    if not isinstance(key, str):
        return {}
    try:
        return {"Authorization": f"Bearer {expand(key, environment)}"}
    except InventoryError:
        return {}


def values(server: ServerEntry, environment: Mapping[str, str]) -> list[str]:
    """The secrets' values that are set: what must never be shown."""
    texts = [*arguments(server), *server.env.values(), *(server.command or [])]
    names = {name for text in texts for name in _REFERENCE.findall(text)}
    return [environment[name] for name in sorted(names) if environment.get(name)]
