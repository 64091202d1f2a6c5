"""`${VAR}` in `args` and `env`: taken from the engineer's environment when a server is started.

The value travels to the node inside the SSH connection and is stored on neither machine. Whoever has not
set the variable, or has set it to something else, must not be shown it either: `on_node` reads off the node
what it is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import InventoryError
from .inventory import Node, ServerEntry, arguments, command
from .sglang.adjustments import canonical
from .sglang.redact import MASK

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`text` with each `${VAR}` replaced; within JSON (a mapping among the arguments) as JSON writes it: a
    quote in a password would break it. InventoryError when a variable is not set."""
    within_json = _is_json(text)

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise InventoryError(
                f"the inventory wants ${{{name}}}, which is not set in your environment",
                hint=f"export {name}=... and run the command again",
            )
        return json.dumps(environment[name])[1:-1] if within_json else environment[name]

    return _REFERENCE.sub(value, text)


def _is_json(text: str) -> bool:
    """An object or a list."""
    try:
        return text[:1] in ("{", "[") and json.loads(text) is not None
    except ValueError:
        return False


def require(server: ServerEntry, environment: Mapping[str, str]) -> None:
    """InventoryError when a variable that a start needs is not set: said before anything is touched."""
    for text in [*arguments(server), *server.env.values(), *(server.command or [])]:
        expand(text, environment)


def missing(text: str, environment: Mapping[str, str]) -> list[str]:
    """The variables that `text` names and that are not set."""
    return [name for name in _REFERENCE.findall(text) if name not in environment]


def environment_of(server: ServerEntry, environment: Mapping[str, str]) -> dict[str, str]:
    """The server's variables as a start from here would set them. Without those that name a variable which is
    not set here: what they are on the node, nobody here knows."""
    known = {name: text for name, text in server.env.items() if not missing(text, environment)}
    return {name: expand(text, environment) for name, text in known.items()}


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
    unset = missing(key, environment)
    if unset:
        return Unauthorized(
            f"the server wants its API key, and {unset[0]} is not set in your environment",
            f"export {unset[0]}, then: {again}",
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


def on_node(node: Node, facts: Mapping[str, Any], logged: Iterable[Mapping[str, object]]) -> set[str]:
    """The values that `${VAR}` has on the node: in the command lines and variables of its processes, and in
    the arguments `logged` by its boots.

    `facts`: the sections `procs` and `state`. The record of a boot that this toolkit started keeps its
    references, which this inventory may have lost.
    """
    records = [boot.get("record") or {} for boot in (facts.get("state") or {}).get("boots") or []]
    lines = [command(node), *(list(record.get("argv") or []) for record in records)]
    options = [(name, text) for line in lines for name, text in _options(line) if _REFERENCE.search(text)]
    variables = [
        (name, text)
        for env in (node.server.env, *(record.get("env") or {} for record in records))
        for name, text in env.items()
        if isinstance(text, str) and _REFERENCE.search(text)
    ]
    found: set[str] = set()
    for process in (facts.get("procs") or {}).get("processes") or []:
        argv, env = list(process.get("argv") or []), process.get("env") or {}
        words = [pairs for line in lines if (pairs := same_command(line, argv))]
        given = list(_options(argv))
        found |= _filled(words[0] if words else _beside(options, given))
        found |= _filled((text, env.get(name)) for name, text in variables)
    for args in logged:
        given = [
            (name, str(value))
            for name, values in args.items()
            for value in (values if isinstance(values, list | tuple) else [values])
            if isinstance(value, str)
        ]
        found |= _filled(_beside(options, given))
    # An argument that was left out is logged with its default: often another one's value, as the model's path
    # is the default of its name. What the inventory spells out is nobody's secret.
    return found - {MASK} - {word for word in command(node) if not _REFERENCE.search(word)}


def _options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(SGLang's name, value) of each option of a command line; several values are several pairs."""
    name = None
    for word in argv:
        option, has_value, value = word.partition("=")
        if option.startswith("--") and len(option) > 2:
            name = canonical(option)
            if has_value:
                yield name, value
        elif name is not None:
            yield name, word


def _beside(
    options: Iterable[tuple[str, str]], given: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """(text, value) where the option is given: of several values each may be the one."""
    for name, text in options:
        yield from ((text, value) for other, value in given if other == name)


def same_command(line: Sequence[str], argv: Sequence[str]) -> list[tuple[str, str]]:
    """(word of the inventory, word found) of a process started by this very line; else nothing."""
    if len(line) != len(argv):
        return []
    pairs = list(zip(line, argv, strict=True))
    return pairs if all(_pattern(text).fullmatch(word) or word == MASK for text, word in pairs) else []


def _filled(pairs: Iterable[tuple[str, str | None]]) -> set[str]:
    """What stands in the place of the references: (text of the inventory, what was found in its place)."""
    found: set[str] = set()
    for text, actual in pairs:
        if actual is not None and _REFERENCE.search(text):
            match = _pattern(text).fullmatch(actual)
            # With another text around it than the inventory's, all of it may be the secret.
            found |= set(match.groups()) if match else {actual}
    return found


def _pattern(text: str) -> re.Pattern[str]:
    """What `text` matches once its references are filled in: a group for each."""
    return re.compile("(.*)".join(map(re.escape, _REFERENCE.split(text)[::2])), re.DOTALL)
