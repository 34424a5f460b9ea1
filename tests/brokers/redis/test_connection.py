"""The connection to Redis: what was written stays written once, and every way to fail has its error."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import uvloop

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.redis.binding import RedisBinding, connect
from babelgate.brokers.redis.connection import PipelinedConnection
from babelgate.brokers.redis.connection import connect as dial
from babelgate.brokers.redis.layouts.layout import MAX_COMMAND_BYTES
from babelgate.brokers.redis.server import script
from babelgate.brokers.redis.url import connector
from babelgate.clock import now_ms
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, ConfigError, OutcomeUnknown, StorageFull
from tests.brokers.redis.harness import RedisServer, binding, client, redis_server
from tests.harness.local import eventually, free_port
from tests.harness.proxy import Proxy, proxy

pytestmark = pytest.mark.redis
BODY = b'{"job":"urn:a","trace_id":"t","data":{},"meta":{},"attempts":0}'


@pytest.fixture(scope="module")
def secure() -> Iterator[RedisServer]:
    with redis_server(tls=True) as running:
        yield running


@pytest.fixture
async def between(server: RedisServer) -> AsyncIterator[Proxy]:
    async with proxy("127.0.0.1", server.port) as running:
        yield running


@pytest.fixture
async def one(between: Proxy) -> AsyncIterator[RedisBinding]:
    async with binding(f"redis://127.0.0.1:{between.port}/0") as opened:
        yield opened


@pytest.fixture
def native(one: RedisBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {})


def blocked(plain: redis.Redis) -> int:
    """How many clients wait for an element."""
    info: dict[str, int] = plain.info("clients")
    return info["blocked_clients"]


@contextlib.asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[PipelinedConnection]:
    """A connection to a server that answers the first commands with ``pieces``."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"PING\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        while await reader.read(1000):
            pass
        writer.close()
        gone.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        line = await dial("cache", connector(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", {})(), 60, 60)
        yield line
        await line.close()
        await gone.wait()


class TestALostReply:
    async def test_a_publish_is_written_once(
        self, one: RedisBinding, native: NativeQueue, between: Proxy, plain: redis.Redis, queue: str
    ) -> None:
        between.drop_replies = True
        with pytest.raises(OutcomeUnknown):
            await one.publish(native, [Outgoing(BODY)])
        between.drop_replies = False
        await one.ping()
        assert between.sent.count(BODY) == 1
        assert plain.lrange(queue, 0, -1) == [BODY]

    @pytest.mark.parametrize("verb", ["delay", "reserve", "ack", "release", "extend"])
    async def test_a_script_is_sent_once(
        self, one: RedisBinding, native: NativeQueue, between: Proxy, verb: str
    ) -> None:
        await one.publish(native, [Outgoing(BODY)])
        handle = "" if verb == "reserve" else (await one.reserve(native, 1, 0, 30))[0].handle
        calls: dict[str, tuple[str, Callable[[], Awaitable[Any]]]] = {
            "delay": ("delay", lambda: one.publish(native, [Outgoing(BODY, delay_seconds=60)])),
            "reserve": ("list_reserve", lambda: one.reserve(native, 1, 0, 30)),
            "ack": ("settle", lambda: one.ack(native, [handle])),
            "release": ("settle", lambda: one.release(native, [handle], 0, failed=False)),
            "extend": ("extend", lambda: one.extend(native, [handle], 60)),
        }
        name, call = calls[verb]
        before = between.sent.count(script(name).sha)
        between.drop_replies = True
        with pytest.raises(OutcomeUnknown):
            await call()
        between.drop_replies = False
        await one.ping()
        assert between.sent.count(script(name).sha) - before <= 1
        assert between.sent.count(script(name).source) <= 1

    @pytest.mark.parametrize("layout", ["list", "laravel"])
    async def test_what_was_reserved_for_nobody_goes_back(
        self, between: Proxy, plain: redis.Redis, queue: str, layout: str
    ) -> None:
        async with binding(f"redis://127.0.0.1:{between.port}/0", {"timeout_seconds": 30}) as one:
            native = one.native_queue(queue, {"layout": layout})
            # Once, so that the server knows the script.
            assert await one.reserve(native, 1, 0, 30) == ()
            await one.publish(native, [Outgoing(BODY), Outgoing(BODY.replace(b'"t"', b'"u"'))])
            before = plain.lrange(native.name, 0, -1)
            between.latency_seconds = 4
            reserving = asyncio.create_task(one.reserve(native, 2, 0, 3600))
            await eventually(lambda: plain.llen(native.name) == 0)
            reserving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reserving
            between.latency_seconds = 0
            await eventually(lambda: plain.lrange(native.name, 0, -1) == before)

    async def test_what_only_reads_is_unavailable(self, one: RedisBinding, native: NativeQueue, between: Proxy) -> None:
        between.drop_replies = True
        for call in (one.ping, lambda: one.stats(native), lambda: one.peek(native, 1), one.warnings):
            with pytest.raises(BrokerUnavailable):
                await call()

    async def test_a_server_that_never_answers(self, between: Proxy) -> None:
        made = connector(f"redis://127.0.0.1:{between.port}", {})
        line: PipelinedConnection = await dial("cache", made(), 5, 0.1)
        between.hold_replies = True
        first, second = line.send(b"PING"), line.send(b"PING")
        with pytest.raises(OutcomeUnknown):
            await first
        with pytest.raises(OutcomeUnknown):
            await second
        assert not line.alive
        with pytest.raises(BrokerUnavailable):
            await line.send(b"PING")
        await line.close()

    async def test_the_patience_counts_from_the_command(self, between: Proxy) -> None:
        line = await dial("cache", connector(f"redis://127.0.0.1:{between.port}", {})(), 5, 2)
        assert await line.send(b"PING") == b"PONG"
        await asyncio.sleep(1.9)
        assert await line.send(b"BLPOP", b"nothing here", b"0.2") is None
        assert line.alive
        await line.close()

    async def test_a_command_fails_in_its_time_while_others_are_answered(self, between: Proxy) -> None:
        line = await dial("cache", connector(f"redis://127.0.0.1:{between.port}", {})(), 5, 2)
        first, second = (line.send(b"BLPOP", b"nothing here", b"1.5") for _ in range(2))
        with pytest.raises(OutcomeUnknown):
            await second
        assert await first is None
        assert line.alive, "it is slow, and goes on"
        assert await line.send(b"PING") == b"PONG"
        await line.close()


class TestScripts:
    async def test_one_that_the_server_has_forgotten_is_sent_in_full_once(
        self, one: RedisBinding, native: NativeQueue, between: Proxy, plain: redis.Redis
    ) -> None:
        plain.script_flush()
        before = between.sent.count(script("delay").source)
        for _ in range(3):
            await one.publish(native, [Outgoing(BODY, delay_seconds=60)])
        assert between.sent.count(script("delay").source) - before == 1
        assert (await one.stats(native)).delayed == 3


class TestTheLine:
    @pytest.fixture
    async def one(self, between: Proxy) -> AsyncIterator[RedisBinding]:
        """A busy disk is no server that hangs."""
        async with binding(f"redis://127.0.0.1:{between.port}/0", {"timeout_seconds": 30}) as opened:
            yield opened

    async def test_concurrent_calls_share_one_connection(
        self, one: RedisBinding, native: NativeQueue, between: Proxy, plain: redis.Redis, queue: str
    ) -> None:
        bodies = [b"%d" % number for number in range(500)]
        await asyncio.gather(*(one.publish(native, [Outgoing(body)]) for body in bodies))
        assert between.connections == 1
        assert plain.lrange(queue, 0, -1) == bodies

    async def test_cancelled_calls_leave_it_in_order(
        self, one: RedisBinding, native: NativeQueue, between: Proxy
    ) -> None:
        tasks = [asyncio.create_task(one.publish(native, [Outgoing(b"%d" % number)])) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await one.publish(native, [Outgoing(b"last")])
        peeked = [each.body for each in await one.peek(native, 50)]
        assert peeked[-1] == b"last" and set(peeked) >= {b"%d" % number for number in range(1, 20, 2)}
        assert between.connections == 1

    async def test_a_reply_in_pieces(self) -> None:
        async with answering(b"$5\r\nhe", b"llo\r", b"\n+PO", b"NG\r\n:1\r\n") as line:
            replies = [line.send(b"PING") for _ in range(3)]
            assert await asyncio.gather(*replies) == [b"hello", b"PONG", 1]

    @pytest.mark.parametrize("noise", [b"+TOO MUCH\r\n", b"no reply at all\r\n"], ids=["unasked", "malformed"])
    async def test_an_answer_that_cannot_be_one_breaks_it(self, noise: bytes) -> None:
        async with answering(b"+PONG\r\n" + noise) as line:
            assert await line.send(b"PING") == b"PONG"
            await eventually(lambda: not line.alive)
            with pytest.raises(BrokerUnavailable):
                await line.send(b"PING")

    @pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
    async def test_a_server_that_does_not_read(self, server: RedisServer, secure: RedisServer, tls: bool) -> None:
        """What fits in no buffer waits here, and is known to be unwritten when the connection ends."""
        one = secure if tls else server
        options = {"ssl_ca_certs": str(secure.ca_file)} if tls else {}
        line = await dial("cache", connector(one.url(), options)(), 60, 60)
        assert await line.send(b"PING") == b"PONG"
        large = b"x" * 4_000_000  # More of them than a socket holds: net.ipv4.tcp_rmem may allow 32 MiB.

        async def sent() -> list[asyncio.Future[Any]]:
            replies = []
            for _ in range(16):
                replies.append(line.send(b"ECHO", large))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return replies

        one.pause()
        try:
            replies = await sent()
        finally:
            one.resume()
        assert await asyncio.gather(*replies) == [large] * 16
        one.pause()
        try:
            # The first alone fills the socket: between smaller ones it could still take some, and the last one, too.
            replies = []
            for command in ([b"ECHO", large * 16], [b"ECHO", large], [b"PING"]):
                replies.append(line.send(*command))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await line.close()
        finally:
            one.resume()
        kinds = [type(error) for error in await asyncio.gather(*replies, return_exceptions=True)]
        assert kinds[0] is OutcomeUnknown and kinds[-1] is BrokerUnavailable, "TLS notices it one write later"

    async def test_large_publishes_are_several_commands(
        self, one: RedisBinding, native: NativeQueue, between: Proxy
    ) -> None:
        bodies = [b"%d" % number + b" " * (MAX_COMMAND_BYTES // 3) for number in range(7)]
        assert await one.publish(native, [Outgoing(body) for body in bodies]) == [None] * 7
        assert between.sent.count(b"RPUSH\r\n") == 4
        assert [each.body for each in await one.peek(native, 9)] == bodies

    async def test_it_comes_back_by_itself(self, one: RedisBinding, native: NativeQueue, between: Proxy) -> None:
        between.cut()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(BabelgateError):
                    await one.ping()
                    break
        await one.publish(native, [Outgoing(BODY)])
        assert (await one.stats(native)).depth == 1

    @pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def test_it_is_lost_in_the_turn_of_a_command(self, server: RedisServer, loop_factory: Any) -> None:
        failed: list[dict[str, Any]] = []

        async def lost() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
            raw = connector(f"redis://127.0.0.1:{server.port}/0", {})()
            one = await dial("main", raw, 60, 60)
            assert raw._writer is not None
            raw._writer.transport.abort()
            with pytest.raises(BrokerUnavailable):
                await one.send(b"PING")
            assert not one.alive
            await one.close()

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(lost())
        gc.collect()
        assert failed == []


class TestWaiting:
    async def test_a_hundred_queues_at_once(self, server: RedisServer, queue: str, plain: redis.Redis) -> None:
        async with binding(server.url()) as one:
            natives = [one.native_queue(f"{queue}-{number}", {}) for number in range(100)]
            waits = [asyncio.create_task(one.reserve(native, 1, 10, 30)) for native in natives]
            await eventually(lambda: blocked(plain) == 100)
            pipe = plain.pipeline(transaction=False)
            for native in natives:
                pipe.rpush(native.name, native.name)
            pipe.execute()
            taken = await asyncio.gather(*waits)
            assert [[each.body for each in deliveries] for deliveries in taken] == [
                [native.name.encode()] for native in natives
            ]

    async def test_an_idle_wait_is_one_round_trip_a_second(
        self, one: RedisBinding, native: NativeQueue, between: Proxy
    ) -> None:
        for _ in range(2):
            assert await one.reserve(native, 1, 1, 30) == ()
        assert between.sent.count(script("list_reserve").sha) == 1
        assert between.sent.count(b"BLMOVE") <= 4

    async def test_a_wait_moves_nothing(
        self, one: RedisBinding, native: NativeQueue, queue: str, plain: redis.Redis
    ) -> None:
        waiting = asyncio.create_task(one.server.wait(queue.encode(), 1))
        await asyncio.sleep(0.05)
        plain.rpush(queue, "a", "b")
        assert await waiting
        assert plain.lrange(queue, 0, -1) == [b"a", b"b"]

    async def test_a_cancelled_wait_is_left_behind(
        self, one: RedisBinding, native: NativeQueue, queue: str, plain: redis.Redis
    ) -> None:
        waiting = asyncio.create_task(one.reserve(native, 1, 10, 30))
        await eventually(lambda: blocked(plain) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        plain.rpush(queue, BODY)
        assert [each.body for each in await one.reserve(native, 1, 5, 30)] == [BODY]

    async def test_connections_that_broke_while_idle_are_not_used(
        self, one: RedisBinding, native: NativeQueue, between: Proxy
    ) -> None:
        assert await one.reserve(native, 1, 0.01, 30) == ()
        between.cut()
        await asyncio.sleep(0.05)
        assert not await one.server.wait(b"nothing here", 0.01)


class TestRefusals:
    async def test_nobody_listens(self, queue: str) -> None:
        one = connect("cache", f"redis://127.0.0.1:{free_port()}", {}, now_ms)
        native = one.native_queue(queue, {})
        calls: list[Callable[[], Awaitable[Any]]] = [
            one.open,
            one.ping,
            lambda: one.publish(native, [Outgoing(BODY)]),
            lambda: one.publish(native, [Outgoing(BODY), Outgoing(BODY, delay_seconds=1)]),
            lambda: one.reserve(native, 1, 0, 30),
            lambda: one.ack(native, ["x"]),
        ]
        for call in calls:
            with pytest.raises(BrokerUnavailable) as failed:
                await call()
            assert failed.value.broker == "cache"
        await one.close()

    async def test_memory_is_full(self, one: RedisBinding, native: NativeQueue, queue: str, plain: redis.Redis) -> None:
        await one.publish(native, [Outgoing(BODY)])
        leased = await one.reserve(native, 1, 0, 30)
        plain.config_set("maxmemory", 1)
        for delay in (0, 60):
            with pytest.raises(StorageFull):
                await one.publish(native, [Outgoing(BODY, delay_seconds=delay)])
        assert await one.ack(native, [leased[0].handle]) == [None]
        stats = await one.stats(native)
        assert (stats.depth, stats.in_flight, stats.delayed) == (0, 0, 0)

    async def test_a_replica(self, one: RedisBinding, native: NativeQueue, plain: redis.Redis) -> None:
        plain.replicaof("127.0.0.1", "1")
        for delay in (0, 60):
            with pytest.raises(BrokerUnavailable, match="read only"):
                await one.publish(native, [Outgoing(BODY, delay_seconds=delay)])

    @pytest.mark.parametrize("suffix", ["", ":processing", ":processing:deadlines", ".dlq", ":babelgate:delayed"])
    async def test_a_key_of_a_wrong_type_loses_nothing(
        self, one: RedisBinding, native: NativeQueue, queue: str, plain: redis.Redis, suffix: str
    ) -> None:
        if suffix:
            plain.rpush(queue, BODY)
        plain.set(queue + suffix, "no list")
        with pytest.raises(BrokerRejected, match="WRONGTYPE"):
            await one.reserve(native, 1, 0, 30)
        if suffix:
            assert plain.lrange(queue, 0, -1) == [BODY]
        else:
            with pytest.raises(BrokerRejected, match="WRONGTYPE"):
                await one.publish(native, [Outgoing(BODY)])

    async def test_part_of_a_publish(
        self, one: RedisBinding, native: NativeQueue, queue: str, plain: redis.Redis
    ) -> None:
        plain.set(f"{queue}:babelgate:delayed", "no sorted set")
        outcomes = await one.publish(native, [Outgoing(BODY), Outgoing(BODY, delay_seconds=60), Outgoing(BODY)])
        assert [type(outcome) for outcome in outcomes] == [type(None), BrokerRejected, type(None)]
        assert plain.llen(queue) == 2

    async def test_an_access_list(self, server: RedisServer, queue: str, plain: redis.Redis) -> None:
        everyday = "+@connection +@list +@sortedset +@string +@hash +@keyspace +@scripting +time"
        rules = [f"~{queue}*", "~babelgate:timed", "-@all", *everyday.split(), "-keys", "-flushdb"]
        plain.execute_command("ACL", "SETUSER", queue, "on", ">secret", *rules)
        url = f"redis://{queue}:secret@127.0.0.1:{server.port}/0"
        async with binding(url) as one:
            native = one.native_queue(queue, {})
            await one.publish(native, [Outgoing(BODY), Outgoing(BODY, delay_seconds=0.01)])
            deliveries = await one.reserve(native, 1, 5, 30)
            assert await one.ack(native, [each.handle for each in deliveries]) == [None]
            assert await one.warnings() == []
            with pytest.raises(BrokerRejected):
                await one.publish(one.native_queue("of-somebody-else", {}), [Outgoing(BODY)])

    async def test_a_wrong_password(self, server: RedisServer) -> None:
        one = connect("cache", f"redis://nobody:wrong@127.0.0.1:{server.port}/0", {}, now_ms)
        with pytest.raises(BrokerUnavailable, match="password"):
            await one.open()
        await one.close()

    async def test_no_room_for_another_client(self, one: RedisBinding, server: RedisServer, plain: redis.Redis) -> None:
        allowed = plain.config_get("maxclients")["maxclients"]
        plain.config_set("maxclients", 1)
        late = connect("cache", server.url(), {}, now_ms)
        with pytest.raises(BrokerUnavailable):
            await late.open()
        plain.config_set("maxclients", allowed or "")
        await late.open()
        await late.close()

    async def test_a_cluster(self) -> None:
        with redis_server(arguments=["--cluster-enabled", "yes", "--cluster-port", str(free_port())]) as server:
            one = connect("cache", server.url(), {}, now_ms)
            with pytest.raises(ConfigError, match="cluster mode"):
                await one.open()
            await one.close()

    async def test_a_cluster_of_valkey(self) -> None:
        async with informing(VALKEY.replace("standalone", "cluster")) as url:
            one = connect("cache", url, {}, now_ms)
            with pytest.raises(ConfigError, match="cluster mode"):
                await one.open()
            await one.close()

    async def test_a_server_that_is_too_old(self) -> None:
        async with informing("redis_version:6.0.16\r\nredis_mode:standalone\r\n") as url:
            one = connect("cache", url, {}, now_ms)
            with pytest.raises(ConfigError, match=r"Redis 6\.0\.16; 6\.2 or newer"):
                await one.open()
            await one.close()

    async def test_valkey_is_called_by_its_name(self) -> None:
        async with informing(VALKEY) as url, binding(url) as one:
            assert one.server_version == "Valkey 8.1.1"


VALKEY = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nserver_mode:standalone\r\n"
"""What Valkey says of itself: https://valkey.io/commands/info/"""


@asynccontextmanager
async def informing(info: str) -> AsyncIterator[str]:
    """The URL of a server that says this of itself, to whatever a connection asks first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = f"# Server\r\n{info}"
        await reader.read(1000)
        writer.write(f"${len(text)}\r\n{text}\r\n".encode())
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class TestTls:
    async def test_with_its_certificate_authority(self, secure: RedisServer, queue: str) -> None:
        async with binding(secure.url(), {"ssl_ca_certs": str(secure.ca_file)}) as one:
            native = one.native_queue(queue, {})
            await one.publish(native, [Outgoing(BODY)])
            assert [each.body for each in await one.reserve(native, 1, 1, 30)] == [BODY]

    async def test_an_unknown_authority_is_refused(self, secure: RedisServer) -> None:
        one = connect("cache", secure.url(), {}, now_ms)
        with pytest.raises(BrokerUnavailable, match="certificate"):
            await one.open()
        await one.close()

    async def test_unverified_only_when_told(self, secure: RedisServer) -> None:
        async with binding(f"{secure.url()}?ssl_cert_reqs=none") as one:
            await one.ping()

    def test_a_close_leaves_no_socket_behind(self, secure: RedisServer) -> None:
        resumed = threading.Timer(0.1, secure.resume)

        async def visit() -> None:
            async with binding(secure.url(), {"ssl_ca_certs": str(secure.ca_file)}) as one:
                await one.ping()
                secure.pause()
                resumed.start()

        asyncio.run(visit())
        resumed.join()
        # A socket that outlived its loop is a ResourceWarning now, and so an error.
        gc.collect()


@pytest.mark.parametrize("turns", range(1, 7))
def test_a_close_that_is_cancelled_closes_all(server: RedisServer, queue: str, turns: int) -> None:
    """After a few ``turns`` of the event loop, while a receive has waited on a connection of its own."""

    async def cancelled() -> None:
        one = connect("cache", server.url(), {}, now_ms)
        await one.open()
        await one.server.wait(queue.encode(), 0.001)
        closing = asyncio.create_task(one.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))

    asyncio.run(cancelled())
    gc.collect()


async def test_a_close_ends_what_is_being_connected_to_wait(server: RedisServer, queue: str) -> None:
    one = connect("cache", server.url(), {}, now_ms)
    await one.open()
    waiting = asyncio.create_task(one.server.wait(queue.encode(), 60))
    await asyncio.sleep(0)
    await one.close()
    with pytest.raises(BrokerUnavailable, match="disconnects"):
        await waiting


class TestTheServer:
    async def test_a_database_of_its_own(self, server: RedisServer, queue: str, plain: redis.Redis) -> None:
        async with binding(server.url(5)) as one:
            await one.publish(one.native_queue(queue, {}), [Outgoing(BODY)])
        with client(server, 5) as fifth:
            assert fifth.llen(queue) == 1 and not plain.exists(queue)

    async def test_what_the_operator_should_know(self, server: RedisServer, plain: redis.Redis) -> None:
        async with binding(server.url()) as one:
            plain.config_set("appendfsync", "everysec")
            assert [text for text in await one.warnings() if "once a second" in text]
            plain.config_set("appendfsync", "always")
            assert await one.warnings() == []
            plain.config_set("maxmemory", "1gb")
            plain.config_set("maxmemory-policy", "allkeys-lru")
            assert [text for text in await one.warnings() if "allkeys-lru" in text]
            plain.config_set("maxmemory-policy", "noeviction")
            plain.config_set("appendonly", "no")
            assert [text for text in await one.warnings() if "appendonly no" in text]
            plain.config_set("appendonly", "yes")

    async def test_kill_and_restart_keep_what_was_confirmed(self, queue: str) -> None:
        with redis_server(appendfsync="always") as own:
            async with binding(own.url()) as one:
                native = one.native_queue(queue, {})
                await one.publish(native, [Outgoing(b"%d" % number) for number in range(10)])
                await one.publish(native, [Outgoing(b"delayed", delay_seconds=0.01)])
                leased = await one.reserve(native, 2, 0, 60)
                own.kill()
                await asyncio.to_thread(own.start)
                async with asyncio.timeout(60):
                    while True:
                        with contextlib.suppress(BabelgateError):
                            assert await one.ack(native, [each.handle for each in leased]) == [None, None]
                            break
                taken = [each.body for each in await one.reserve(native, 20, 5, 60)]
                while len(taken) < 9:
                    taken += [each.body for each in await one.reserve(native, 20, 5, 60)]
                assert taken[:8] == [b"%d" % number for number in range(2, 10)]
                assert taken[8:] == [b"delayed"]
