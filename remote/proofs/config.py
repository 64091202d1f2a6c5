"""Does the draft model's configuration say what the bundle wants?"""

from __future__ import annotations

import json

from ..checks import Check, Evidence, failed, passed, skipped, unknown
from ..fixes import config_values
from ..inventory import Node
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
            id,
            expected,
            "the server has no draft_model_path",
            no_draft_path(node),
            remedy="set draft_model_path in the inventory",
        )
    if config.facts.get("exists") is False:
        return failed(
            id,
            expected,
            f"{config.path} does not exist",
            Evidence(config.path, "absent"),
            remedy="check draft_model_path in the inventory",
        )
    if config.state is None:
        why = f"{config.path} {config.problem}"
        if config.text is not None:
            why = "SGLang's version is not known, which the values depend on"
        return unknown(id, expected, why, Evidence(config.path, why), remedy=f"inv verify --node {node.name}")
    state = config.state
    evidence = [Evidence(config.path, state.problem)] if state.problem else []
    evidence += [
        Evidence(
            config.path, f"{key} = {_show(before)}" + ("" if before == after else f", wanted {_show(after)}")
        )
        for key, before, after in state.changes
    ]
    if config.facts.get("symlink"):
        evidence.append(Evidence(config.path, f"a symlink to {config.facts['real_path']}"))
    if state.state == "done":
        wanted = config_values(bundle, picture.version)
        if not wanted:
            return skipped(id, expected, f"the bundle sets no configuration for SGLang {picture.version}")
        read = [Evidence(config.path, f"{key} = {_show(value)}") for key, value in wanted.items()]
        return passed(id, expected, "as wanted", *read, *evidence)
    observed = state.problem or (evidence[0].text if evidence else "not as wanted")
    return failed(id, expected, observed, *evidence, remedy=f"inv deploy-fix --node {node.name}")


def no_draft_path(node: Node) -> Evidence:
    return Evidence("inventory", f"server '{node.server_name}' has no draft_model_path")


def _show(value: object) -> str:
    return json.dumps(value)
