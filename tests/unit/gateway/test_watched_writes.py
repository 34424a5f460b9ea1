"""Each write that a full store refuses is reported once, whoever made it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from babelgate.brokers import binding, idempotency_store, ports
from babelgate.errors import BrokerRejected, LeaseLost, StorageFull, StorageReadOnly
from babelgate.gateway.watched_writes import KEY_WRITES, WRITES, Refusal, watch_writes
from tests.harness.memory import MemoryBinding

FULL = StorageFull("memory", "no room")
READ_ONLY = StorageReadOnly("memory", "no rights")

READS = {
    *("open", "close", "ping", "warnings", "stats", "peek", "prove"),
    *("read_dead", "queues", "delivery_limit"),
}
"""What stores nothing for a client."""


class Store:
    """A binding, or a store of keys, whose calls all end with ``answer``."""

    name = "memory"

    def __init__(self, answer: Any) -> None:
        async def call(*arguments: Any, **named: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        for name in (*WRITES, *KEY_WRITES):
            setattr(self, name, call)


async def reported(answer: Any, name: str, *, keys: bool = False) -> list[Refusal]:
    """What was reported of a call."""
    found: list[Refusal] = []
    target: Any = MemoryBinding() if keys else Store(answer)
    if keys:
        target.keys = Store(answer)
    watch_writes(target, found.append)
    call = getattr(target.keys if keys else target, name)
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            await call("queue", [])
    else:
        assert await call("queue", []) is answer
    return found


@pytest.mark.parametrize("error", [FULL, READ_ONLY])
@pytest.mark.parametrize("name", WRITES)
async def test_a_write(name: str, error: Refusal) -> None:
    assert await reported(error, name) == [error]
    assert await reported([None, error, error], name) == [error]


@pytest.mark.parametrize("name", KEY_WRITES)
async def test_a_write_of_a_key(name: str) -> None:
    assert await reported(FULL, name, keys=True) == [FULL]
    assert await reported([FULL, None], name, keys=True) == [FULL]


@pytest.mark.parametrize("answer", [None, 3, [], [None], [LeaseLost(), None, 1.5], BrokerRejected("memory", "no")])
async def test_what_the_storage_has_not_refused(answer: Any) -> None:
    assert await reported(answer, "publish") == []


def test_each_method_of_a_broker_is_a_write_or_none() -> None:
    protocols = [
        each
        for module in (binding, ports)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if getattr(each, "_is_protocol", False)
    ]
    methods = {name for each in protocols for name, _ in inspect.getmembers(each, inspect.iscoroutinefunction)}
    assert methods == {*WRITES, *READS}
    assert {name for name, _ in inspect.getmembers(idempotency_store.KeyStore, inspect.iscoroutinefunction)} == set(
        KEY_WRITES
    )
