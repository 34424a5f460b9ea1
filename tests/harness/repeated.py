"""The tests that repeat, on another variant of a broker, what a test beside them proves: each with the reason.

They have the marker ``repeated``: ``-m "not repeated"`` leaves them out, and ``-m repeated`` runs them alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

COLLECTED = pytest.StashKey[Sequence[str]]()
"""The node ids of all tests that were collected, also of those that ``-m`` and ``-k`` leave out."""


class Repeated(NamedTuple):
    """Tests of one kind. ``tests`` matches the beginning of their node ids."""

    tests: str
    reason: str


def _contract(kind: str, suites: str, variant: str) -> str:
    """The tests of some suites of the contract on one variant, by regular expressions."""
    return rf"tests/brokers/{kind}/test_contract\.py::{suites}::\w+\[{variant}(?=[\]-])"


TABLE = (
    Repeated(
        _contract("rabbitmq", "Test(Events|Freed|Hung|Operators|RedriveJobs)", "rabbitmq-quorum"),
        "What the gateway keeps, counts and asks for does not depend on the type of the queue.",
    ),
    Repeated(
        _contract("rabbitmq", "Test(Hung|Operators|RedriveJobs)", "rabbitmq-ojs(?!-quorum)"),
        "What the gateway asks for does not depend on what is in a message.",
    ),
    Repeated(
        _contract("rabbitmq", "Test(?!Attempts|DeadLetters|Settle)\\w+", "rabbitmq-ojs-quorum"),
        "The content of a message meets the type of its queue in counts of attempts and in dead letters alone.",
    ),
    Repeated(
        _contract("sqs", "Test(?!Settle)\\w+", "sqs-moto"),
        "ElasticMQ says the same. moto differs in what it accepts of an ack, and in what test_binding.py has.",
    ),
    Repeated(
        r"tests/brokers/test_lost_replies\.py::\w+\[sqs-moto(?=[\]-])",
        "The replies of ElasticMQ are lost in the same way.",
    ),
    Repeated(
        r"tests/e2e/test_replicas\.py::\w+\[(sqs-moto|rabbitmq-ojs)\]",
        "Which replica settles does not depend on the server of a protocol, nor on what is in a message.",
    ),
)
"""One row each."""

_ROWS = [(re.compile(row.tests), row) for row in TABLE]


def row_of(nodeid: str) -> Repeated | None:
    """The row of a test that repeats others; None for any other test."""
    return next((row for pattern, row in _ROWS if pattern.match(nodeid)), None)
