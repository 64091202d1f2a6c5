"""`inv trust`: the host keys on the way to a node, and the unknown one recorded when told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import trust
from .errors import ConnectError, ExitCode
from .hostkeys import Status
from .inventory import Node
from .session import target_of


@dataclass(frozen=True)
class Trusted:
    """`keys`: one per hop, up to the first whose key is not known. `recorded`: the file, if written."""

    node: str
    keys: tuple[dict[str, Any], ...]
    recorded: str | None
    replaced_lines: tuple[int, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """0 when every key is known, or was just recorded; 3 while one is not: no command would connect."""
        known = all(key["status"] == Status.KNOWN.value for key in self.keys)
        return ExitCode.OK if known or self.recorded else ExitCode.CONNECT

    @property
    def failure(self) -> ConnectError | None:
        """A key is not the known one: no command would connect."""
        if self.exit_code == ExitCode.OK:
            return None
        asked = next(key for key in self.keys if key["status"] != Status.KNOWN.value)
        return ConnectError(
            f"{self.node}: the host key of {asked['host']} is {asked['status']}: {asked['fingerprint']}",
            hint="compare the fingerprint with what the node's console or its owner says, then:"
            f" inv trust --yes --node {self.node}",
            node=self.node,
            data={"reason": f"host-key-{asked['status']}"},
        )

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "keys": list(self.keys), "recorded": self.recorded}


def trust_node(node: Node, *, record: bool) -> Trusted:
    """Fetch, and with `record` write the last key shown. Errors as in remote/trust.py."""
    target = target_of(node)
    keys = trust.fetch_host_key(target)
    shown = tuple(
        {
            "host": key.hop.name,
            "type": key.check.key_type,
            "fingerprint": key.check.fingerprint,
            "status": key.check.status.value,
            "file": str(key.file) if key.file else None,
        }
        for key in keys
    )
    if not record or keys[-1].check.status is Status.KNOWN:
        return Trusted(node.name, shown, None)
    done = trust.record(target, keys[-1])
    return Trusted(node.name, shown, str(done.file) if done.written else None, done.removed_lines)
