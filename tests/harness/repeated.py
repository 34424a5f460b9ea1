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


_CONTRACTS = r"tests/brokers/(artemis|kafka|pulsar|rabbitmq|servicebus|sqs)/test_contract\.py"
"""Those of other brokers than SQLite and Redis, which have every case of the rows below."""

_NOT_OJS = "(?!rabbitmq-ojs-(?!quorum-))"
"""Not the variant whose bodies are jobs of OJS. Jobs in quorum queues repeat it."""

TABLE = (
    Repeated(
        rf"{_CONTRACTS}::TestDeadLetters::test_a_bad_object_\w+\[{_NOT_OJS}.*(?<!-odd but whole)\]$",
        "What is wrong in an object is found in its bytes, which each broker carries.",
    ),
    Repeated(
        rf"{_CONTRACTS}::TestDeadLetters::test_what_is_no_object_\w+\[{_NOT_OJS}.*"
        r"(?<!-binary)(?<!-not UTF-8)(?<!-nothing at all)(?<!-quotes and controls)\]$",
        "What is wrong in a text is found in its bytes. What some brokers do not carry stays.",
    ),
    Repeated(
        rf"{_CONTRACTS}::TestLetters::test_a_refused_edit_\w+\[{_NOT_OJS}.*(?<!-invalid_json-/edit/body)\]$",
        "An edit is refused before it gets to the broker.",
    ),
    Repeated(
        _contract("rabbitmq", "Test(Events|Freed|Hung|Operators|RedriveJobs)", "rabbitmq-quorum"),
        "What the gateway keeps, counts and asks for does not depend on the type of the queue.",
    ),
    Repeated(
        _contract("rabbitmq", "Test(Hung|Operators|RedriveJobs)", "rabbitmq-ojs(?!-quorum)"),
        "What the gateway asks for does not depend on what is in a message.",
    ),
    Repeated(
        r"tests/brokers/rabbitmq/test_contract\.py::TestLife::test_(a_restart_of|a_killed|an_outage)_\w+\[rabbitmq-ojs\]",
        "What outlives a stop of the broker does not depend on what is in a message.",
    ),
    Repeated(
        _contract("rabbitmq", "Test(?!Attempts|DeadLetters|Settle)\\w+", "rabbitmq-ojs-quorum"),
        "The content of a message meets the type of its queue in counts of attempts and in dead letters alone.",
    ),
    Repeated(
        _contract("redis", "Test(Hung|Operators|RedriveJobs)", "redis-laravel"),
        "What the gateway asks for does not depend on the layout.",
    ),
    Repeated(
        r"tests/brokers/test_idempotency\.py::TestIdempotency::(\w+\[keys-in-redis-queue-in-(sqs|servicebus|pulsar|artemis)"
        r"|test_(?!what_a_broker_|while_|a_client_)\w+\[keys-in-redis-queue-in-kafka)\b",
        "The store is asked in the same way whatever the broker is. RabbitMQ is left, and Kafka where publishes fail.",
    ),
    Repeated(
        r"tests/e2e/test_idempotency_kill\.py::test_keys_beside_the_queue\[(?!rabbitmq|kafka)",
        "The store is asked in the same way whatever the broker is, and test_kill.py kills a gateway on each.",
    ),
    Repeated(
        r"tests/e2e/test_stream_kill\.py::test_streams\[(redis|rabbitmq)-1\]",
        "Streams are the gateway's: one alone is killed over SQLite, and two over each.",
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
        r"tests/http/test_schemathesis\.py::\w+\[(?!sqlite|rabbitmq)\w+-(examples and coverage|fuzzing and chains)\]",
        "The HTTP layer is the same over each broker: all phases run over one in the process and one with a server.",
    ),
    Repeated(
        r"tests/http/test_schemathesis\.py::\w+\[(sqlite|rabbitmq)-examples\]",
        "The examples run there with the coverage.",
    ),
    Repeated(
        r"tests/e2e/test_kill\.py::test_(a_gateway_with_two_workers|two_replicas_\w+)\[(?!sqlite|redis|rabbitmq)",
        "test_replicas.py kills three gateways and the broker on each variant. Here one of each kind of lease is left.",
    ),
    Repeated(
        r"tests/e2e/test_redrive_jobs\.py::test_a_stop_\w+\[(?!sqlite|redis|rabbitmq)",
        "A stop leaves less behind than the kill of the test beside it.",
    ),
    Repeated(
        r"tests/http/test_stalls\.py::test_work_for_a_broker_\w+\[(?!kafka)\w+-redrive: 24 of 1 MiB, dry run\]",
        "It reads dead letters as the redrive that sends them does, which is left. Over Kafka both are.",
    ),
    Repeated(
        r"tests/console/test_(dead_letters|find|queue)\.py::test_(?!publish_with_)\w+\[redis\]",
        "A page asks the gateway. SQLite does what Redis does, but for the headers of a publish; RabbitMQ does less.",
    ),
    Repeated(
        r"tests/clients/test_streams\.py::test_a_gateway_without_streams_is_polled\[501-",
        "Each client has 405 and 501 in one list of statuses.",
    ),
    Repeated(
        r"tests/e2e/test_tracing\.py::test_from_client_to_consumer_over_http\[(?!redis)\w+-http/protobuf\]",
        "How spans are exported does not depend on the broker.",
    ),
    Repeated(
        r"tests/e2e/test_replicas\.py::\w+\[(sqs-moto|rabbitmq-ojs)\]",
        "Which replica settles does not depend on the server of a protocol, nor on what is in a message.",
    ),
    Repeated(
        r"tests/e2e/test_docs_page\.py::test_each_operation_as_it_stands\[all\]",
        "The page fills in all in one way. Some of each form are left, and examples of all are sent without a page.",
    ),
    Repeated(
        r"tests/newer/test_suites\.py::test_a_suite\[\w+, whole\]",
        "The suites beside them have what depends most on the version of a server or of Python.",
    ),
)
"""One row each."""

_ROWS = [(re.compile(row.tests), row) for row in TABLE]


def row_of(nodeid: str) -> Repeated | None:
    """The row of a test that repeats others; None for any other test."""
    return next((row for pattern, row in _ROWS if pattern.match(nodeid)), None)


def has_rows(path: str) -> bool:
    """Whether a row is about tests of the file."""
    return any(re.fullmatch(row.tests.partition("::")[0], path) for row in TABLE)
