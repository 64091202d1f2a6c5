"""Is what runs what was fixed: the right server, the right SGLang, started after the fix, from its source?"""

from __future__ import annotations

from dataclasses import replace

from ..checks import Evidence
from ..picture import Picture
from ..proofs import prove
from ..proofs.server_args import running
from ..running import not_its_own
from ..sglang.adjustments import same
from .base import Cause, Hypothesis, command, deploy


def wrong_server(cause: Cause, picture: Picture) -> Hypothesis:
    """Another server answers on the port: what is measured is not ours."""
    found = cause.as_check(picture, "process.owner")
    owned = picture.ownership
    if found.verdict == "holds" and owned is not None and not owned.port_held:
        return cause.refuted(f"nobody listens on port {picture.node.server.port}")
    wanted, other = picture.node.server.model_path, (picture.effective or {}).get("model_path")
    if found.verdict != "holds" and other is not None and not same("model_path", wanted, other):
        seen = Evidence("/server_info", f"model_path = {other!r}, wanted {wanted!r}")
        return cause.holds(f"the server on the port serves {other}", seen, remedy=command(picture, "restart"))
    return found


def two_installs(cause: Cause, picture: Picture) -> Hypothesis:
    """The server imports another SGLang than the one that was looked at, or started with an older one."""
    found = cause.as_check(picture, "source.file")
    if found.verdict != "refuted":
        return found
    serving = (picture.effective or {}).get("version")
    (after,) = prove(picture, ["process.after_fix"])
    if serving is not None and serving != picture.version and after.verdict != "fail":
        seen = Evidence("/server_info", f"version {serving}, installed is {picture.version}")
        says = f"the server that answers is SGLang {serving}, the installed files are {picture.version}"
        return cause.holds(says, seen, *found.evidence, remedy=command(picture, "restart"))
    patched = _patched_elsewhere(picture)
    if patched is not None:
        seen = Evidence(patched, "patched by the last deploy")
        says = f"the last deploy patched {patched}, and {picture.root} is what is imported now"
        return cause.holds(says, seen, *found.evidence, remedy=deploy(picture))
    return found


def _patched_elsewhere(picture: Picture) -> str | None:
    """A file of the last deploy's code, where none of it is in the SGLang that is imported."""
    if picture.fix is None or picture.fix.state in ("ours", "native"):
        return None
    for manifest in reversed((picture.facts.get("state") or {}).get("deploys") or []):
        code = [str(file["named"]) for file in manifest.get("files") or [] if file["named"].endswith(".py")]
        if code and not manifest.get("restored"):
            return None if any(path.startswith(f"{picture.root}/") for path in code) else code[0]
    return None


def stale_bytecode(cause: Cause, picture: Picture) -> Hypothesis:
    return cause.as_check(picture, "bytecode.fresh", remedy=deploy(picture))


def stale_process(cause: Cause, picture: Picture) -> Hypothesis:
    """The server loaded its files before the fix was there."""
    if running(picture) is False:
        return cause.unknown("no server of ours runs", remedy=command(picture, "restart"))
    return cause.as_check(picture, "process.after_fix")


def not_serving(cause: Cause, picture: Picture) -> Hypothesis:
    """Nothing can be effective on a server that does not generate."""
    failure = picture.boot.failure if picture.boot and not_its_own(picture) is None else None
    if running(picture) is False:
        if failure is None:
            return cause.holds("no server of ours runs", remedy=command(picture, "restart"))
        seen = Evidence(f"{picture.node.server.log}:{failure.line}", failure.cause)
        says = f"no server of ours runs; the last one ended with {failure.code}: {failure.cause}"
        return cause.holds(says, seen, remedy=command(picture, "logs", "--errors"))
    found = cause.as_check(picture, "health.generate")
    return replace(found, says=f"POST /generate: {found.says}")
