"""Suites on newer servers and on a newer Python, in a root of Debian's next release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.harness import newer

pytestmark = pytest.mark.slow

_WORKERS = ("--numprocesses", "2", "--dist", "loadscope", "--no-loadscope-reorder")
"""Most tests wait, and other tests run beside them. Each worker collects all tests."""


class Suite(NamedTuple):
    """``tests``: folders, files, and options of pytest. ``programs``: a folder whose programs come first."""

    tests: Sequence[str]
    programs: str | None = None


_ELSEWHERE = "spark or browser or prometheus"
"""Marks of tests for which the root has no programs."""
_QUICK = ("--hypothesis-profile", "fast", "-m", f"not (slow or repeated or {_ELSEWHERE})")
_WHOLE = ("-m", f"not ({_ELSEWHERE})")
_REDIS = [f"tests/brokers/redis/test_{name}.py" for name in ("connection", "contract", "errors", "rights")]
_VALKEY = [f"tests/brokers/redis/test_{name}.py" for name in ("connection", "errors", "rights")]
_VALKEY += [
    f"tests/brokers/redis/test_contract.py::Test{suite}"
    for suite in ("Attempts", "DeadLetters", "Leases", "Life", "Receive", "Settle")
]
_UNITS = [f"tests/unit/{name}" for name in ("cluster", "config", "envelope", "runtime", "server")]
_HTTP = [f"tests/http/test_{name}.py" for name in ("bodies", "direct")]
_SERVICE_BUS = "tests/brokers/servicebus/test_contract.py"
"""Its server is written in Python, too."""
_RABBITMQ = [
    f"tests/brokers/rabbitmq/test_{name}.py"
    for name in ("connection", "delays", "errors", "header_types", "management", "publish", "queues", "topology")
]

SUITES: Mapping[str, Suite] = {
    "Python": Suite((*_UNITS, *_HTTP, "tests/brokers/sqlite/test_contract.py", *_QUICK)),
    "Redis": Suite((*_REDIS, "-k", "not laravel", *_QUICK)),
    "Valkey": Suite((*_VALKEY, "-k", "not laravel", *_QUICK), newer.VALKEY),
    "RabbitMQ": Suite((*_RABBITMQ, "-k", "not ojs", *_QUICK)),
    "Python, whole": Suite(("tests/unit", "tests/http", "tests/brokers/sqlite", _SERVICE_BUS, *_WHOLE)),
    "Redis, whole": Suite(("tests/brokers/redis", *_WHOLE)),
    "Valkey, whole": Suite(("tests/brokers/redis", *_WHOLE), newer.VALKEY),
    "RabbitMQ, whole": Suite(("tests/brokers/rabbitmq", *_WHOLE)),
}
"""Of each server and of Python, what depends most on it, and everything: tests/harness/repeated.py has that.

Of a server, that is how it connects, refuses, limits, declares, keeps types and reports; of Python, its event loop,
sockets, JSON and SQLite. Valkey has the engine of Redis. Of the contract it runs the suites whose scripts write most,
and those that wait and restart the server. Only the whole suite has the rest of the contract on Valkey."""


@pytest.mark.parametrize("name", SUITES)
def test_a_suite(name: str) -> None:
    """All of it passes. In the root nothing may be missing."""
    suite = SUITES[name]
    path = newer.PATH if suite.programs is None else f"{suite.programs}:{newer.PATH}"
    command = ["python", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *_WORKERS, *suite.tests]
    done = newer.run(*command, environ={"CI": "true", "PATH": path})
    if done.returncode:
        pytest.fail(done.stdout[-30_000:], pytrace=False)
