"""A test that fails shows how the logs of its gateways end."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import cast

import pytest

from tests.harness.gateway import SHOWN_LINES, GatewayProcess, show_logs


class Report:
    def __init__(self) -> None:
        self.sections: list[tuple[str, str]] = []

    def shown(self, process: GatewayProcess) -> list[str]:
        show_logs(cast(pytest.TestReport, self))
        return [text for title, text in self.sections if title == f"end of {process.log}"]


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path)
    assert Report().shown(process) == [], "nothing was logged"
    process.log.write_text("".join(f"{number}\n" for number in range(1000)))
    [text] = Report().shown(process)
    assert text.split() == [str(number) for number in range(1000 - SHOWN_LINES, 1000)]


def test_a_gateway_of_another_test_is_forgotten(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path)
    process.log.write_text("x")
    report = Report()
    log = process.log
    del process
    gc.collect()
    show_logs(cast(pytest.TestReport, report))
    assert f"end of {log}" not in [title for title, _ in report.sections]
