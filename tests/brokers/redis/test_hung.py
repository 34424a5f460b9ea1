"""A Redis server that takes connections and answers nothing for a while."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from tests.brokers.redis.harness import binding, client, redis_server
from tests.harness.local import eventually

pytestmark = pytest.mark.redis
BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{},"attempts":0}'


async def test_a_reserve_gives_up_and_what_it_brings_later_goes_back(queue: str) -> None:
    with redis_server() as own, client(own) as plain:
        async with binding(own.url()) as one:
            native = one.native_queue(queue, {})
            # Once, so that the server knows the scripts.
            assert await one.reserve(native, 1, 0, 30) == ()
            await one.publish(native, [Outgoing(BODY), Outgoing(BODY)])
            connections = plain.info("stats")["total_connections_received"]
            own.pause()
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(BrokerUnavailable, match="no reply"):
                        await one.reserve(native, 2, 0, 30)
            finally:
                own.resume()
            # Answered in order, so the reserve has been answered before.
            await one.ping()
            await eventually(lambda: plain.llen(queue) == 2)
            first, second = await one.reserve(native, 2, 0, 30)
            assert (first.delivery_count, first.redelivered, second.delivery_count) == (0, False, 0)
            assert await one.ack(native, [first.handle, second.handle]) == [None, None]
            assert plain.info("stats")["total_connections_received"] == connections


async def test_a_wait_gives_up_as_well(queue: str) -> None:
    with redis_server() as own:
        async with binding(own.url()) as one:
            native = one.native_queue(queue, {})
            assert await one.reserve(native, 1, 0.01, 30) == ()
            own.pause()
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(BrokerUnavailable, match=r"no (answer|reply)"):
                        await one.reserve(native, 1, 0.1, 30)
            finally:
                own.resume()


async def test_ping_and_warnings_end_within_their_bound() -> None:
    with redis_server() as own:
        async with binding(own.url(), {"timeout_seconds": 20}) as one:
            own.pause()
            try:
                for call in (one.ping, one.warnings):
                    async with asyncio.timeout(60):
                        with pytest.raises(BrokerUnavailable, match="no answer within 2 s"):
                            await call()
            finally:
                own.resume()


async def test_a_close_does_not_wait_for_it(queue: str) -> None:
    with redis_server() as own:
        async with binding(own.url()) as one:
            native = one.native_queue(queue, {})
            own.pause()
            with pytest.raises(BrokerUnavailable):
                await one.reserve(native, 1, 0, 30)
            async with asyncio.timeout(60):
                await one.close()


async def test_connecting_is_a_part_of_a_call(queue: str) -> None:
    with redis_server() as own:
        async with binding(own.url(), {"timeout_seconds": 1}) as one:
            native = one.native_queue(queue, {})
            own.pause()
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(OutcomeUnknown):
                        await one.publish(native, [Outgoing(BODY)])
                    with pytest.raises(BrokerUnavailable, match="within 1 s"):
                        await one.publish(native, [Outgoing(BODY)])
                    with pytest.raises(BrokerUnavailable):
                        await one.stats(native)
            finally:
                own.resume()
