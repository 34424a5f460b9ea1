"""How the tests are shared among workers: what computes has its workers, and what shares a server is together."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.scheduling import (
    ByServer,
    kind_of,
    kinds_of,
    own_servers_of,
    scope_of,
    servers_of,
    shared_servers_of,
)
from tests.harness.sharing import KINDS

CORES = os.cpu_count() or 1


class Worker:
    """A worker as the scheduler knows it. It runs what it is told when the test says so."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.told: list[int] = []
        self.done = 0
        self.shutting_down = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def played(workers: int, nodeids: list[str], ready: Collection[str] = KINDS) -> list[list[str]]:
    """What each worker ran, when all are equally fast. ``ready``: the servers that need not be waited for."""
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    config: Any = SimpleNamespace(
        getvalue=lambda _: [f"{workers}*popen"], option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler = ByServer(config, log, ready.__contains__)
    nodes: list[Any] = [Worker(number) for number in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, nodeids)
    scheduler.schedule()
    progress = True
    while progress:
        progress = False
        for node in nodes:
            # The last one waits until the worker knows what is next.
            if node.done < len(node.told) - (not node.shutting_down):
                scheduler.mark_test_complete(node, node.told[node.done])
                node.done += 1
                progress = True
    assert all(node.shutting_down for node in nodes)
    assert not scheduler.has_pending
    return [[nodeids[index] for index in node.told] for node in nodes]


def contract(kind: str, tests: int) -> list[str]:
    return [f"tests/brokers/{kind}/test_contract.py::TestSettle::test_{n}[{kind}]" for n in range(tests)]


UNITS = [f"tests/unit/test_{module}.py::test_{n}" for module in range(20) for n in range(3)]
MANY = [*UNITS, *contract("redis", 30), *contract("kafka", 30), *contract("pulsar", 30)]


@pytest.mark.parametrize("workers", [1, 2, 2 * CORES, 4 * CORES])
def test_every_test_runs_once(workers: int) -> None:
    ran = played(workers, MANY)
    assert sorted(nodeid for each in ran for nodeid in each) == sorted(MANY)


def test_what_keeps_a_core_busy_has_as_many_workers_as_there_are_cores() -> None:
    loads = [f"tests/e2e/test_kill.py::test_{n}[redis]" for n in range(4 * CORES)]
    ran = [[kind_of(nodeid) for nodeid in each] for each in played(4 * CORES, [*MANY, *loads])]
    assert all(kinds[0] == "computes" for kinds in ran[:CORES])
    assert all(kinds[0] == "loads" for kinds in ran[CORES : 2 * CORES])
    assert {kind for kinds in ran[CORES : 2 * CORES] for kind in kinds} == {"loads", "waits", "computes"}
    assert {kind for kinds in ran[2 * CORES :] for kind in kinds} == {"waits"}


def test_who_has_nothing_to_load_and_to_wait_for_computes() -> None:
    """Two tests at a time, each with a gateway that waits for a broker, do not keep two cores busy."""
    ran = played(4 * CORES, [*contract("redis", CORES), *UNITS])
    computing = [sum(kind_of(nodeid) == "computes" for nodeid in nodeids) for nodeids in ran]
    assert min(computing[: 2 * CORES]) > 1
    # At the start every worker gets something.
    assert max(computing[2 * CORES :]) <= 3


def test_a_run_of_pytest_in_a_test_waits() -> None:
    assert kind_of("tests/newer/test_suites.py::test_a_suite[Python]") == "waits"


def test_few_workers_run_everything() -> None:
    assert len({frozenset(kinds_of(worker, 2 * CORES - 1)) for worker in range(2 * CORES - 1)}) == 1
    (ran,) = played(1, UNITS)
    assert ran == UNITS


def own(kind: str, tests: int) -> list[str]:
    return [f"tests/brokers/{kind}/test_{n}.py::test_a" for n in range(tests)]


def test_each_own_server_is_started_by_few_workers() -> None:
    ran = played(3, [*own("rabbitmq", 30), *own("kafka", 30), *own("pulsar", 30)])
    # All but the last, whose own servers have nothing to do any more, stay with the server that they have.
    assert sum(len(set().union(*map(own_servers_of, nodeids))) for nodeids in ran) <= 5


def test_the_tests_that_stop_a_server_come_first_and_are_together() -> None:
    stopping = [
        f"tests/brokers/{kind}/test_contract.py::TestHung::test_{n}[{kind}]" for kind in KINDS for n in range(3)
    ]
    ran = played(3, [*contract("kafka", 30), *contract("sqlite", 30), *stopping])
    for kind in KINDS:
        assert sum(kind in set().union(*map(own_servers_of, nodeids)) for nodeids in ran) == 1
    for nodeids in ran:
        needs = [bool(own_servers_of(nodeid)) for nodeid in nodeids]
        assert needs[0] and needs == sorted(needs, reverse=True)


def test_what_shares_a_server_is_for_every_worker_once_it_is_ready() -> None:
    ran = played(3, [*contract("kafka", 30), *contract("rabbitmq", 30)], ready=["rabbitmq"])
    assert min(map(len, ran)) > 15
    for nodeids in ran:
        kinds = [kind for nodeid in nodeids for kind in shared_servers_of(nodeid)]
        assert kinds == sorted(kinds, reverse=True)


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("tests/pipeline/test_metrics_skew.py::test_a", "tests/pipeline/test_metrics"),
        ("tests/pipeline/test_where.py::test_a[x]", "tests/pipeline/"),
        ("tests/e2e/test_kill.py::test_a[redis]", "tests/e2e/test_kill.py::test_a[redis]"),
        (
            "tests/brokers/sqs/test_contract.py::TestLife::test_a[sqs-x::y]",
            "tests/brokers/sqs/test_contract.py::TestLife::test_a",
        ),
        ("tests/brokers/sqs/test_contract.py::TestHung::test_a[sqs]", "tests/brokers/sqs/test_contract.py"),
        (
            "tests/brokers/redis/test_contract.py::TestHung::test_a[redis]",
            "tests/brokers/redis/test_contract.py::TestHung::test_a",
        ),
        ("tests/brokers/sqlite/test_unwritable.py::test_a[x]", "tests/brokers/sqlite/test_unwritable.py::test_a[x]"),
        ("tests/unit/test_ledger.py::test_a[x]", "tests/unit/test_ledger.py"),
        ("tests/brokers/redis/test_plain.py::TestIt::test_a", "tests/brokers/redis/test_plain.py::TestIt redis"),
        ("tests/http/test_stalls.py::test_a[kafka-peek: 24]", "tests/http/test_stalls.py kafka"),
    ],
)
def test_scopes(nodeid: str, scope: str) -> None:
    assert scope_of(nodeid) == scope


@pytest.mark.parametrize(
    ("nodeid", "servers"),
    [
        ("tests/brokers/sqlite/test_contract.py::TestLife::test_a[sqlite]", set()),
        ("tests/brokers/kafka/test_retry.py::test_a", {"kafka"}),
        ("tests/e2e/test_kill.py::test_a[pulsar]", {"pulsar"}),
        ("tests/e2e/test_replicas.py::test_a[rabbitmq-ojs]", {"rabbitmq"}),
        (
            "tests/brokers/test_idempotency.py::TestIdempotency::test_a[keys-in-redis-queue-in-kafka]",
            {"redis", "kafka"},
        ),
        ("tests/unit/test_ledger.py::test_a", set()),
    ],
)
def test_servers(nodeid: str, servers: set[str]) -> None:
    assert servers_of(nodeid) == servers
