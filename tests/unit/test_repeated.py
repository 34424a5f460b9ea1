"""The table of repeated tests: each row is about tests that exist, and leaves one of each that does not repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.brokers import registry
from tests.harness.repeated import COLLECTED, TABLE, Repeated, row_of

_NAMES = sorted((variant.name for variant in registry.ALL), key=len, reverse=True)
_VARIANT = re.compile(rf"(?<![^-])({'|'.join(map(re.escape, _NAMES))})(?=[\]-])")


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


def test_each_repeated_case_runs_on_another_variant(collected: Sequence[str]) -> None:
    """Where the cases of a contract are cut, SQLite or Redis has them all, in a file of its own."""
    run = {_case_of(nodeid) for nodeid in collected if row_of(nodeid) is None}
    repeated = {_case_of(nodeid) for nodeid in collected if row_of(nodeid) is not None}
    assert {each for each in repeated - run if "*" in each and "test_contract.py" not in each} == set()
    if any(nodeid.startswith("tests/brokers/sqlite/test_contract.py") for nodeid in collected):
        assert {each for each in repeated - run if "*" in each} == set()


def _case_of(nodeid: str) -> str:
    """A test and its parameters, whatever the broker is."""
    path, _, parameters = nodeid.partition("[")
    path = re.sub(r"tests/brokers/\w+/test_contract", "tests/brokers/*/test_contract", path)
    return f"{path}[{_VARIANT.sub('*', parameters)}"


def test_a_row_is_about_its_variant_alone() -> None:
    suite = "tests/brokers/rabbitmq/test_contract.py::TestHung::test_a_call_ends_in_its_time"
    assert row_of(f"{suite}[rabbitmq]") is None
    assert row_of(f"{suite}[rabbitmq-reject]") is None
    assert row_of(f"{suite}[rabbitmq-ojs]") is not row_of(f"{suite}[rabbitmq-ojs-quorum]") is not None
