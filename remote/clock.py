"""Moments in words. The toolkit speaks in UTC: engineer and node may be in different zones."""

from __future__ import annotations

import time
from typing import Any


def utc(epoch_s: Any) -> str:
    """`2026-11-29 19:58:24 UTC`; of what is no number what it says, or `unknown`."""
    if not isinstance(epoch_s, int | float):
        return str(epoch_s or "unknown")
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch_s))
    except (ValueError, OverflowError, OSError):  # no year that there is
        return str(epoch_s)
