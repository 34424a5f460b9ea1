"""What operators see: the exact native form of a message before it is published, and the queues that are known."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from babelgate.brokers.idempotency_store import KeepsKeys
from babelgate.brokers.projection import NativeWrite
from babelgate.errors import UnsupportedByBroker
from babelgate.gateway.authorization import ANYONE, Caller, Right
from tests.harness.world import Process, World, until

CANONICAL = (
    '{"job":"urn:babel:test:made","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"n":1.10,"é":"☕"},'
    '"meta":{"id":"0192f0c1-6a1c-7c8e-9d67-0e6f7f0f1a2b","queue":"%s","lang":"php","schema_version":1,'
    '"created_at":1700000000000},"attempts":0}'
)
HEADERS = {"traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-980c512d6f4a8fba-01", "Shop-Region": 'EU "ümlaut" ☕'}


Purge = Callable[..., Awaitable[int]]


_MOMENT = re.compile(rb'"(\d{4}-\d\d-\d\dT[\d:.]+Z)"')
_NEAR_SECONDS = 300
"""Between a dry run and the publish after it, on a busy machine."""


def moments(write: NativeWrite) -> list[float]:
    """The times in the body, in Unix seconds."""
    return [datetime.fromisoformat(each.decode()).timestamp() for each in _MOMENT.findall(write.body or b"")]


def fixed(write: NativeWrite, assigned: Sequence[str]) -> NativeWrite:
    """``write`` without what another write of the same message has different. Its times are :func:`moments`."""
    body = write.body
    if body is not None:
        if isinstance(random := write.fields.get("id"), str):
            assert body.startswith(random.encode() + b":")
            body = body[len(random) :]
        body = _MOMENT.sub(b"", body)
    return replace(
        write,
        fields={name: value for name, value in write.fields.items() if name not in assigned},
        headers={name: value for name, value in write.headers.items() if name not in assigned},
        body=body,
        assigned=(),
    )


def values(write: NativeWrite, names: Sequence[str]) -> dict[str, Any]:
    return {name: write.fields[name] if name in write.fields else write.headers[name].value for name in names}


def is_near(shown: object, found: object) -> bool:
    """Whether two values are of one kind: texts of one length, or times a few minutes apart."""
    if isinstance(shown, str) and isinstance(found, str):
        return len(shown) == len(found)
    return isinstance(shown, int | float) and isinstance(found, int | float) and abs(shown - found) <= 2e-7 * shown


class TestOperators:
    @pytest.mark.parametrize("delayed", [False, True])
    @pytest.mark.parametrize("headers", [{}, HEADERS], ids=["no headers", "headers"])
    @pytest.mark.parametrize("key", [None, "once"])
    async def test_a_publish_writes_what_the_dry_run_shows(
        self, world: World, key: str | None, headers: dict[str, str], delayed: bool
    ) -> None:
        delay = world.broker.far_delay if delayed else 0
        options = world.broker.header_options if headers else world.broker.queue_options
        if options is None:
            pytest.skip("no route of this broker carries headers")
        process = await world.process(queue_options=options)
        if key is not None and not isinstance(process.gateway.bindings[world.broker.name], KeepsKeys):
            pytest.skip("this broker keeps no keys")
        given = json.dumps({"headers": headers, "delay_seconds": delay, "idempotency_key": key})
        entry = (given[:-1] + ',"envelope":' + CANONICAL % world.queue + "}").encode()
        shown = await process.gateway.validate(ANYONE, world.queue, entry)
        assert (shown.delay_seconds, shown.native_name) == (
            delay,
            process.gateway.router.route(world.queue).native.name,
        )
        assert await world.broker.stored(world.queue, delayed) == [], "it published"
        await process.publish_body(entry)
        stored = await world.broker.stored(world.queue, delayed)
        assert len(stored) == len(shown.writes) > 0
        for expected, found in zip(shown.writes, stored, strict=True):
            one, other = (asdict(fixed(each, expected.assigned)) for each in (found, expected))
            assert one == other
            assert moments(found) == pytest.approx(moments(expected), abs=_NEAR_SECONDS)
            sample, written = values(expected, expected.assigned), values(found, expected.assigned)
            assert all(is_near(sample[name], written[name]) for name in sample), (sample, written)

    async def test_the_dry_run_knows_how_the_idempotency_key_is_kept(self, world: World) -> None:
        process = await world.process()
        plain = {"envelope": json.loads(CANONICAL % world.queue)}
        shown = await process.gateway.validate(ANYONE, world.queue, json.dumps(plain).encode())
        assert shown.idempotency is None
        keys = (await process.gateway.overview.queue(ANYONE, world.queue)).idempotency
        if keys is None:
            pytest.skip("this broker keeps no keys")
        keyed = json.dumps(plain | {"idempotency_key": "a"}).encode()
        assert (await process.gateway.validate(ANYONE, world.queue, keyed)).idempotency == keys

    async def test_a_dry_run_of_a_purge_counts_what_a_purge_removes(self, world: World) -> None:
        process, broker = await world.process(), world.broker
        await process.publish_all([{"n": n} for n in range(4)])
        _, rejected = await process.take(2)
        await process.reject(rejected)
        await process.publish({"n": 4}, delay_seconds=900)
        gateway = process.gateway
        kinds = [
            (partial(gateway.purge, ANYONE, world.queue), process.capabilities.purge_counts),
            (partial(gateway.letters.purge, ANYONE, world.queue), ("dead",)),
        ]
        expected = 2 + len({"delayed", "in_flight"}.intersection(process.capabilities.purges)), 1
        for (purge, counts), count in zip(kinds, expected, strict=True):
            if not counts or not broker.reports.issuperset({*counts} - {"depth", "dead"}):
                with pytest.raises(UnsupportedByBroker) as refusal:
                    await purge(dry_run=True)
                assert (refusal.value.problem_code, refusal.value.pointer) == ("unsupported_by_broker", "/dry_run")
            else:

                async def is_counted(purge: Purge = purge, count: int = count) -> bool:
                    return await purge(dry_run=True) == count

                # The counts of some brokers come later.
                await until(is_counted)
        # Nothing was removed.
        assert len(await process.dead()) == 1
        for (purge, _), count in zip(kinds, expected, strict=True):
            assert "in_flight" in process.capabilities.purges or await purge() == count

    async def test_a_queue_is_listed_with_the_source_of_its_name(self, world: World) -> None:
        one, another = await world.process(), await world.process(queue=f"{world.queue}-other")
        await one.publish()
        await another.publish()
        if "queues" in world.broker.reports:
            expected = {one.queue: "broker", another.queue: "broker"}
        else:
            expected = {one.queue: "process"}

        async def are_listed() -> bool:
            return await self.sources(one) == expected

        await until(are_listed)
        listener = Caller("listener", {another.queue: frozenset({Right.LISTEN})})
        assert set(await self.sources(another, listener)) == {another.queue}

    async def test_the_list_is_paged(self, world: World) -> None:
        process = await world.process()
        names = [f"{world.queue}-{number}" for number in range(5)]
        for name in names:
            await process.gateway.publish(ANYONE, name, b'{"job":"a","data":{}}')
        ours = Caller("ours", {f"{world.queue}-*": frozenset({Right.LISTEN})})
        cursor: str | None = None
        for page in (names[:2], names[2:4], names[4:]):
            infos, cursor = await process.gateway.overview.queues(ours, 2, cursor)
            assert [info.queue for info in infos] == page
        assert cursor is None

    @staticmethod
    async def sources(process: Process, caller: Caller = ANYONE) -> dict[str, str | None]:
        infos, _ = await process.gateway.overview.queues(caller, 1000, None)
        prefix = process.queue.removesuffix(".other")
        return {info.queue: info.source for info in infos if info.queue.startswith(prefix)}
