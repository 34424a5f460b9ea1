"""How long a test may take."""

from __future__ import annotations

import pytest

from tests.architecture.sources import ROOT, tracked
from tests.harness.limits import LONG, SERVER_SECONDS, limit_of

FILES = [path.relative_to(ROOT).as_posix() for path in tracked()]


def test_a_test_has_two_minutes_unless_it_is_a_long_one(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) == 120
    assert request.node.get_closest_marker("timeout") is None
    for item in request.session.items:
        given = item.get_closest_marker("timeout")
        assert (given is not None and given.args[0] >= 120) or limit_of(item.nodeid) is None, item.nodeid


@pytest.mark.parametrize("beginning", LONG)
def test_a_long_test_exists_and_has_more(beginning: str) -> None:
    path, _, name = beginning.partition("::")
    assert any(each.startswith(path) for each in FILES)
    function, _, parameters = name.partition("[")
    text = (ROOT / path).read_text("utf-8") if name else ""
    assert not name or (f"def {function}(" in text and f'"{parameters[:-1]}"' in text)
    seconds, reason = LONG[beginning]
    assert seconds > SERVER_SECONDS and reason


@pytest.mark.parametrize(
    ("nodeid", "seconds"),
    [
        ("tests/unit/test_groups.py::test_a", None),
        ("tests/http/test_problems.py::test_a", None),
        ("tests/brokers/redis/test_contract.py::TestSettle::test_a[redis]", None),
        ("tests/brokers/kafka/test_contract.py::TestSettle::test_a[kafka]", SERVER_SECONDS),
        ("tests/brokers/test_network.py::test_a[pulsar]", SERVER_SECONDS),
        ("tests/e2e/test_replicas.py::test_a[sqlite]", 900),
        ("tests/newer/test_suites.py::test_a_suite[Redis]", 1800),
        ("tests/newer/test_suites.py::test_a_suite[Python, whole]", 7200),
    ],
)
def test_whose_limit_it_is(nodeid: str, seconds: int | None) -> None:
    assert limit_of(nodeid) == seconds
