"""What was done to a node, one operation after another: its id, and what became of each action."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..clock import utc
from .console import console, print_hanging

if TYPE_CHECKING:
    from ..history import History

_STYLES = {"ok": "pass", "unknown": "unknown"}


def show(result: History) -> None:
    out = console()
    rows = result.actions()
    if not rows:
        out.print(f"nothing was ever done to {result.node} with this toolkit")
    else:
        out.print(Text(f"history of {result.node}", style="heading"))
    for _, actions in groupby(rows, key=_operation):
        mine = list(actions)
        first, what = mine[0], str(mine[0]["command"])
        out.print()
        if not isinstance(first["action"], str):  # the disk was full, or the node lost its power
            for row in mine:
                out.print(Text(f"a damaged line of its journal: {row['detail']}", style="unknown"))
            continue
        out.print(Text.assemble(f"{utc(first['time'])}  ", (what, "heading")), soft_wrap=True)
        out.print(Text(f"  {first['deploy_id']}, by {first['who']}", style="quiet"), soft_wrap=True)
        for row in mine:
            style = _STYLES.get(str(row["outcome"]), "fail")
            heading = Text.assemble(
                "  ", (f"{row['outcome']!s:<8}", style), (f"{row['action']!s:<14}", "heading"), " "
            )
            print_hanging(out, heading, Text(str(row["error"] or row["detail"] or "")))


def _operation(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["deploy_id"], row["command"], row["who"]
