"""Prints what became of the official conformance suite."""

from __future__ import annotations

import pytest

from tests.wire import suite


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if suite.outcomes:
        terminalreporter.section("conformance suite")
        for line in suite.table():
            terminalreporter.write_line(line)
