"""The settings of the share group, which are looked at, and put right, before its first member joins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from msgspec import Struct

from app.brokers.kafka.errors import error_of, translate
from app.errors import BabelgateError, BrokerRejected, BrokerUnavailable

SHARE_GROUP = "babelqueue-share"
"""The share group of all gateways. It shares no offsets with the consumers of the SDKs, which are no share group."""

PREVIEW = (
    "Routes with consume: share use share groups of Kafka by a client that calls them a preview: they may change, and "
    "are not recommended for production."
)

_WANTED = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
"""By default a share group begins at the end of the log, so that what was published before is never delivered."""

_MISSING = (
    "the cluster has no share groups: they need Kafka 4.2 with the feature share.version 1, which kafka-features.sh "
    "upgrade --feature share.version=1 enables"
)

_LOCK = "share.record.lock.duration.ms"
_LIMIT = "share.delivery.count.limit"
_DEFAULT_LIMIT = 5


def failure_of(error: BaseException, broker: str) -> BabelgateError:
    """The error of a reserve whose member has failed with ``error``."""
    known = error_of(error)
    if known is not None and known.code() == KafkaError.UNSUPPORTED_VERSION:
        return BrokerRejected(broker, _MISSING)
    reason = f"the member of the share group has failed: {error if known is None else known.str()}"
    refused = isinstance(translate(error, broker, written=False), BrokerRejected)
    return BrokerRejected(broker, reason) if refused else BrokerUnavailable(broker, reason)


class ShareLimits(Struct, frozen=True):
    """``lock_seconds``: how long the broker locks a record. ``deliveries``: after so many it drops a record."""

    lock_seconds: float
    deliveries: int


class ShareGroupSettings:
    """Asks for the settings of the group. ``client``: the configuration of a client."""

    def __init__(self, broker: str, client: Mapping[str, Any], lock_seconds: float) -> None:
        self._broker = broker
        self._settings = dict(client) | {"log_level": 0}
        self._lock_seconds = lock_seconds

    async def limits(self, seconds: float) -> ShareLimits:
        """The limits, once the group begins at the start of the log. Raises BrokerRejected where it cannot be used."""
        return await asyncio.to_thread(self._ask, max(seconds, 0.1))

    def _ask(self, seconds: float) -> ShareLimits:
        admin = AdminClient(self._settings)
        group = ConfigResource(ConfigResource.Type.GROUP, SHARE_GROUP)
        try:
            asked = admin.describe_configs([group], request_timeout=seconds)[group]
            found = {name: entry.value for name, entry in asked.result(seconds).items()}
        except Exception as error:
            raise self._refusal(error, "cannot be read, which takes the right DescribeConfigs of the group") from None
        if _LOCK not in found:
            raise BrokerRejected(self._broker, _MISSING)
        lock = int(found[_LOCK]) / 1000
        if lock < self._lock_seconds:
            reason = (
                f"{_LOCK} of the group {SHARE_GROUP} is {lock:g} s, less than share_lock_seconds, which is "
                f"{self._lock_seconds:g}: change one of them"
            )
            raise BrokerRejected(self._broker, reason)
        wrong = {name: value for name, value in _WANTED.items() if found.get(name) != value}
        if wrong:
            entries: Any = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wrong.items()
            ]
            changed = ConfigResource(ConfigResource.Type.GROUP, SHARE_GROUP, incremental_configs=entries)
            try:
                admin.incremental_alter_configs([changed], request_timeout=seconds)[changed].result(seconds)
            except Exception as error:
                settings = " and ".join(f"{name}={value}" for name, value in wrong.items())
                what = f"need {settings}: set that, or give the gateway the right AlterConfigs of the group"
                raise self._refusal(error, what) from None
        return ShareLimits(lock, int(found.get(_LIMIT) or _DEFAULT_LIMIT))

    def _refusal(self, error: Exception, what: str) -> BabelgateError:
        """``error``, with the reason ``what`` where it is a refusal."""
        known = error if isinstance(error, KafkaException) else TimeoutError("no answer")
        refusal = translate(known, self._broker, written=False)
        if isinstance(refusal, BrokerRejected):
            return BrokerRejected(self._broker, f"settings of the group {SHARE_GROUP} {what} ({refusal.reason})")
        return refusal
