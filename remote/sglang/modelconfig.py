"""A model's config.json as SGLang and transformers read it. It is anybody's file: nothing in it is as it
should be until it was looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def json_object(text: str | bytes | None) -> Mapping[str, Any] | None:
    """The object in a JSON text; None where it holds none. UTF-8 without a byte order mark, as transformers
    wants it: of bytes, Python would take more."""
    try:
        value = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text or "")
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def language(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The part that describes the language model: all of it, but for a multimodal model."""
    part = (config or {}).get("text_config")
    return part if isinstance(part, dict) and part else config or {}


def architectures(config: Mapping[str, Any] | None) -> tuple[str, ...]:
    names = (config or {}).get("architectures")
    return tuple(each for each in names if isinstance(each, str)) if isinstance(names, list) else ()
