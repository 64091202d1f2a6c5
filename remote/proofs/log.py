"""Does the log say that this boot came up, and that each rank captures what the fix promises?"""

from __future__ import annotations

import re

from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..intent import capturing_ranks
from ..picture import Picture
from ..running import launcher, not_its_own, written_elsewhere
from ..sglang.ranks import rank_of
from .process import no_server


def boot(picture: Picture) -> Check:
    """The last boot in the log is the running server's, and it reached the ready line."""
    node = picture.node
    id, expected = "log.boot", "the log's last boot is the running server, and ready"
    remedy = f"inv logs --node {node.name}"
    log = picture.section("log")
    path = node.server.log
    if not log.get("exists"):
        return unknown(id, expected, f"{path} does not exist", Evidence(path, "absent"), remedy=remedy)
    if launcher(picture) is None:
        return no_server(picture, id, expected)
    elsewhere = written_elsewhere(picture)
    if elsewhere is not None:
        return failed(
            id,
            expected,
            elsewhere.text,
            elsewhere,
            remedy=f"set `log` in the inventory, or: inv restart --node {node.name}",
        )
    other = _unknown_whose(picture, id, expected)
    if other is not None:
        return other
    if picture.boot is None:
        return _no_boot(picture, id, expected)
    evidence = Evidence(path, f"boot of {picture.boot.started_at}, state {picture.boot.state}")
    if picture.boot.state != "ready":
        if picture.boot.state == "failed":
            return failed(id, expected, _failure(picture), evidence, remedy=f"{remedy} --errors")
        return unknown(id, expected, f"the log's last boot is {picture.boot.state}", evidence, remedy=remedy)
    return passed(id, expected, f"ready at {picture.boot.ready_at}", evidence)


def _no_boot(picture: Picture, id: str, expected: str) -> Check:
    path = picture.node.server.log
    why = f"{path} holds no line of a boot"
    return unknown(
        id, expected, why, Evidence(path, "no boot"), remedy=f"inv logs --node {picture.node.name}"
    )


def _unknown_whose(picture: Picture, id: str, expected: str) -> Check | None:
    """The log has nothing to say of the running server. Unknown, whatever stands in it."""
    other = not_its_own(picture)
    if other is None:
        return None
    why = f"{other.text}: what the log says may be of another boot"
    return unknown(id, expected, why, other, remedy=f"inv restart --node {picture.node.name}")


def _failure(picture: Picture) -> str:
    failure = picture.boot.failure if picture.boot else None
    return f"{failure.code}: {failure.cause}" if failure else "failed"


def capture(picture: Picture) -> Check:
    """Each rank of this boot logged, at every call, that it captures the contract's states."""
    id, bundle = "log.capture", picture.bundle
    contract = picture.contract
    if bundle.marker is None or contract is None:
        return skipped(id, "each rank logs its capture", "the bundle logs no marker")
    expected = f"each rank logs capture of [{', '.join(contract)}]"
    if picture.version is not None and bundle.is_native(picture.version):
        # Only the fix's own code logs the marker.
        return skipped(id, expected, f"SGLang {picture.version} captures by itself, and logs nothing of it")
    log = picture.section("log")
    path = picture.node.server.log
    remedy = f"inv logs --grep capture --node {picture.node.name}"
    if not log.get("exists"):
        return unknown(id, expected, f"{path} does not exist", Evidence(path, "absent"), remedy=remedy)
    other = _unknown_whose(picture, id, expected)
    if other is not None:
        return other
    marker = re.compile(bundle.marker)
    captures: dict[str, list[tuple[int, list[str], str]]] = {}
    for line in log["matches"]:
        found = marker.search(line["text"])
        if found:
            layers = [part.strip() for part in found["draft_input"].split(",") if part.strip()]
            rank = rank_of(line["text"]) or ""
            captures.setdefault(rank, []).append((line["line"], layers, line["text"]))
    evidence = [
        Evidence(f"{path}:{number}", text) for lines in captures.values() for number, _, text in lines
    ]
    if not evidence:
        evidence = [Evidence(path, "no line of its last boot tells a capture")]
    wrong = [
        (rank, number, layers)
        for rank, lines in captures.items()
        for number, layers, _ in lines
        if layers != contract
    ]
    restart = f"inv restart --node {picture.node.name}"
    if wrong:
        rank, _, layers = wrong[0]
        observed = f"{rank or 'the rank'} captures [{', '.join(layers)}]"
        return failed(id, expected, observed, *evidence, remedy=f"inv diagnose --node {picture.node.name}")
    want = capturing_ranks(picture.node.server)
    if len(captures) < want:
        observed = f"{len(captures)} of {want} ranks logged their capture"
        if picture.boot is None or picture.boot.args_record == "absent":
            return unknown(
                id, expected, observed + "; the log's beginning is missing", *evidence, remedy=remedy
            )
        if picture.boot.state == "starting":
            return unknown(
                id, expected, observed + "; the server is still starting", *evidence, remedy=remedy
            )
        return failed(id, expected, observed, *evidence, remedy=restart)
    return passed(id, expected, f"{want} of {want} ranks", *evidence)


def errors(picture: Picture) -> Check:
    """This boot logged no failure that would explain a wrong or missing answer."""
    id, expected = "log.errors", "no failure in this boot's log"
    remedy = f"inv logs --errors --node {picture.node.name}"
    path = picture.node.server.log
    if not picture.section("log").get("exists"):
        return unknown(id, expected, f"{path} does not exist", Evidence(path, "absent"), remedy=remedy)
    other = _unknown_whose(picture, id, expected)
    if other is not None:
        return other
    if picture.boot is None:
        return _no_boot(picture, id, expected)
    failure = picture.boot.failure
    if failure is not None:
        return failed(
            id, expected, _failure(picture), Evidence(f"{path}:{failure.line}", failure.cause), remedy=remedy
        )
    return passed(id, expected, "none", Evidence(path, f"boot of {picture.boot.started_at}"))
