"""What ends an endless run, and what does not. Spark itself is a stand-in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from babelgate.pipeline.continuous import Continuous, Service
from babelgate.pipeline.errors import JobFailed, SparkEnded
from babelgate.pipeline.journal import ingest
from babelgate.pipeline.spark import session
from babelgate.pipeline.spark.launch import Launch


class StandIn:
    """A session whose context can be stopped."""

    def __init__(self) -> None:
        self.is_stopped = False
        java = SimpleNamespace(isStopped=lambda: self.is_stopped)
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java))


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()

    @contextmanager
    def started(*_: Any, **options: Any) -> Iterator[StandIn]:
        yield made

    monkeypatch.setattr(session, "session", started)
    return made


class Serving:
    """The stream of ``ingest``, each of whose attempts does one of ``attempts``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spark: StandIn, *attempts: Exception | None) -> None:
        self._stop = threading.Event()
        self.said: list[str] = []
        self._left = list(attempts)
        monkeypatch.setattr(ingest, "BatchWriter", lambda _: SimpleNamespace(totals=None, known=None))
        store: Any = SimpleNamespace(spark=spark)
        self._job = ingest._FolderJob(store, store, "landing", "checkpoint", 1, None)
        for name in ("_check_places", "_follow", "reread_damaged"):
            monkeypatch.setattr(self._job, name, lambda: None)
        monkeypatch.setattr(self._job, "_stream", self._attempt)
        self._service = Service("ingest", Continuous(0.01), self._stop)
        monkeypatch.setattr(self._service, "wait_after", self.said.append)

    def _attempt(self, *_: Any) -> bool:
        error = self._left.pop(0)
        if error is not None:
            raise error
        self._stop.set()
        return True

    def __call__(self) -> None:
        self._job.serve(self._service)


def test_a_spark_that_has_stopped_is_not_used_again(spark: StandIn) -> None:
    log: list[str] = []
    with pytest.raises(JobFailed) as failed, Launch(None, {}, None, False).kept() as kept:
        with kept.spark("metrics"):
            log.append("used")
        spark.is_stopped = True
        with kept.spark("metrics"):
            log.append("used")
    assert log == ["used"]
    told, _, path = failed.value.message.partition(". What Spark wrote is in ")
    assert told == "Spark has stopped, and its jobs with it"
    Path(path.rstrip(".")).unlink()


def test_ingest_ends_with_a_spark_that_has_stopped(monkeypatch: pytest.MonkeyPatch, spark: StandIn) -> None:
    spark.is_stopped = True
    with pytest.raises(SparkEnded):
        Serving(monkeypatch, spark, JobFailed("a call of a stopped context"))()


def test_ingest_goes_on_after_errors_of_the_job_and_of_a_disk(monkeypatch: pytest.MonkeyPatch, spark: StandIn) -> None:
    serving = Serving(monkeypatch, spark, OSError(28, "No space left on device"), JobFailed("gone"), None)
    serving()
    assert serving.said == ["[Errno 28] No space left on device", "gone"]


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), KeyError("a defect")])
def test_ingest_ends_with_java_and_by_a_defect(
    monkeypatch: pytest.MonkeyPatch, spark: StandIn, error: Exception
) -> None:
    with pytest.raises(type(error)):
        Serving(monkeypatch, spark, error)()


def test_a_file_that_cannot_be_touched_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = Service("ingest", Continuous(0.01, tmp_path / "gone" / "alive"), threading.Event())
    service.round_done()
    service.round_done()
    assert capsys.readouterr().err.count("warning: ingest: --alive was not touched: ") == 1, "once"


class Stop(threading.Event):
    """A stop signal that comes in the pause number ``count``. ``seconds`` is the time; ``pauses`` are in seconds."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.seconds = 100.0
        self.pauses: list[float] = []
        self._count = count

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.seconds += timeout
        if len(self.pauses) == self._count:
            self.set()
        return self.is_set()


def test_a_round_begins_an_interval_after_the_one_before_it() -> None:
    rounds = {0.0: 10.0, 0.5: 9.5, 4.0: 6.0, 8.0: 4.0, 10.0: 5.0, 60.0: 10.0}
    stop = Stop(len(rounds))
    took = iter(rounds)

    def attempt() -> None:
        stop.seconds += next(took)

    Service("metrics", Continuous(10), stop, lambda: stop.seconds).repeat(attempt)
    assert stop.pauses == list(rounds.values())


def test_the_time_of_a_round_that_failed_does_not_shorten_a_pause() -> None:
    stop = Stop(3)
    outcomes = iter([JobFailed("gone"), JobFailed("gone"), None])

    def attempt() -> None:
        stop.seconds += 2
        if (error := next(outcomes)) is not None:
            raise error

    Service("metrics", Continuous(10), stop, lambda: stop.seconds).repeat(attempt)
    assert stop.pauses == [1, 2, 8]
