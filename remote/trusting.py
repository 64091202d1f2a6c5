"""`inv trust`: the host keys on the way to a node, and the unknown one recorded when told to."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

from . import hostkeys, trust
from .errors import ConnectError, ExitCode, FixopsError, RefusedError
from .hostkeys import Status
from .inventory import Node
from .session import target_of


@dataclass(frozen=True)
class Trusted:
    """`keys`: one per hop, up to the first whose key is not known. `recorded`: the file, if written.
    `error`: why no command would connect, or why it was not recorded. Of a dry run `would_record` is the file
    that would be written, if any, and `next_step` what to do so that it is."""

    node: str
    keys: tuple[dict[str, Any], ...]
    recorded: str | None
    replaced_lines: tuple[int, ...] = ()
    error: FixopsError | None = None
    dry_run: bool = False
    would_record: str | None = None
    next_step: str = ""

    @property
    def exit_code(self) -> ExitCode:
        return self.error.exit_code if self.error else ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        would = {"would_record": self.would_record is not None} if self.dry_run else {}
        return {
            "node": self.node,
            "keys": list(self.keys),
            "recorded": self.recorded,
            "replaced_lines": list(self.replaced_lines),
            "dry_run": self.dry_run,
            **would,
        }


def trust_node(node: Node, *, record: bool, replace: bool = False, dry_run: bool = False) -> Trusted:
    """Fetch, and with `record` write the last key shown, with `replace` also over another one that is known.
    Errors as in remote/trust.py; a key that was shown and not recorded is in the result.

    A dry run writes nothing and tells what `record` would do, whether it is given or not."""
    target = target_of(node)
    keys = trust.fetch_host_key(target)
    status = keys[-1].check.status
    seen = Trusted(node.name, tuple(map(_shown, keys)), None, dry_run=dry_run)
    if status is Status.KNOWN:
        return seen
    if not record and not dry_run:
        return changed(seen, error=_not_trusted(node.name, keys[-1]))
    try:
        if dry_run:
            file = trust.may_record(target, keys[-1], replace=replace)
            return changed(seen, would_record=str(file), next_step=trust.what_next(node.name, status))
        done = trust.record(target, keys[-1], replace=replace)
    except RefusedError as error:
        return changed(seen, error=error)
    return changed(seen, recorded=str(done.file) if done.written else None, replaced_lines=done.removed_lines)


def _shown(key: trust.HopKey) -> dict[str, Any]:
    """A hop's key beside what is known of it."""
    return {
        "host": key.hop.name,
        "type": key.check.key_type,
        "fingerprint": key.check.fingerprint,
        "status": key.check.status.value,
        "file": str(key.file) if key.file else None,
        "known": [
            {
                "type": entry.key_type,
                "fingerprint": hostkeys.fingerprint(entry.blob),
                "place": f"{entry.path}:{entry.line}",
            }
            for entry in key.check.entries
        ],
    }


def _not_trusted(node: str, key: trust.HopKey) -> ConnectError:
    """No command would connect: what `inv trust` says that only shows."""
    status = key.check.status
    told = {Status.UNKNOWN: "is not known", Status.CHANGED: "has CHANGED"}.get(status, f"is {status.value}")
    return ConnectError(
        f"{node}: the host key of {key.hop.name} {told}",
        hint=trust.what_next(node, status),
        node=node,
        data={"reason": f"host-key-{status.value}"},
    )
