"""Does Python run what the source says? A .pyc is believed for its time stamp and size alone."""

from __future__ import annotations

from ..checks import Check, Evidence, failed, passed, unknown
from ..picture import Picture


def fresh(picture: Picture) -> Check:
    """No bytecode that the node's interpreter would believe differs from its source (PEP 552)."""
    id, expected = "bytecode.fresh", "no stale bytecode of the patched modules"
    # Purging alone would leave a server that has loaded it: this restarts it as well.
    remedy = f"inv deploy-fix --node {picture.node.name}"
    modules = picture.section("bytecode")
    stale: list[Evidence] = []
    undecided: list[Evidence] = []
    good: list[Evidence] = []
    ignored: list[Evidence] = []
    for file, facts in modules.items():
        if "error" in facts:
            undecided.append(Evidence(file, facts["error"]["message"]))
            continue
        if facts["shadow"]:
            stale.append(Evidence(facts["shadow"], f"imported in place of {file}"))
            remedy = f"move {facts['shadow']} away, then: inv deploy-fix --node {picture.node.name}"
        for pyc in facts["pycs"]:
            evidence = Evidence(pyc["path"], f"{pyc['kind']}: {pyc['why']}")
            if pyc["believed"] is False:
                ignored.append(evidence)
                continue
            verdict = pyc["stale"] if pyc["believed"] else None
            {True: stale, None: undecided, False: good}[verdict].append(evidence)
    if stale:
        return failed(id, expected, f"{len(stale)} stale: {stale[0].source}", *stale, remedy=remedy)
    if undecided:
        return unknown(id, expected, undecided[0].text, *undecided, remedy=remedy)
    if not modules:
        return unknown(
            id, expected, "no module was looked at", remedy=f"inv fixes --node {picture.node.name}"
        )
    if good:
        return passed(id, expected, f"{len(good)} believed, all equal to their source", *good)
    without = [
        Evidence(file, "no compiled file of it") for file, facts in modules.items() if not facts["pycs"]
    ]
    return passed(id, expected, "none that would be believed", *ignored, *without)
