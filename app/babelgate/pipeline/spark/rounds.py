"""Counts the rounds of a stream in which there was nothing new."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Rounds(StreamingQueryListener):
    def __init__(self, done: threading.Event) -> None:
        self._done = done

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Does nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A round has read something, or it is the first."""
        self._done.set()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Rounds have found nothing new. Spark reports this every ten seconds."""
        self._done.set()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Does nothing."""


@contextmanager
def rounds_done(spark: SparkSession) -> Iterator[threading.Event]:
    """An event that is set after rounds of streams of the session, during the block. Whoever reads it clears it."""
    done = threading.Event()
    listener = _Rounds(done)
    spark.streams.addListener(listener)
    try:
        yield done
    finally:
        # If Java has ended, so has its list of listeners.
        with suppress(Py4JError, OSError):
            spark.streams.removeListener(listener)
