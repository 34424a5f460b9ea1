"""How long a test may take: as ``timeout`` in ``pyproject.toml`` says, unless it is one of those that are long.

A limit ends what hangs. It is at least three times what the test takes beside others that keep all cores busy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.harness.scheduling import servers_of
from tests.harness.sharing import KINDS

SERVER_SECONDS = 300
"""For a test with a broker that takes seconds to start: it may be the first to wait for its server, and some restart it
two or three times."""

_NEWER = "pytest runs a suite of its own in it, with servers of its own"
_KILLS = "gateways and brokers are killed and started again under load, until the last lease has ended"
_SPARK = "the first test of a worker starts Spark, and a job starts Python in it"
_PROGRAMS = "it starts a compiler, a package manager or a browser, once for each case"

LONG: Mapping[str, tuple[int, str]] = {
    "tests/clients/": (600, _PROGRAMS),
    "tests/clients/test_tutorial.py": (1200, "it compiles five programs, and waits until leases end"),
    "tests/console/": (600, _PROGRAMS),
    "tests/e2e/test_behind_a_proxy.py": (600, "it starts a proxy and a gateway"),
    "tests/e2e/test_compose_pipeline.py": (900, _SPARK),
    "tests/e2e/test_behind_envoy.py": (600, "it starts a proxy and a gateway"),
    "tests/e2e/test_demo_queues.py": (600, "it starts all that docker-compose.yml has"),
    "tests/e2e/test_docs_page.py": (900, _PROGRAMS),
    "tests/e2e/test_explanations.py": (600, "it waits until a lease ends"),
    "tests/e2e/test_generated_clients.py": (600, _PROGRAMS),
    "tests/e2e/test_how_to.py": (600, "it waits until leases end, and starts commands"),
    "tests/e2e/test_idempotency_kill.py": (600, _KILLS),
    "tests/e2e/test_journal_kill.py": (600, _KILLS),
    "tests/e2e/test_kill.py": (600, _KILLS),
    "tests/e2e/test_monitoring.py": (900, "Prometheus waits as long as its rules say"),
    "tests/e2e/test_new_broker.py": (900, "pytest runs a contract in it, and the tests of the tree"),
    "tests/e2e/test_openapi_tools.py": (600, _PROGRAMS),
    "tests/e2e/test_outages.py": (600, _KILLS),
    "tests/e2e/test_parking_kill.py": (600, _KILLS),
    "tests/e2e/test_push.py": (600, _KILLS),
    "tests/e2e/test_push_signatures.py": (600, _PROGRAMS),
    "tests/e2e/test_readme.py": (600, "it starts what the README starts"),
    "tests/e2e/test_reload_brokers.py": (600, "it starts brokers and gateways, and waits for queues that are moved"),
    "tests/e2e/test_reload_load.py": (
        600,
        "it loads ten configurations under load, and waits for queues that are moved",
    ),
    "tests/e2e/test_reload_workers.py": (
        900,
        "workers are killed, and others start, each of which imports the program",
    ),
    "tests/e2e/test_replicas.py": (900, _KILLS),
    "tests/e2e/test_stream_kill.py": (600, _KILLS),
    "tests/e2e/test_tutorial.py": (600, "it waits until leases end"),
    "tests/e2e/test_up_local.py": (600, "it starts all brokers"),
    "tests/helm/": (600, "an API server, and Helm for each set of values"),
    "tests/http/test_schemathesis.py": (900, "it tries thousands of requests"),
    "tests/http/test_stalls.py": (600, "it prepares and measures up to twelve times, on a busy machine"),
    "tests/image/": (900, "the first test of a worker builds the image"),
    "tests/keycloak/": (
        1_800,
        "Keycloak makes its tables at its first start, and compiles itself where it was not fetched lately",
    ),
    "tests/newer/test_suites.py": (1800, _NEWER),
    "tests/newer/test_suites.py::test_a_suite[Python, whole]": (7200, _NEWER),
    "tests/newer/test_suites.py::test_a_suite[RabbitMQ, whole]": (7200, _NEWER),
    "tests/pipeline/": (600, _SPARK),
    "tests/pipeline/test_cluster.py": (1800, "every job starts on a cluster"),
}
"""Seconds, and why it takes long, by the longest beginning of a test's name."""


def limit_of(nodeid: str) -> int | None:
    """The seconds of a test that is one of the long ones; None for any other."""
    beginning = max(filter(nodeid.startswith, LONG), key=len, default=None)
    if beginning is not None:
        return LONG[beginning][0]
    needs_server = re.match("tests/brokers/(?!sqlite/|redis/)", nodeid) or servers_of(nodeid) & {*KINDS}
    return SERVER_SECONDS if needs_server else None
