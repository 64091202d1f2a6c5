"""A plan, and what became of it, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ..plan import Plan
from .console import print_diff


def print_plan(out: Console, node: str, plan: Plan) -> None:
    """Each action with what it would change, diffs included."""
    out.print(Text(f"plan for {node}", style="heading"))
    for action in plan.actions:
        mark = ("change ", "changed") if action.would_change else ("-      ", "quiet")
        style = "" if action.would_change else "quiet"
        out.print(
            Text.assemble(mark, (f"{action.id:<14}", "heading"), (f" {action.detail}", style)), soft_wrap=True
        )
        if action.diff and action.would_change:
            print_diff(out, action.diff)


def print_actions(out: Console, actions: Sequence[dict[str, Any]]) -> None:
    """What a dry run would do, or what an idle run found in place."""
    for action in actions:
        pending = action.get("would_change", action["changed"])
        mark = ("change ", "changed") if pending else ("-      ", "quiet")
        out.print(
            Text.assemble(mark, (f"{action['id']:<14}", "heading"), f" {action['detail']}"), soft_wrap=True
        )
        if action.get("diff"):
            print_diff(out, action["diff"])
