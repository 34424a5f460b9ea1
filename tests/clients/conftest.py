"""Shows what was proven of each client."""

from __future__ import annotations

from collections import defaultdict

import pytest

COLUMNS = (
    "generate",
    "compile",
    "publish",
    "receive",
    "broker properties",
    "ack",
    "nack",
    "extend",
    "problem",
    "survives kill -9",
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of languages; a cell is filled by the test that ran it."""
    proven: defaultdict[str, set[str]] = defaultdict(set)
    for report in terminalreporter.getreports("passed"):
        for language, column in report.user_properties:
            if column in COLUMNS:
                proven[language].add(str(column))
    if proven:
        terminalreporter.section("clients")
        terminalreporter.line("  ".join(["language  ", *COLUMNS]))
        for language, columns in sorted(proven.items()):
            cells = (("yes" if column in columns else "-").ljust(len(column)) for column in COLUMNS)
            terminalreporter.line("  ".join([language.ljust(10), *cells]))
