"""Topics as the landing place and the source of the journal: found by the scheme of their URL, as bindings are.

A message is a frame: whole records, compressed together, which every reader can read without any other message.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from babelgate.brokers.registry import SCHEMES
from babelgate.errors import ConfigError
from babelgate.extras import how_to_install
from babelgate.observe.journal.frames import Compression
from babelgate.observe.journal.stores import Store, store

_KEY = "journal.landing"


class TopicMessage(NamedTuple):
    """A message of a topic: its partition, its offset there, and its value."""

    partition: int
    offset: int
    value: bytes


class TopicBounds(Struct, frozen=True):
    """A topic as it is now: the ids of its cluster and of itself, and for each partition its first offset and its end.

    A topic that was deleted and created again has another ``topic_id``.
    """

    cluster_id: str
    topic_id: str
    firsts: list[int]
    ends: list[int]


class TopicSource(Protocol):
    """Reads a topic without a group. For one thread. Every call raises BrokerError, after 30 s without an answer."""

    topic: str

    def bounds(self) -> TopicBounds:
        """The topic as it is now."""

    def read(
        self, starts: Sequence[int], ends: Sequence[int], most: int, most_bytes: int
    ) -> tuple[list[TopicMessage], list[int]]:
        """Messages of each partition from ``starts`` on and before ``ends``, and the offsets after them.

        ``most`` messages of ``most_bytes`` together at most, but one at least. Raises MessagesGone if ``starts`` has an
        offset that the topic does not have any more.
        """

    def close(self) -> None:
        """Disconnect."""


class MessagesGone(Exception):
    """Messages were deleted before they were read."""


def is_topic(landing: str) -> bool:
    """Whether ``landing`` is the URL of a topic."""
    scheme, mark, _ = landing.partition("://")
    found = SCHEMES.get(scheme.lower())
    return bool(mark) and found is not None and found.kind == "kafka"


def landing_store(landing: str, compression: Compression) -> Store:
    """The store for ``landing``, a path, a URL of fsspec or of a topic; no I/O.

    Raises ConfigError naming ``journal.landing``.
    """
    if not is_topic(landing):
        return store(landing, compression)
    try:
        made: Store = _module(_KEY).TopicStore(landing, compression)
    except ConfigError as error:
        raise _named(error, _KEY) from None
    return made


def topic_source(url: str, options: Mapping[str, Any], key: str) -> TopicSource:
    """A reader of the topic at ``url``; no I/O. ``options``: as in the URL's query. Raises ConfigError, which names
    ``key``."""
    try:
        made: TopicSource = _module(key).TopicReader(url, options)
    except ConfigError as error:
        raise _named(error, key) from None
    return made


def _named(error: ConfigError, key: str) -> ConfigError:
    """The error of an option, as one of ``key``."""
    named = str(error.key)
    if named == key:
        return error
    reason = error.reason if named == "url" else f"{named}: {error.reason}"
    return ConfigError(**error.facts | {"key": key, "reason": reason})


def _module(key: str) -> Any:
    try:
        return importlib.import_module("babelgate.brokers.kafka.topics")
    except ImportError as error:
        if (error.name or "").startswith("babelgate."):
            raise
        reason = f"the client of Kafka is not installed: {how_to_install('kafka')}"
        raise ConfigError(key=key, reason=reason, extra="kafka") from None
