"""`pytest tests/runbook --update-runbook` writes the page's blocks anew, as they are printed now."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-runbook", action="store_true", help="write what is printed now into docs/runbook.md"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-runbook") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--update-runbook writes one page: leave -n out")
