"""Model paths as they are typed: `/models/kimi/` and `/models//kimi` are `/models/kimi`.

By their spelling alone. What a link or `..` leads to only the node can tell; a Hugging Face name
(`moonshotai/Kimi-K2.5`) has the same form and stays as it is.
"""

from __future__ import annotations


def tidy(path: str) -> str:
    """Without trailing, doubled and `.` parts."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def same_path(one: str | None, other: str | None) -> bool:
    """Whether both name one model; what is not known is none."""
    return one is not None and other is not None and tidy(one) == tidy(other)
