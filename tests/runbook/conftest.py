"""`pytest tests/runbook --update-runbook` writes the page's blocks anew, as they are printed now."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-runbook", action="store_true", help="write what is printed now into docs/runbook.md"
    )
