"""Fixtures shared by all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's affair, not a property of the code.
settings.register_profile("fixops", deadline=None, print_blob=True)
settings.load_profile("fixops")
