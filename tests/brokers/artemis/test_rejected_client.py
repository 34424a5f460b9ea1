"""Why Artemis is driven by proton's C engine, with barriers and messages of our own
(docs/adr/0023-artemis-by-the-engine.md): what the library's classes and the broker do. If one of these fails, read the
decision again."""

from __future__ import annotations

import asyncio
from typing import Any

from proton import Delivery, Link, Message
from proton.reactor import LinkOption

from tests.brokers.artemis.harness import client, send
from tests.brokers.artemis.server import ArtemisServer

_LONG_ULONG = b"\x80\x00\x00\x00\x00\x00\x00\x00\x05"
_SHORT_ULONG = b"\x53\x05"


class _Second(LinkOption):
    """Asks the broker to answer the outcomes that the receiver gives."""

    def apply(self, link: Any) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


def test_proton_encodes_numbers_anew() -> None:
    """So a message that is read and written by its class is not the same to the byte."""
    entry = b"\xa1\x01n" + _LONG_ULONG
    section = b"\x00\x53\x74\xd1" + (len(entry) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + entry
    message = Message()
    message.decode(section + b"\x00\x53\x75\xa0\x01x")
    encoded = message.encode()
    assert _SHORT_ULONG in encoded and _LONG_ULONG not in encoded


async def test_artemis_answers_no_outcome(artemis: ArtemisServer, queue: str) -> None:
    def mode() -> int:
        with client(artemis.port) as connection:
            receiver = connection.create_receiver(queue, credit=0, options=_Second())
            return receiver.link.remote_rcv_settle_mode

    assert await asyncio.to_thread(mode) == Link.RCV_FIRST


async def test_artemis_counts_no_failure_of_a_large_message(artemis: ArtemisServer, queue: str) -> None:
    def counts(size: int) -> list[int]:
        """The delivery counts of a message that fails twice."""
        send(artemis.port, queue, Message(body=b"x" * size, durable=True))
        found = []
        with client(artemis.port) as connection:
            receiver = connection.create_receiver(queue, credit=1)
            for _ in range(3):
                found.append(receiver.receive(timeout=60).delivery_count)
                if len(found) < 3:
                    receiver.fetcher.unsettled[0].local.failed = True  # type: ignore[union-attr]
                    receiver.settle(Delivery.MODIFIED)
                    receiver.flow(1)
            receiver.accept()
        return found

    assert await asyncio.to_thread(counts, 1_000) == [0, 1, 2]
    assert await asyncio.to_thread(counts, 300_000) == [0, 0, 0]
