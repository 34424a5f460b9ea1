"""Short calls for tests that publish under idempotency keys, and comparisons of their answers."""

from __future__ import annotations

import json
from typing import Any

from babelgate.brokers.idempotency_store import TOKEN_BYTES, KeepsKeys, KeyClaim, KeyStore
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.idempotency import fingerprint
from babelgate.gateway.model import Receipt, Replay
from tests.harness.world import JOB, Process, World, data, draft

TOKEN = b"0" * TOKEN_BYTES


def entry(key: str | None, value: Any, **members: Any) -> bytes:
    """The body of an entry with a key."""
    return json.dumps({"envelope": {"job": JOB, "data": value}, "idempotency_key": key} | members).encode()


async def once(process: Process, key: str, value: Any = None, **how: Any) -> Receipt:
    """Publish a draft under a key of the request's head."""
    body = draft({} if value is None else value)
    return await process.gateway.publish(ANYONE, process.queue, body, idempotency_key=key, **how)


async def numbers(process: Process, count: int) -> list[int]:
    """The ``n`` of the messages on the queue, which are so many and no more."""
    taken = await process.take(count)
    assert await process.ready(1) == [], "there are more"
    assert await process.ack(*taken) == [None] * count
    return [data(message)["n"] for message in taken]


def same(answer: Receipt, first: Receipt) -> bool:
    """Whether ``answer`` replays the first call's."""
    return type(answer) is Replay and type(first) is Receipt and vars_of(answer) == vars_of(first)


def vars_of(receipt: Receipt) -> list[Any]:
    return [getattr(receipt, name) for name in receipt.__struct_fields__]


def store_of(process: Process, world: World) -> KeyStore:
    """The store that keeps the keys of the process."""
    binding = process.gateway.bindings[(world.store or world.broker).name]
    assert isinstance(binding, KeepsKeys)
    return binding.keys


def claim_of(world: World, key: str, value: Any) -> KeyClaim:
    """What a publish of ``value`` under ``key`` asks for."""
    return KeyClaim(world.queue, key, fingerprint(draft(value), None, None), b"{}", ANYONE.name)
