"""Distributes the tests over the workers of pytest-xdist.

Tests that compute run on as many workers as the machine has cores, tests that load a gateway on as many others, which
compute when nothing else is left, and tests that wait on all. What needs a Spark session or a server of its own stays
together as far as that keeps nobody waiting; servers that all workers share are no reason to choose a worker.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from xdist.scheduler import LoadScopeScheduling

from tests.harness.sharing import KINDS, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

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
    "tests/brokers/sqlite/test_unwritable.py",
    "tests/http/test_schemathesis.py",
    "tests/newer/",
)
"""Tests that start processes of their own and take seconds each: any worker takes the next one."""

CONTRACTS = "/test_contract.py"
"""Its classes have hundreds of tests. Any worker takes the next test function; those on a server of their own, which
they stop and start, stay together."""

LOADS = (
    "tests/clients/",
    "tests/e2e/test_idempotency_kill.py",
    "tests/e2e/test_idempotency_shares.py",
    "tests/e2e/test_journal_kill.py",
    "tests/e2e/test_kill.py",
    "tests/e2e/test_outages.py",
    "tests/e2e/test_replicas.py",
    "tests/helm/test_rolling_upgrade.py",
)
"""Beginnings of the paths of tests whose clients call as fast as they can: with many at a time none would get an answer
in time."""

WAITS = ("tests/brokers/", "tests/e2e/", "tests/newer/")
"""Beginnings of the paths of tests that mostly wait, for leases, delays, servers and other runs of pytest. All others
compute."""

_SERVERS = "artemis|kafka|pulsar|rabbitmq|redis|servicebus|sqs"
_OF_SERVER = re.compile(rf"^tests/brokers/({_SERVERS})/|(?<=[\[-])({_SERVERS})\b")
"""A folder or a parameter of a broker with a server."""


Kind = Literal["computes", "loads", "waits"]


def kinds_of(worker: int, workers: int) -> Sequence[Kind]:
    """What the worker with this index runs, in this order.

    Of many workers, as many run what keeps a core busy as there are cores. Of few, each runs everything.
    """
    cores = os.cpu_count() or 1
    if workers < 2 * cores:
        return ("computes", "waits", "loads") if worker == 0 else ("loads", "waits", "computes")
    if worker < cores:
        return ("computes", "waits", "loads")
    # What computes is left at the end: one test on a core leaves it idle while its gateway waits for a broker.
    return ("loads", "waits", "computes") if worker < 2 * cores else ("waits",)


def scope_of(nodeid: str) -> str:
    """What is run by one worker: the tests with the same scope."""
    path = nodeid.partition("::")[0]
    function = nodeid.partition("[")[0]
    for beginning in TOGETHER:
        if path.startswith(beginning):
            return beginning
    if path.startswith(APART):
        return nodeid
    if path.endswith(CONTRACTS):
        return path if own_servers_of(nodeid) else function
    # The tests of a module that has several brokers are as many units.
    return " ".join([function.rpartition("::")[0], *sorted(servers_of(nodeid))])


def kind_of(nodeid: str) -> Kind:
    """How a test uses the machine."""
    if nodeid.startswith(LOADS):
        return "loads"
    return "waits" if nodeid.startswith(WAITS) or servers_of(nodeid) else "computes"


def servers_of(nodeid: str) -> set[str]:
    """The kinds of brokers whose servers a test is known to need."""
    return {folder or parameter for folder, parameter in _OF_SERVER.findall(nodeid)}


def own_servers_of(nodeid: str) -> set[str]:
    """The kinds of brokers of which a test needs a server of its worker's own that takes a while to start."""
    return set() if shares(nodeid) else servers_of(nodeid) & {*KINDS}


def shared_servers_of(nodeid: str) -> set[str]:
    """The kinds of brokers whose servers a test shares with all workers."""
    return servers_of(nodeid) & {*KINDS} if shares(nodeid) else set()


class ByServer(LoadScopeScheduling):  # type: ignore[misc]
    """Units of work are folders, classes, modules, test functions or single tests, in the order of collection.

    A worker prefers what needs the servers that it has started; then a server that nobody has started; then what shares
    servers that are ready, by ``is_ready``; then a server that the fewest others have started.
    """

    def __init__(self, config: pytest.Config, log: Producer | None, is_ready: Callable[[str], bool]) -> None:
        super().__init__(config, log)
        self._is_ready = is_ready
        self._needed: dict[str, tuple[set[str], set[str]]] = {}
        """The own and the shared servers that the tests of each scope need."""
        self._kinds: dict[str, Kind] = {}
        """How the tests of each scope use the machine."""
        self._started: defaultdict[WorkerController, set[str]] = defaultdict(set)
        """The servers that each worker has started."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _needs(self, scope: str) -> tuple[set[str], set[str]]:
        if scope not in self._needed:
            tests = self.workqueue[scope]
            self._needed[scope] = set().union(*map(own_servers_of, tests)), set().union(*map(shared_servers_of, tests))
        return self._needed[scope]

    def _kind(self, scope: str) -> Kind:
        if scope not in self._kinds:
            self._kinds[scope] = min(map(kind_of, self.workqueue[scope]))
        return self._kinds[scope]

    def _cost(self, node: WorkerController, scope: str) -> int:
        """How much is against giving ``scope`` to ``node``: 0 is best."""
        own, shared = self._needs(scope)
        missing = own - self._started[node]
        if own and not missing:
            return 0
        if not own:
            return 2 if all(map(self._is_ready, shared)) else 3
        others = sum(len(missing & started) for started in self._started.values())
        return 3 + others if others else 1

    def _best(self, node: WorkerController, scopes: Iterable[str]) -> str | None:
        """The first of those ``scopes`` that have the lowest cost."""
        return min(scopes, key=lambda scope: self._cost(node, scope), default=None)

    def _next(self, node: WorkerController) -> str | None:
        """The best work for ``node``; None if others have to do all that is left."""
        for kind in kinds_of(self.nodes.index(node), self.numnodes):
            scope = self._best(node, (each for each in self.workqueue if self._kind(each) == kind))
            if scope is not None:
                return scope
        return None

    def _assign_work_unit(self, node: WorkerController) -> None:
        # At the start every worker has to get something.
        scope = self._next(node) or next(iter(self.workqueue))
        self._started[node] |= self._needs(scope)[0]
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._pending_of(self.assigned_work[node]) <= 2 and self.workqueue and self._next(node) is None:
            if not node.shutting_down:
                node.shutdown()
        else:
            super()._reschedule(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        # What is done is not counted again at the end of each later test.
        scope = scope_of(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]
