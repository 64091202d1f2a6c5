"""SGLang's version numbers, compared: "0.5.10.post1", "0.5.3rc0", "0.5.9.dev123+gabcdef"."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(post|rc|dev)(\d*))?")
_KINDS = {"dev": -2, "rc": -1, None: 0, "post": 1}


def parse(version: str) -> tuple[int, int, int, int, int]:
    """A key that orders versions; ValueError for what is no version."""
    match = _VERSION.match(version)
    if match is None:
        raise ValueError(f"not a version of SGLang: {version!r}")
    major, minor, patch, kind, number = match.groups()
    return int(major), int(minor), int(patch or 0), _KINDS[kind], int(number or 0)


def at_least(version: str, least: str) -> bool:
    """Whether `version` is `least` or newer."""
    return parse(version) >= parse(least)
