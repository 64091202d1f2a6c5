"""Fixtures shared by all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair, not a property of the code.
settings.register_profile("fixops", deadline=None, print_blob=True)
settings.load_profile("fixops")


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed must not depend on the width of whoever runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)
