"""The table of repeated tests: each row is about tests that exist, and leaves one of each that does not repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.harness.repeated import COLLECTED, TABLE, Repeated, row_of


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> Sequence[str]:
    """All tests of this run and those that were deselected."""
    nodeids: Sequence[str] = request.config.stash[COLLECTED]
    return nodeids


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.reason)
def test_a_row_marks_tests(row: Repeated, collected: Sequence[str]) -> None:
    of_files = [nodeid for nodeid in collected if re.match(row.tests.partition("::")[0], nodeid)]
    # A run of a few files has not collected the others.
    assert not of_files or any(re.match(row.tests, nodeid) for nodeid in of_files)


def test_each_repeated_test_runs_on_another_variant(collected: Sequence[str]) -> None:
    run = {nodeid.partition("[")[0] for nodeid in collected if row_of(nodeid) is None}
    assert {nodeid.partition("[")[0] for nodeid in collected if row_of(nodeid) is not None} - run == set()


def test_a_row_is_about_its_variant_alone() -> None:
    suite = "tests/brokers/rabbitmq/test_contract.py::TestHung::test_a_call_ends_in_its_time"
    assert row_of(f"{suite}[rabbitmq]") is None
    assert row_of(f"{suite}[rabbitmq-reject]") is None
    assert row_of(f"{suite}[rabbitmq-ojs]") is not row_of(f"{suite}[rabbitmq-ojs-quorum]") is not None
