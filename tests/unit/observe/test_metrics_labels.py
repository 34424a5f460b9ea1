"""The workers of a gateway choose the same queues for the labels of their metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from babelgate.observe.events import Event
from babelgate.observe.metrics.catalogue import OTHER, PUBLISHED
from babelgate.observe.metrics.instruments import merged
from babelgate.observe.metrics.labels import MAX_QUEUES, QueueLabels
from babelgate.observe.metrics.recorder import Metrics

QUEUES = [f"q{number}" for number in range(MAX_QUEUES + 200)]


def test_the_sum_of_workers_has_the_whole_count_of_each_queue_with_a_label(tmp_path: Path) -> None:
    """Each worker sees the queues in another order, so that each alone would choose others."""
    workers = [Metrics(labels=QueueLabels(tmp_path / "labels")) for _ in range(3)]
    orders = QUEUES, QUEUES[::-1], QUEUES[600:] + QUEUES[:600]
    for place in range(len(QUEUES)):
        for worker, order in zip(workers, orders, strict=True):
            worker.observe(Event("accepted", order[place], "b", 1))
    published = merged(worker.snapshot() for worker in workers)[PUBLISHED.otel]
    labelled = {labels[0]: count for labels, count in published.items() if labels[0] != OTHER}
    assert len(labelled) == MAX_QUEUES
    assert set(labelled.values()) == {3.0}
    assert published[OTHER, "b"] == 3.0 * (len(QUEUES) - MAX_QUEUES)
    assert {frozenset(worker.queues) for worker in workers} == {frozenset(labelled)}


def test_a_worker_shows_the_queues_that_only_others_have_seen(tmp_path: Path) -> None:
    one, other = (Metrics(labels=QueueLabels(tmp_path / "labels")) for _ in range(2))
    one.register("seen", "b")
    assert list(other.queues) == ["seen"]
    assert other.label("seen") == "seen"


def test_a_worker_that_starts_later_takes_the_choice_over(tmp_path: Path) -> None:
    first = QueueLabels(tmp_path / "labels")
    assert all(first.choose(queue) for queue in QUEUES[:MAX_QUEUES])
    later = QueueLabels(tmp_path / "labels")
    assert not later.choose("new")
    assert later.choose(QUEUES[0])


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path: Path) -> None:
    labels = QueueLabels(tmp_path / "labels")
    (tmp_path / "labels").write_bytes(b"whole\nha")
    labels.refresh()
    assert list(labels.chosen) == ["whole"]
    (tmp_path / "labels").write_bytes(b"whole\nhalf\n")
    labels.refresh()
    assert list(labels.chosen) == ["whole", "half"]


def test_without_the_file_a_queue_has_no_label(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = QueueLabels(tmp_path / "gone" / "labels")
    assert not labels.choose("a")
    assert not labels.choose("b")
    assert len(caplog.records) == 1
