"""What a report cannot show yet, each with the command that makes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..checks import Check
from .deploys import WRITES
from .model import Brought, Deploy, Missing


def missing(node: str, deploy: Deploy | None, checks: Sequence[Check], brought: Brought) -> Iterable[Missing]:
    if deploy is None:
        yield Missing(
            "no deploy: nothing was deployed to this node with fixops", f"inv deploy-fix --node {node}"
        )
    elif deploy.restored is not None:
        yield Missing(
            "the deploy is no longer there: its files were put back", f"inv deploy-fix --node {node}"
        )
    elif any(command.startswith(WRITES) for command in deploy.later):
        what = "the node was changed after this deploy: checks and wiring are those of now"
        yield Missing(what, f"inv history --node {node}")
    if any(check.verdict == "fail" for check in checks):
        yield Missing(
            "a check fails: what was deployed is not proven to be in effect", f"inv diagnose --node {node}"
        )
    if brought.before is None:
        yield from _no_before(node, deploy)
    if deploy is not None and brought.after is None:
        against = f" --baseline {brought.before.run_id}" if brought.before else ""
        yield Missing("no benchmark after the deploy", f"inv bench{against} --node {node}")
    if brought.before and brought.after and brought.comparison is None:
        command = f"inv bench --baseline {brought.before.run_id} --node {node}"
        yield Missing("the two runs were not held against each other by inv bench", command)
    if brought.before and brought.after and not brought.pairs:
        yield Missing("no pairs by prompt: both runs must be kept on this machine, with the same prompts", "")


def _no_before(node: str, deploy: Deploy | None) -> Iterable[Missing]:
    if deploy is None:
        yield Missing("no benchmark before a deploy", f"inv bench --anyway --save-as before --node {node}")
    else:
        yield Missing(
            "no benchmark from before the deploy; another baseline can stand in for it, and next time"
            " `inv deploy-fix --bench` measures first",
            f"inv bench --baseline NAME --node {node}",
        )
