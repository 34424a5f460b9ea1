"""The job ``ingest`` on a topic. Each batch commits its rows together with the offsets behind its messages."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import click
from msgspec import Struct

from babelgate.brokers.landing import MessagesGone, TopicBounds, TopicSource, topic_source
from babelgate.errors import BrokerError, ConfigError
from babelgate.masking import mask_url
from babelgate.pipeline.continuous import Continuous
from babelgate.pipeline.errors import ExtraMissing, Hopeless, JobFailed
from babelgate.pipeline.journal.commits import IngestedState, TopicPosition
from babelgate.pipeline.journal.ingest import IngestJob, facts_of, finish
from babelgate.pipeline.journal.ingest_batch import Totals
from babelgate.pipeline.journal.reader import gaps, snapshot
from babelgate.pipeline.spark.console import say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, run_id, unchanged
from babelgate.pipeline.storage.input_files import LITTLE_BYTES
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.nothing_new import done_under_lock, without_spark
from babelgate.pipeline.storage.schemas import JOURNAL_GAPS

_BATCH_BYTES = 16 * 1024 * 1024
"""Of the messages of a batch, which the driver holds and sends to the executors: some 500,000 records."""
_MESSAGE_BYTES = 16 * 1024
"""Of a message, about: 256 KiB of records, compressed."""


class Lost(Hopeless):
    """Messages were deleted before they were read."""


class TopicOptions(Struct, frozen=True):
    """``url``: of the topic. ``password``: instead of one in the URL. ``most``: messages of a batch. ``skip_lost``: go
    on where the topic begins, if it lost messages that were not read."""

    url: str
    password: str | None
    most: int
    skip_lost: bool


def ingest_topic(
    launch: Launch,
    asked: TopicOptions,
    output: str,
    every: Continuous | None = None,
    committed: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """Run the job and print its result. Returns the facts of the summary.

    ``every``: of an endless run; None: read the messages there are and end. ``committed``: called in an endless run
    before its first round, and after each batch. Raises UsageError for a URL that cannot work, ExtraMissing without the
    client, JobFailed.
    """
    began = time.monotonic()
    try:
        source = topic_source(asked.url, {} if asked.password is None else {"password": asked.password}, "LANDING")
    except ConfigError as error:
        if "extra" in error.facts:
            raise ExtraMissing(error.reason) from error
        raise click.UsageError(str(error)) from error
    with closing(source):
        bounds = None if every is not None else _bounds(source)
        known = None
        if bounds is not None:
            known = without_spark(output, partial(_read_already, topic=source.topic, bounds=bounds))
        if known is not None:
            say("ingest: nothing new has landed")
            return finish(launch, began, facts_of(mask_url(asked.url), output, Totals(), known))
        short = bounds is not None and sum(bounds.ends) - sum(bounds.firsts) <= LITTLE_BYTES // _MESSAGE_BYTES
        with launch.spark("ingest", short=short) as spark:
            store = DatasetStore(spark, output)
            with exclusive_lock(store.files, store.lock("ingest"), "ingest"):
                job = _TopicJob(store, source, asked, committed)
                facts = job.run(every)
    return finish(launch, began, facts)


def _bounds(source: TopicSource) -> TopicBounds:
    try:
        return source.bounds()
    except BrokerError as error:
        raise JobFailed(str(error)) from error


def _read_already(reader: DatasetReader, topic: str, bounds: TopicBounds) -> IngestedState | None:
    """What the journal has, if every message was read; None otherwise."""

    def read(reader: DatasetReader) -> IngestedState | None:
        known = snapshot(reader).known()
        if unchanged(reader.root, [JOURNAL_GAPS.name], run_id("gaps", list(gaps(known)), {})) is None:
            return None
        before = known.topics.get((bounds.cluster_id, topic))
        is_read = before is not None and (before.topic_id, before.offsets) == (bounds.topic_id, bounds.ends)
        return known if is_read else None

    return done_under_lock(reader, "ingest", read, lambda _, known: known)


class _TopicJob(IngestJob):
    def __init__(
        self, store: DatasetStore, source: TopicSource, asked: TopicOptions, committed: Callable[[], object] | None
    ) -> None:
        super().__init__(store, mask_url(asked.url), committed)
        self._source = source
        self._most = asked.most
        self._skips_lost = asked.skip_lost

    def _check_places(self) -> None:
        """Raise JobFailed if the lake is gone."""
        if not self._store.files.exists(self._store.lock("ingest")):
            raise JobFailed(f"{self._store.root} is gone")

    def _read(self, is_stopping: Callable[[], bool]) -> bool:
        """Read from the committed offsets to the present end of the topic. Returns whether it was reached."""
        self._catch_up()
        topic, bounds = self._source.topic, _bounds(self._source)
        while True:
            before = self._ingest.known.topics.get((bounds.cluster_id, topic))
            position = next_position(before, bounds, topic, skips_lost=self._skips_lost)
            if position == before and position.offsets == bounds.ends:
                return True
            if is_stopping():
                return False
            try:
                found, after = self._source.read(position.offsets, bounds.ends, self._most, _BATCH_BYTES)
            except MessagesGone:
                bounds = _bounds(self._source)
                continue
            except BrokerError as error:
                raise JobFailed(str(error)) from error
            messages = {f"topic:{topic}/{each.partition}/{each.offset}": each.value for each in found}
            name = hashlib.sha256(repr((position, after)).encode()).hexdigest()[:12]
            reached = TopicPosition(bounds.cluster_id, topic, bounds.topic_id, after)
            made = self._ingest.messages(f"topic-{name}-{time.time_ns()}", messages, reached)
            self._skips_lost = False
            if self._service is not None:
                self._batch_done(self._service, f"of {len(found)} messages", made)


def next_position(
    before: TopicPosition | None, bounds: TopicBounds, topic: str, *, skips_lost: bool = False
) -> TopicPosition:
    """Where the next batch begins, if the last one ended at ``before``; None: there is none.

    Raises Lost if the topic does not have the messages there any more, unless it ``skips_lost``.
    """
    if before is None:
        return TopicPosition(bounds.cluster_id, topic, bounds.topic_id, list(bounds.firsts))
    count = len(bounds.ends)
    wanted = [*before.offsets, *[0] * (count - len(before.offsets))][:count]
    lost = [
        f"partition {number} lacks the offsets {start} to {first - 1}"
        if start < first
        else f"partition {number} ends at the offset {end}, before {start}, up to which it was read"
        for number, (start, first, end) in enumerate(zip(wanted, bounds.firsts, bounds.ends, strict=True))
        if not first <= start <= end
    ]
    if before.topic_id != bounds.topic_id or len(before.offsets) > count:
        wanted = [0] * count
        lost = ["it was deleted and created again, and what the former one had behind the read offsets is lost"]
    if lost and not skips_lost:
        raise Lost(
            f"The topic {topic} has lost messages that were not read: {'; '.join(lost)}. Their records are lost. "
            "To go on with what there is: --skip-lost. journal_gaps then says which records are missing."
        )
    within = zip(wanted, bounds.firsts, bounds.ends, strict=True)
    offsets = [min(max(start, first), end) for start, first, end in within]
    return TopicPosition(bounds.cluster_id, topic, bounds.topic_id, offsets)
