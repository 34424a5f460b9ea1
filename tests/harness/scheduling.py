"""Distributes the tests over the workers of pytest-xdist: what shares a server or a Spark session stays together."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_metrics",
    "tests/pipeline/",
    "tests/image/test_pipeline.py",
    "tests/image/",
)
"""Beginnings of paths; the first that fits counts. One worker runs all tests of one, because they share a Spark
session, which takes seconds to start and a gigabyte, or the build of the image. The longest modules are apart: other
workers take them."""

APART = (
    "tests/clients/",
    "tests/e2e/",
    "tests/brokers/test_lost_replies.py",
    "tests/brokers/test_network.py",
    "tests/http/test_schemathesis.py",
)
"""Tests that start processes of their own and take seconds each: any worker takes the next one."""

CONTRACTS = "/test_contract.py"
"""Its classes have hundreds of tests, and its servers are those of the session: any worker takes the next test."""


ONE_SERVER = re.compile(r"^tests/brokers/(artemis|kafka|pulsar)/|\[(?:[^\]]*\W)?(artemis|kafka|pulsar)\b")
"""A folder or a parameter of a broker written in Java, whose server takes many seconds of a processor to start: one
worker runs all its tests, so that it is started once."""


class ByServer(LoadScopeScheduling):  # type: ignore[misc]
    """Units of work are folders, classes, modules or single tests, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        for beginning in TOGETHER:
            if path.startswith(beginning):
                return beginning
        if (found := ONE_SERVER.search(nodeid)) is not None:
            return found[1] or found[2]
        return nodeid if path.startswith(APART) or path.endswith(CONTRACTS) else super()._split_scope(nodeid)
