"""Does the draft model's configuration say what the bundle wants?"""

from __future__ import annotations

import json

from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..fixes import config_values
from ..picture import Picture


def values(picture: Picture) -> Check:
    """Each key that the bundle sets has its value in the file that the server reads."""
    id, bundle, node = "config.values", picture.bundle, picture.node
    expected = f"the values of {bundle.name}"
    if not bundle.spec.config:
        return skipped(id, expected, "the bundle sets no configuration")
    config = picture.config
    if config is None:
        return failed(
            id, expected, "the server has no draft_model_path", remedy="set draft_model_path in the inventory"
        )
    if not config.facts.get("exists"):
        return failed(
            id,
            expected,
            f"{config.path} does not exist",
            Evidence(config.path, "absent"),
            remedy="check draft_model_path in the inventory",
        )
    if config.state is None:
        return unknown(
            id, expected, f"{config.path} could not be read", remedy=f"inv verify --node {node.name}"
        )
    state = config.state
    evidence = [
        Evidence(
            config.path, f"{key} = {_show(before)}" + ("" if before == after else f", wanted {_show(after)}")
        )
        for key, before, after in state.changes
    ]
    if config.facts.get("symlink"):
        evidence.append(Evidence(config.path, f"a symlink to {config.facts['real_path']}"))
    if state.state == "done":
        wanted = config_values(bundle, picture.version)
        read = [Evidence(config.path, f"{key} = {_show(value)}") for key, value in wanted.items()]
        return passed(id, expected, "as wanted", *read, *evidence)
    observed = state.problem or (evidence[0].text if evidence else "not as wanted")
    return failed(id, expected, observed, *evidence, remedy=f"inv deploy-fix --node {node.name}")


def _show(value: object) -> str:
    return json.dumps(value)
