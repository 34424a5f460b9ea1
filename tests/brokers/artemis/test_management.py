"""Answers of the management API of a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from babelgate.brokers.artemis.client import ArtemisClient
from babelgate.brokers.artemis.management import ArtemisManagement
from babelgate.brokers.artemis.url import settings_of
from babelgate.brokers.binding import DeliveryLimit
from babelgate.brokers.connect import ConnectPause


class Answering(ArtemisManagement):
    """Has the ``answers`` of a broker, by the name of an operation or attribute; null to all else."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(ArtemisClient("artemis", settings_of("artemis://one", {}), 1, ConnectPause()))
        self._answers = answers

    async def _call(self, resource: str, body: str, *, writes: bool = False, **properties: str) -> tuple[bool, Any]:
        (name,) = properties.values()
        return True, self._answers.get(name)


@pytest.mark.parametrize(
    ("properties", "warned"),
    [
        ({"amqpMinLargeMessageSize": None}, False),
        (None, False),
        ({"amqpMinLargeMessageSize": "-1"}, False),
        ({"amqpMinLargeMessageSize": "65536"}, False),
        ({"amqpMinLargeMessageSize": "1024"}, True),
    ],
)
async def test_the_least_large_message_of_an_acceptor(properties: object, warned: bool) -> None:
    acceptors = json.dumps([{"name": "amqp", "extraProps": properties}])
    found = await Answering(getAcceptorsAsJSON=acceptors, persistenceEnabled=True, maxDiskUsage=90).broker_warnings()
    assert ["messages of 1024 bytes" in text for text in found] == [True] * warned


_SETTINGS = (
    "maxDeliveryAttempts",
    "deadLetterAddress",
    "defaultRingSize",
    "defaultLastValueQueue",
    "defaultPurgeOnNoConsumers",
    "addressFullMessagePolicy",
    "expiryDelay",
    "maxExpiryDelay",
    "minExpiryDelay",
    "noExpiry",
    "expiryAddress",
)


async def test_a_setting_that_is_null_is_not_set() -> None:
    unset, null = (Answering(getAddressSettingsAsJSON=json.dumps(found)) for found in ({}, dict.fromkeys(_SETTINGS)))
    assert await null.queue_warnings("q") == await unset.queue_warnings("q") == []
    limit = await null.delivery_limit("q")
    assert limit == await unset.delivery_limit("q")
    assert isinstance(limit, DeliveryLimit) and limit.deliveries == 10
