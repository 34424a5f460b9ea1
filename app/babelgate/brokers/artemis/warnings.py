"""Warns of settings with which the broker drops messages that it has accepted, or does not count their attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from babelgate.brokers.artemis.links import LARGE_BYTES
from babelgate.brokers.artemis.management import ArtemisManagement

_FULL = {
    "addressFullMessagePolicy": "address-full-policy",
    "pageFullMessagePolicy": "page-full-policy",
    "diskFullMessagePolicy": "disk-full-policy",
}
"""What becomes of a message for which there is no room, by the name in the API and in broker.xml."""

_EXPIRY = {
    "expiryDelay": "expiry-delay",
    "maxExpiryDelay": "max-expiry-delay",
    "minExpiryDelay": "min-expiry-delay",
}
"""The delays in milliseconds, of which the first one that is set holds for messages without an expiry:
https://activemq.apache.org/components/artemis/documentation/latest/message-expiry.html"""

_WHOLE_DISK = 100
"""``max-disk-usage`` in percent; -1 is no limit, either.
https://activemq.apache.org/components/artemis/documentation/latest/paging.html#max-disk-usage"""


async def broker_warnings(broker: str, management: ArtemisManagement) -> list[str]:
    """Sentences about the broker; empty where it may not be asked."""
    is_persistent, smallest, usage = await asyncio.gather(
        management.is_persistent(), management.smallest_large(), management.max_disk_usage()
    )
    found = []
    if is_persistent is False:
        found.append(f"The broker {broker!r} has persistence-enabled false: messages are lost when it stops.")
    if usage is not None and not 0 <= usage < _WHOLE_DISK:
        found.append(
            f"The broker {broker!r} takes messages until its disk is full (max-disk-usage {usage}), and then stops."
        )
    if smallest is not None and smallest < LARGE_BYTES:
        found.append(
            f"The broker {broker!r} does not count the failed attempts of messages of {smallest} bytes and more "
            f"(amqpMinLargeMessageSize of an acceptor). Below {LARGE_BYTES} bytes they never reach max_attempts: set "
            f"amqpMinLargeMessageSize to at least {LARGE_BYTES}."
        )
    return found


async def queue_warnings(management: ArtemisManagement, queue: str) -> list[str]:
    """Sentences about ``queue`` and its address; empty where the broker may not be asked."""
    settings, ring, last_value, purges = await asyncio.gather(
        management.address_settings(queue),
        *(management.attribute(queue, name) for name in ("ringSize", "lastValue", "purgeOnNoConsumers")),
    )
    if settings is None:
        return []
    found = _of_address(queue, settings)
    # A queue that does not exist yet will have the defaults of its address.
    ring = settings.get("defaultRingSize", -1) if ring is None else ring
    if ring >= 0:
        found.append(f"The queue {queue} drops its oldest messages beyond {ring} (ring-size).")
    if settings.get("defaultLastValueQueue") if last_value is None else last_value:
        found.append(f"The queue {queue} keeps only the last message of each last-value key.")
    if settings.get("defaultPurgeOnNoConsumers") if purges is None else purges:
        found.append(f"The queue {queue} drops its messages when no consumer is connected (purge-on-no-consumers).")
    return found


def _of_address(queue: str, settings: Mapping[str, Any]) -> list[str]:
    found = [
        f"The address {queue} drops new messages when it is full, and confirms them ({name} DROP)."
        for key, name in _FULL.items()
        if settings.get(key) == "DROP"
    ]
    delays = ((name, settings.get(key, -1)) for key, name in _EXPIRY.items())
    expiry = next(((name, delay) for name, delay in delays if delay >= 0), None)
    if expiry is not None and not settings.get("noExpiry"):
        target = settings.get("expiryAddress")
        fate = f"moves to {target}" if target else "drops"
        found.append(f"The address {queue} {fate} messages that are older than {expiry[1] / 1000:g} s ({expiry[0]}).")
    return found
