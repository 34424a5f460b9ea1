"""Settles deliveries: writes acks or requeues, then waits for one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from babelgate.brokers.binding import Outcome
from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.rabbitmq.channel import ChannelGone
from babelgate.brokers.rabbitmq.channel_pool import ChannelPool, ReceivingChannel, by_generation
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown

_UNDER_WAY_SECONDS = 0.2
"""How long the broker may keep acks on a channel until the replicas of a quorum queue agree on earlier ones."""


class ChannelSettler:
    """Acks and releases deliveries on the channels of one connection."""

    def __init__(self, broker: str, channels: ChannelPool, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._broker = broker
        self._channels = channels
        self._timeout_seconds = timeout_seconds
        self._written_at = -_UNDER_WAY_SECONDS

    async def flush(self) -> None:
        """Wait at most 0.2 s until written acks have reached the queues: a quorum queue delays those past 32."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._written_at + _UNDER_WAY_SECONDS - loop.time()))

    async def ack(self, handles: Sequence[str]) -> list[Outcome]:
        """Ack; returns when the broker has read it. Idempotent. LeaseLost where the channel has ended.

        OutcomeUnknown where the channel ends between the write and the answer, or after ``timeout_seconds``.
        """
        return await self._settle(handles, give_back=False)

    async def release(self, handles: Sequence[str]) -> list[Outcome]:
        """Return messages to their places in the queue; LeaseLost for settled ones. Otherwise like :meth:`ack`."""
        return await self._settle(handles, give_back=True)

    def outstanding(self, handles: Sequence[str]) -> list[bool]:
        """Whether each can still be settled."""
        found = [False] * len(handles)
        for generation, settled in by_generation(handles).items():
            if (receiving := self._channels.of_generation(generation)) is not None:
                for position, tag in settled:
                    found[position] = receiving.state(tag) == "held"
        return found

    async def prove(self, handles: Sequence[str]) -> list[Outcome]:
        """None for each that can still be settled after an answer of the broker, LeaseLost for the others;
        BrokerUnavailable without an answer."""
        channels = [self._channels.of_generation(generation) for generation in by_generation(handles)]
        asked = [_unanswered(each, self._timeout_seconds) for each in channels if each is not None]
        reasons = [reason for reason in await asyncio.gather(*asked) if reason is not None]
        if reasons:
            return [BrokerUnavailable(self._broker, reasons[0])] * len(handles)
        return [None if is_out else LeaseLost() for is_out in self.outstanding(handles)]

    async def _settle(self, handles: Sequence[str], *, give_back: bool) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(handles)
        answers: list[tuple[list[int], ReceivingChannel]] = []
        for generation, settled in by_generation(handles).items():
            receiving = self._channels.of_generation(generation)
            states = {tag: "lost" if receiving is None else receiving.state(tag) for _, tag in settled}
            fresh = [tag for tag, state in states.items() if state == "held"]
            if receiving is not None and fresh and not _written(receiving, fresh, give_back):
                states = dict.fromkeys(states, "lost")
            # A repeated ack waits too: the first one may not have reached the broker yet.
            good = ("held",) if give_back else ("held", "acked")
            waiting = []
            for position, tag in settled:
                if states[tag] in good:
                    waiting.append(position)
                else:
                    outcomes[position] = LeaseLost()
            if receiving is not None and waiting:
                answers.append((waiting, receiving))
        if answers:
            self._written_at = asyncio.get_running_loop().time()
        asked = [_unanswered(receiving, self._timeout_seconds) for _, receiving in answers]
        # Mostly one, which needs no task.
        reasons = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
        for (positions, _), reason in zip(answers, reasons, strict=True):
            if reason is not None:
                for position in positions:
                    outcomes[position] = OutcomeUnknown(broker=self._broker, reason=reason)
        return outcomes


def _written(receiving: ReceivingChannel, tags: Sequence[int], give_back: bool) -> bool:
    try:
        if give_back:
            receiving.release(tags)
        else:
            receiving.ack(tags)
    except ChannelGone:
        return False
    return True


async def _unanswered(receiving: ReceivingChannel, seconds: float) -> str | None:
    """The reason why the broker may not have read what was written; None when it has read it."""
    try:
        async with asyncio.timeout(seconds):
            await receiving.channel.barrier()
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except ChannelGone as gone:
        return str(gone)
    return None
