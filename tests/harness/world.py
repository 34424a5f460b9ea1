"""Gateways over one broker, each with a binding of its own, like processes on several hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from babelgate.brokers.binding import Binding, QueueStats
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.idempotency_store import Terms
from babelgate.clock import Clock, now_ms
from babelgate.cluster.peers import Peers
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.idempotency import OWN, KeyPolicy
from babelgate.gateway.model import (
    DeadLetter,
    DeadLetterFilter,
    Extend,
    LetterEdit,
    Message,
    Nack,
    Receipt,
    RedrivenLetter,
    RedriveResult,
    Reject,
    Settlement,
)
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.redrive import RedriveOrder
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.observe.events import Event
from babelgate.server.peer_port import PeerPort
from tests.harness.broker import Broker
from tests.harness.observed import events_into

JOB = "urn:babel:test:made"
KEYS = [TokenKey("test", b"the gateways of a test share a key")]
SIGNER = Signer(KEYS, now_ms)
ORDINARY = Policy()
ORDINARY_TERMS = Terms()
PATIENCE = 60.0
"""Seconds that a receive waits for a message that must come. The API allows 30, which a busy machine may exceed."""

LIMIT_SECONDS = 120.0
"""Seconds after which a test fails whose condition has not become true."""

Wrap = Callable[[Binding], Binding]


def draft(data: Any, **members: Any) -> bytes:
    """The body of a publish: a draft."""
    return json.dumps({"job": JOB, "data": data} | members, ensure_ascii=False).encode()


def data(message: Message) -> Any:
    """The payload of a received message."""
    return json.loads(message.body)["data"]


PATIENT = {"timeout_seconds": 30}
"""Options of a broker: a busy machine is no hung broker."""


class Process:
    """One gateway that its peers find in ``directory``, with short methods for a client of ``queue``."""

    def __init__(self, queue: str, make: Callable[[Process], Gateway], directory: Path = Path()) -> None:
        self.queue = queue
        self.events: list[Event] = []
        self._directory = directory
        self._make = make
        self._join()

    def _join(self) -> None:
        sockets = SocketDirectory(self._directory)
        self.peers = Peers(SIGNER, sockets)
        self.gateway = self._make(self)
        self.port = PeerPort(self.gateway, SIGNER, sockets)

    @property
    def capabilities(self) -> BrokerCapabilities:
        """What the broker can do for the queue."""
        return self.gateway.router.route(self.queue).capabilities

    def in_order(self, values: Iterable[int]) -> list[int]:
        """``values`` as they came; sorted where the broker keeps no order."""
        return sorted(values) if self.capabilities.ordering == "none" else list(values)

    async def start(self) -> None:
        await self.gateway.start()
        await self.port.open()

    async def close(self) -> None:
        """End in good order; idempotent."""
        await self.port.close()
        await self.gateway.close()
        await self.peers.close()

    async def reopen(self) -> None:
        """End, and start again, as another incarnation."""
        await self.close()
        self._join()
        await self.start()

    async def publish(self, data: Any = None, **how: Any) -> Receipt:
        return await self.gateway.publish(ANYONE, self.queue, draft({} if data is None else data), **how)

    async def publish_body(self, body: bytes) -> Receipt:
        return await self.gateway.publish(ANYONE, self.queue, body)

    async def publish_all(self, values: Sequence[Any]) -> list[Receipt]:
        """Publish a message for each; fails unless all were accepted."""
        results = await self.gateway.publish_many(ANYONE, self.queue, [draft(value) for value in values])
        receipts = [result for result in results if isinstance(result, Receipt)]
        assert len(receipts) == len(values), results
        return receipts

    async def receive(self, max_messages: int = 1, wait: float = 0, lease: float | None = None) -> list[Message]:
        return await self.gateway.receive(
            ANYONE, self.queue, max_messages=max_messages, wait_seconds=wait, lease_seconds=lease
        )

    async def one(self, lease: float | None = None) -> Message:
        """Receive one message; fails if none comes."""
        (message,) = await self.take(1, lease)
        return message

    async def ready(self, max_messages: int, wait: float = 0, lease: float | None = None) -> list[Message]:
        """The messages of a receive that the broker has answered; none if it has none.

        A receive ends a second after its wait. A busy machine may keep a broker from answering by then, so that
        BrokerUnavailable is followed by another receive, for at most LIMIT_SECONDS.
        """
        limit = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                return await self.receive(max_messages, wait, lease)
            except BrokerUnavailable:
                if time.monotonic() > limit:
                    raise
                await asyncio.sleep(0.05)

    async def take(self, count: int, lease: float | None = None) -> list[Message]:
        """Receive ``count`` messages, in their order; fails if fewer come."""
        taken: list[Message] = []
        while len(taken) < count:
            messages = await self.ready(min(count - len(taken), 100), PATIENCE, lease)
            assert messages, f"{len(taken)} of {count} messages came"
            taken += messages
        return taken

    def waiting(self, max_messages: int = 1, lease: float | None = None) -> asyncio.Task[list[Message]]:
        """A receive that waits."""
        return asyncio.create_task(self.ready(max_messages, PATIENCE, lease))

    async def settle(self, settlement: Settlement) -> list[BabelgateError | None]:
        return [result.error for result in await self.gateway.settle(ANYONE, self.queue, settlement)]

    async def ack(self, *messages: Message) -> list[BabelgateError | None]:
        return await self.settle(Settlement(acks=tokens(messages)))

    async def nack(self, *messages: Message, delay: float | None = 0, **why: Any) -> list[BabelgateError | None]:
        return await self.settle(Settlement(nacks=[Nack(tokens(messages), delay, **why)]))

    async def reject(self, *messages: Message, **why: Any) -> list[BabelgateError | None]:
        return await self.settle(Settlement(rejects=[Reject(tokens(messages), **why)]))

    async def extend(self, *messages: Message, lease: float) -> list[BabelgateError | None]:
        return await self.settle(Settlement(extends=[Extend(tokens(messages), lease)]))

    async def stats(self) -> QueueStats:
        return (await self.gateway.overview.queue(ANYONE, self.queue)).stats

    async def dead(self, **where: Any) -> list[DeadLetter]:
        return (await self.gateway.letters.page(ANYONE, self.queue, DeadLetterFilter(**where), 100, None))[0]

    async def redrive(
        self,
        limit: int | None = None,
        to_queue: str | None = None,
        dry_run: bool = False,
        force: bool = False,
        ids: Collection[str] | None = None,
        per_second: float | None = None,
        **where: Any,
    ) -> RedriveResult:
        chosen = None if ids is None else frozenset(ids)
        order = RedriveOrder(DeadLetterFilter(**where), chosen, limit, force, per_second, dry_run)
        return await self.gateway.letters.redrive(ANYONE, self.queue, order, to_queue, None)

    async def redrive_one(
        self,
        letter_id: str,
        to_queue: str | None = None,
        force: bool = False,
        data: bytes | None = None,
        body: bytes | None = None,
    ) -> RedrivenLetter:
        """Redrive one dead letter, with ``data`` or ``body`` as its edit."""
        made = None if data is body is None else LetterEdit(data, body)
        return await self.gateway.letters.redrive_one(ANYONE, self.queue, letter_id, to_queue, made, force, None)

    async def is_empty(self) -> bool:
        """Whether nothing is ready, leased or delayed, as far as the broker can tell. It may tell of a delayed message
        for a moment after that was received: that is waited for."""

        async def none_is_delayed() -> bool:
            return not (await self.stats()).delayed

        await until(none_is_delayed)
        stats = await self.stats()
        return not (stats.depth or stats.in_flight or stats.delayed) and not await self.ready(1)


class World:
    """All the processes of a test, on one broker and one queue."""

    def __init__(self, broker: Broker, queue: str, store: Broker | None = None) -> None:
        """``store``: another broker, that keeps the idempotency keys."""
        self.broker = broker
        self.store = store
        self.queue = queue
        self._processes: list[Process] = []
        self._directory = TemporaryDirectory(prefix="peers-")

    async def process(
        self,
        *,
        start: bool = True,
        queue: str | None = None,
        policy: Policy = ORDINARY,
        queue_options: Mapping[str, Any] | None = None,
        broker_options: Mapping[str, Any] | None = None,
        wrap: Wrap = lambda binding: binding,
        terms: Terms = ORDINARY_TERMS,
        clock: Clock = now_ms,
    ) -> Process:
        """A new process. ``wrap`` may replace the binding, for example by one with faults. ``clock``: of the wall."""
        options = self.broker.queue_options if queue_options is None else queue_options

        def make(process: Process) -> Gateway:
            binding = wrap(self.broker.connect(PATIENT | dict(broker_options or {}), clock))
            router = Router([], Rule("*", binding, policy, options=options))
            bindings = {binding.name: binding}
            if self.store is not None:
                bindings[self.store.name] = self.store.connect(None if broker_options is None else self.store.impatient)
            return Gateway(
                bindings,
                router,
                TokenSealer(KEYS),
                clock=clock,
                idempotency=KeyPolicy(OWN if self.store is None else self.store.name, terms),
                observe=events_into(process.events),
                forwarder=process.peers,
                jobs_directory=Path(self._directory.name) / "redrives",
                rate_limits=None if policy.limits is None else RateLimits(router),
            )

        process = Process(queue or self.queue, make, Path(self._directory.name))
        self._processes.append(process)
        if start:
            await process.start()
        return process

    async def restart(self) -> None:
        """Restart the broker in good order; restart the gateways if it is embedded in them."""
        await self.broker.restart()
        if self.broker.embedded:
            for process in self._processes:
                await process.reopen()

    async def close(self) -> None:
        await asyncio.gather(*(process.close() for process in self._processes))
        self._directory.cleanup()


def tokens(messages: Sequence[Message]) -> list[str]:
    return [message.ack_token for message in messages]


def kinds(outcomes: Sequence[int | BabelgateError | None]) -> list[type | None]:
    """The classes of the errors, None where there is none."""
    return [type(outcome) if outcome is not None else None for outcome in outcomes]


async def until(condition: Callable[[], Any]) -> None:
    """Wait until an awaited ``condition()`` is true; fails after LIMIT_SECONDS. BrokerUnavailable is: not yet."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            with contextlib.suppress(BrokerUnavailable):
                if await condition():
                    return
            await asyncio.sleep(0.02)
