"""Warns of settings of topics with which Kafka loses records that it has confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from babelgate.brokers.kafka.admin import KafkaAdmin, deletes, kept_ms
from babelgate.brokers.kafka.options import KafkaQueue


async def queue_warnings(admin: KafkaAdmin, queue: KafkaQueue, kept_seconds: float) -> list[str]:
    """Sentences about the topic of ``queue``, its retry tiers and its dead letters, as far as they exist and their
    settings may be read. The publishes that follow use what was read, too."""
    names = queue.name, *queue.tiers, queue.dead
    admin.forget(queue.name)
    settings = await admin.settings_of(*names)
    found: list[str] = []
    if queue.name in settings:
        found += _of_replicas(queue.name, await admin.copies(queue.name), settings[queue.name])
    for name in names:
        if name in settings:
            found += _of_retention(name, settings[name], kept_seconds)
    return found


def _of_replicas(name: str, copies: int, settings: Mapping[str, str]) -> Iterator[str]:
    if copies == 1:
        yield f"The topic {name} has one replica: the loss of one broker loses its messages."
    elif settings.get("min.insync.replicas") == "1":
        yield f"The topic {name} has min.insync.replicas=1: a message may be confirmed by one broker alone."
    if "compact" in settings.get("cleanup.policy", ""):
        yield f"The topic {name} is compacted: a message replaces the ones before with its key."


def _of_retention(name: str, settings: Mapping[str, str], kept_seconds: float) -> Iterator[str]:
    kept = kept_ms(settings)
    if kept is not None and kept < kept_seconds * 1000:
        yield (
            f"The topic {name} deletes messages after {kept / 1000:g} s (retention.ms), consumed or not: "
            f"they may have to wait there for {kept_seconds:g} s."
        )
    size = int(settings.get("retention.bytes", -1))
    if size >= 0 and deletes(settings):
        yield f"The topic {name} deletes its oldest messages beyond {size} bytes (retention.bytes), consumed or not."
