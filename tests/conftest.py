"""Fixtures that every test may ask for, and the table of the official conformance suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.suites import conformance

if TYPE_CHECKING:
    from tests.brokers.rabbitmq.harness import RabbitServer


@pytest.fixture
def queue() -> str:
    """A queue name of this test's own."""
    return f"test.{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def rabbit_of_the_session() -> Iterator[RabbitServer]:
    """A RabbitMQ server takes seconds to start: one serves all tests that do not need their own."""
    from tests.brokers.rabbitmq.harness import rabbit_server

    with rabbit_server() as running:
        yield running


@pytest.fixture
def rabbit(rabbit_of_the_session: RabbitServer) -> RabbitServer:
    """A running RabbitMQ server, without management. A test may stop it, and need not start it again."""
    rabbit_of_the_session.ensure()
    return rabbit_of_the_session


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if conformance.outcomes:
        terminalreporter.section("official conformance suite")
        for line in conformance.table():
            terminalreporter.write_line(line)
