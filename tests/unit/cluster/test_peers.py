"""Gateways settle for each other over real sockets, and say what they know when one of them does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.binding import NativeQueue, Outcome
from babelgate.cluster.client import Address
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import MAX_CALL_BYTES
from babelgate.errors import BodyTooLarge, BrokerUnavailable, ConfigError, LeaseLost, OutcomeUnknown, OwnerUnreachable
from babelgate.gateway.ack_tokens import Lease, TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Extend, Nack, Reject, Settlement
from babelgate.server.peer_port import PeerPort
from tests.harness.local import free_port
from tests.harness.memory import MemoryBinding
from tests.harness.replica import OWNED, QUEUE, Replica
from tests.harness.world import KEYS, kinds

Make = Callable[..., Awaitable[Replica]]
STRANGE = "feedfeedfeedfeed"


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes started replicas that meet in one directory, unless they get one of their own."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(directory: Path = tmp_path / "peers", **how: object) -> Replica:
            made = await Replica(directory, **how).start()  # type: ignore[arg-type]
            stack.push_async_callback(made.close)
            return made

        yield make


class Slow(MemoryBinding):
    """Acks when it is told to."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        self.asked.set()
        await self.go_on.wait()
        return await super().ack(queue, handles)


def token_of(owner: str) -> str:
    """A token as ``owner`` would have handed it out."""
    return TokenSealer(KEYS).seal(Lease(QUEUE, "memory", "1", owner, 0, 0))


async def talking(place: Path | Address, say: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]):
    """A server at ``place`` that answers a connection with ``say`` and then hangs up."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await say(reader, writer)
        writer.close()

    if isinstance(place, Path):
        return await asyncio.start_unix_server(connected, place)
    return await asyncio.start_server(connected, place.host, place.port)


class TestOnOneHost:
    async def test_what_one_handed_out_another_settles(self, replica: Make) -> None:
        owner, other = await replica(), await replica()
        assert await other.ack(await owner.token()) == [None]
        assert await owner.held() == 0

    async def test_every_kind_of_settle(self, replica: Make) -> None:
        owner, other = await replica(), await replica()
        acked, nacked, rejected, extended = await owner.tokens(4)
        results = await other.settle(
            Settlement([acked], [Nack([nacked], 0)], [Reject([rejected])], [Extend([extended], 60)])
        )
        assert results[:2] == [None, None]
        assert results[2] is not None, "the broker in memory has no dead letters"
        assert results[2].problem_code == "unsupported_by_broker"
        assert results[3] is None
        assert await owner.held() == 2

    async def test_an_extend_brings_the_new_deadline(self, replica: Make) -> None:
        owner, other = await replica(), await replica()
        token = await owner.token()
        (result,) = await other.gateway.settle(ANYONE, QUEUE, Settlement(extends=[Extend([token], 3000)]))
        assert result.lease_expires_at is not None
        assert result.lease_expires_at > owner.gateway.clock() + 2_900_000

    async def test_equal_handles_of_two_owners_are_not_mixed_up(self, replica: Make) -> None:
        one, two, three = await replica(), await replica(), await replica()
        ones, twos = await one.tokens(2), await two.tokens(2)
        assert await three.ack(ones[1], twos[0]) == [None, None]
        assert (await one.held(), await two.held()) == (1, 1)
        assert kinds(await one.ack(*ones)) == [None, LeaseLost]
        assert kinds(await two.ack(*twos)) == [LeaseLost, None]

    async def test_many_at_once_are_few_calls(self, replica: Make) -> None:
        owner, other = await replica(), await replica()
        tokens = await owner.tokens(50)
        assert await asyncio.gather(*map(other.ack, tokens)) == [[None]] * 50
        assert await owner.held() == 0
        assert len(owner.binding.calls["ack"]) <= 3, "each ack was a call of its own"

    async def test_one_that_asks_too_much_is_told(self, replica: Make) -> None:
        (error,) = await (await replica()).settle(Settlement([], [Nack([token_of(STRANGE)], 0, "x" * MAX_CALL_BYTES)]))
        assert type(error) is BodyTooLarge
        assert error.limit == MAX_CALL_BYTES

    async def test_what_fails_there_fails_here(self, replica: Make) -> None:
        owner, other = await replica(), await replica()
        token = await owner.token()
        owner.binding.fail_after("ack", 0)
        (error,) = await other.ack(token)
        assert type(error) is BrokerUnavailable
        assert error.detail == "The broker memory is not available: it is down. Nothing was written."

    async def test_one_that_stopped_is_gone(self, replica: Make) -> None:
        owner, other = await replica(), await replica()
        first, second = await owner.tokens(2)
        assert await other.ack(first) == [None]
        await owner.close()
        assert kinds(await other.ack(second)) == [LeaseLost]

    async def test_one_that_stops_finishes_what_it_was_asked(self, replica: Make) -> None:
        slow = Slow(capabilities=OWNED)
        owner, other = await replica(binding=slow), await replica()
        acking = asyncio.create_task(other.ack(await owner.token()))
        await slow.asked.wait()
        closing = asyncio.create_task(owner.port.close())
        await asyncio.sleep(0)
        slow.go_on.set()
        assert await acking == [None]
        await closing

    async def test_one_that_refuses_a_settle_answers_the_one_before(self, replica: Make, tmp_path: Path) -> None:
        slow, place = Slow(capabilities=OWNED), Address("127.0.0.1", free_port())
        owner = await replica(tmp_path / "there", binding=slow, listen=place)
        other = await replica(places=[place])
        first, second = await owner.tokens(2)
        acking = asyncio.create_task(other.ack(first))
        await slow.asked.wait()
        closing = asyncio.create_task(owner.port.close())
        await asyncio.sleep(0)
        # A nack has a line, and so a connection, of its own.
        assert kinds(await other.settle(Settlement([], [Nack([second], 0)]))) == [LeaseLost]
        slow.go_on.set()
        assert await acking == [None]
        await closing

    async def test_the_socket_of_a_killed_one_refuses_and_is_cleared_away(self, replica: Make, tmp_path: Path) -> None:
        other = await replica()
        left = tmp_path / "peers" / f"{STRANGE}.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(left))
        assert kinds(await other.ack(token_of(STRANGE))) == [LeaseLost]
        third = await replica()
        assert not left.exists()
        assert await third.ack(await other.token()) == [None], "one that lives was cleared away too"

    async def test_one_that_never_was(self, replica: Make) -> None:
        assert kinds(await (await replica()).ack(token_of(STRANGE))) == [LeaseLost]

    async def test_one_that_is_another_by_now(self, replica: Make, tmp_path: Path) -> None:
        owner, other = await replica(), await replica()
        await owner.token()
        sockets = tmp_path / "peers"
        (sockets / f"{owner.gateway.incarnation}.sock").rename(sockets / f"{STRANGE}.sock")
        assert kinds(await other.ack(token_of(STRANGE))) == [LeaseLost]
        assert await owner.held() == 1

    async def test_one_with_another_key(self, replica: Make) -> None:
        owner = await replica(keys=[TokenKey("test", b"a key of which nobody else knows")])
        (error,) = await (await replica()).ack(await owner.token())
        assert type(error) is OwnerUnreachable
        assert "token_keys" in error.detail
        assert await owner.held() == 1

    async def test_one_that_signs_with_an_older_key(self, replica: Make) -> None:
        new = TokenKey("new", b"the gateways of a test get a new one")
        owner, other = await replica(keys=[new, *KEYS]), await replica(keys=KEYS)
        assert await other.ack(await owner.token()) == [None]


class TestSilence:
    """What is told when an owner that may live gives no answer."""

    async def test_no_answer_in_time(self, replica: Make, tmp_path: Path) -> None:
        other = await replica(answer_seconds=0.2)

        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with await talking(tmp_path / "peers" / f"{STRANGE}.sock", say):
            (error,) = await other.ack(token_of(STRANGE))
        assert type(error) is OutcomeUnknown
        assert error.broker == "memory"

    async def test_a_hang_up_after_the_request(self, replica: Make, tmp_path: Path) -> None:
        other = await replica()

        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")

        async with await talking(tmp_path / "peers" / f"{STRANGE}.sock", say):
            assert kinds(await other.ack(token_of(STRANGE))) == [OutcomeUnknown]

    @pytest.mark.parametrize(
        ("status", "told"), [(200, OutcomeUnknown), (500, OutcomeUnknown), (404, LeaseLost), (429, OwnerUnreachable)]
    )
    async def test_an_answer_without_signature(self, replica: Make, tmp_path: Path, status: int, told: type) -> None:
        other = await replica()

        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            body = b'[[[0,"ack",null,null]]]'
            # No stranger has a body unpacked here, whatever it says of it.
            head = b"HTTP/1.1 %d Any\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
            writer.write(head + body)
            await writer.drain()

        async with await talking(tmp_path / "peers" / f"{STRANGE}.sock", say):
            (error,) = await other.ack(token_of(STRANGE))
        assert type(error) is told
        assert not isinstance(error, OwnerUnreachable) or error.facts["is_refusal"]

    async def test_no_connection_in_time(self, replica: Make, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = Address(*full.getsockname())
            # The system completes one connection that nobody accepts; the next gets no answer.
            with contextlib.ExitStack() as stack:
                for _ in range(2):
                    waiting = stack.enter_context(socket.socket())
                    waiting.setblocking(False)
                    waiting.connect_ex(tuple(address))
                other = await replica(listen=Address("127.0.0.1", free_port()), places=[address])
                (error,) = await other.ack(token_of(STRANGE))
        assert type(error) is OwnerUnreachable
        assert error.retryable and not error.facts["is_refusal"]

    async def test_one_that_is_silent_does_not_hold_up_the_others(self, replica: Make, tmp_path: Path) -> None:
        owner, other = await replica(), await replica(answer_seconds=5)
        token, silent = await owner.token(), asyncio.Event()

        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await silent.wait()

        async with await talking(tmp_path / "peers" / f"{STRANGE}.sock", say):
            waiting = asyncio.create_task(other.ack(token_of(STRANGE)))
            assert await other.ack(token) == [None]
            assert not waiting.done()
            silent.set()
            assert kinds(await waiting) == [OutcomeUnknown]


class TestDirectory:
    async def test_a_long_path(self, replica: Make, tmp_path: Path) -> None:
        deep = tmp_path / ("d" * 100) / ("e" * 100)
        owner, other = await replica(deep), await replica(deep)
        assert await other.ack(await owner.token()) == [None]
        await owner.close()
        assert [path.suffix for path in deep.iterdir()] == [".sock"]

    async def test_only_its_owner_may_enter(self, replica: Make, tmp_path: Path) -> None:
        one = await replica()
        directory = tmp_path / "peers"
        place = directory / f"{one.gateway.incarnation}.sock"
        assert [path.stat().st_mode & 0o777 for path in (directory, place)] == [0o700, 0o600]

    async def test_one_that_cannot_be_made(self, replica: Make, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match=r"peers.directory: .*file/peers: Not a directory"):
            await replica(tmp_path / "file" / "peers")

    async def test_one_that_is_not_needed_is_done_without(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        alone = Replica(tmp_path / "file" / "peers")
        port = PeerPort(alone.gateway, alone.signer, alone.sockets, needs_directory=False)
        await port.open()
        assert "other gateways on this host" in caplog.text
        assert await alone.ack(await alone.token()) == [None]
        assert kinds(await alone.ack(token_of(STRANGE))) == [LeaseLost]
        await port.close()

    @pytest.mark.parametrize("name", ["../x", "FEEDFEEDFEEDFEED", "feed", "feedfeedfeedfeed.sock/../x"])
    def test_no_path_is_taken_from_a_name(self, tmp_path: Path, name: str) -> None:
        directory = SocketDirectory(tmp_path)
        directory.open()
        assert directory.find(name) is None
        directory.close()

    def test_nothing_stays_open(self, tmp_path: Path) -> None:
        directory = SocketDirectory(tmp_path / ("d" * 120))
        before = len(os.listdir("/proc/self/fd"))
        directory.open()
        assert len(os.listdir("/proc/self/fd")) == before + 1
        directory.close()
        assert len(os.listdir("/proc/self/fd")) == before
