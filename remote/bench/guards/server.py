"""Guards on who was measured: one boot of the right server, changed by nobody meanwhile."""

from __future__ import annotations

from ...sglang.modelpath import same_path
from ..meanwhile import other_boot
from ..summary import logged_definition
from .kinds import BOTH, Guard, Seen


def same_boot(seen: Seen) -> Guard:
    """One server from the warm-up to the end."""
    found = seen.meanwhile
    if found.before is None or found.after is None:
        return Guard("same-boot", "spoils", "whose server answered is not known", BOTH)
    if other_boot(found):
        detail = f"pid {found.before.pid} before, pid {found.after.pid} after: another boot in between"
        return Guard("same-boot", "spoils", detail, BOTH)
    return Guard("same-boot", "ok", f"pid {found.before.pid} before and after")


def right_server(seen: Seen) -> Guard:
    """The one on the port is ours, and serves what the inventory says."""
    model = seen.meanwhile.model_path
    if "process.owner" in seen.failed_checks:
        return Guard("right-server", "spoils", "the port is not held by the node's own server", BOTH)
    if model is not None and not same_path(model, seen.meant_model):
        return Guard("right-server", "spoils", f"it serves {model}, not {seen.meant_model}", BOTH)
    if seen.version and seen.installed and seen.version != seen.installed:
        detail = f"it says SGLang {seen.version}, installed is {seen.installed}"
        return Guard("right-server", "spoils", detail, BOTH)
    if seen.meanwhile.silent is not None:
        detail = f"after the run it did not answer any more: {seen.meanwhile.silent}"
        return Guard("right-server", "spoils", detail, BOTH)
    if model is None:
        return Guard("right-server", "unknown", "it does not tell what it serves")
    return Guard("right-server", "ok", model)


def changing(seen: Seen) -> Guard:
    """Nobody else's command changes the node meanwhile."""
    if seen.changing:
        return Guard("node-locked", "spoils", f"the node is being changed by {seen.changing}", BOTH)
    return Guard("node-locked", "ok", "nobody else's command works on the node")


def definition(seen: Seen) -> Guard:
    """The server's accept rate is another figure in another version (case 099): never compared."""
    logged = logged_definition(seen.version)
    return Guard("accept-rate-definition", "ok", f"SGLang {seen.version or '?'} logs {logged}; ours is named")


def simulated(seen: Seen) -> Guard:
    """The practice server says of itself that it is simulated."""
    if any(request.simulated for request in seen.phase.requests):
        return Guard("simulated", "shown", "a SIMULATED server: its figures are drawn from the wiring")
    return Guard("simulated", "ok", "no")
